package transport_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/graph/transport"
)

const (
	asJSON    = "application/json"
	asGraphQL = "application/graphql-response+json"
)

func TestHTTP(t *testing.T) {
	_, _, base := serve(t, transport.Config{MaxBodyBytes: 4 << 10, MaxDocumentBytes: 2 << 10, MaxTokens: 100})
	get := func(query string) string { return base + "?query=" + url.QueryEscape(query) }
	notFound := `{"errors":[{"message":"Cannot query field \"nope\" on type \"Query\".","locations":[{"line":1,"column":2}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`

	for _, c := range []struct {
		name, method, url, accept, contentType, body string
		status                                       int
		media, want                                  string // "" want: not compared
	}{
		{"answers a query", "POST", base, asGraphQL, asJSON, `{"query":"{name}"}`, 200, asGraphQL, `{"data":{"name":"ada <&>"}}`},
		{"answers in JSON to a wildcard", "POST", base, "*/*", asJSON, `{"query":"{name}"}`, 200, asJSON, ""},
		{"answers in JSON to no Accept", "POST", base, "", asJSON, `{"query":"{name}"}`, 200, asJSON, ""},
		{"honours q", "POST", base, asGraphQL + ";q=0.5, " + asJSON, asJSON, `{"query":"{name}"}`, 200, asJSON, ""},
		{"prefers the newer type between equals", "POST", base, asJSON + ", " + asGraphQL + ", text/event-stream", asJSON, `{"query":"{name}"}`, 200, asGraphQL, ""},
		{"runs a mutation", "POST", base, asJSON, asJSON + "; charset=UTF-8", `{"query":"mutation($t:String!){rename(to:$t)}","variables":{"t":"bo"}}`, 200, asJSON, `{"data":{"rename":"bo"}}`},
		{"takes null parameters", "POST", base, asJSON, asJSON, `{"query":"{name}","variables":null,"operationName":null,"extensions":null}`, 200, asJSON, ""},
		{"keeps data, errors and extensions of a field error", "POST", base, asGraphQL, asJSON, `{"query":"{broken}"}`, 200, asGraphQL, `{"errors":[{"message":"broken"}],"data":{"broken":null},"extensions":{"replica":{"seq":7}}}`},
		{"masks a panic", "POST", base, asJSON, asJSON, `{"query":"{panics}"}`, 500, asJSON, `{"errors":[{"message":"internal error","extensions":{"code":"internal_error"}}]}`},

		{"answers 200 to an invalid document in JSON", "POST", base, asJSON, asJSON, `{"query":"{nope}"}`, 200, asJSON, notFound},
		{"answers 400 to an invalid document", "POST", base, asGraphQL, asJSON, `{"query":"{nope}"}`, 400, asGraphQL, notFound},
		{"answers 400 to a syntax error", "POST", base, asGraphQL, asJSON, `{"query":"{"}`, 400, asGraphQL, ""},
		{"answers 400 to a wrong variable", "POST", base, asGraphQL, asJSON, `{"query":"query($n:Int!){sum(of:[$n])}","variables":{"n":"x"}}`, 400, asGraphQL, ""},
		{"answers 200 to a wrong variable in JSON", "POST", base, asJSON, asJSON, `{"query":"query($n:Int!){sum(of:[$n])}","variables":{"n":"x"}}`, 200, asJSON, ""},
		{"refuses a subscription", "POST", base, asGraphQL, asJSON, `{"query":"subscription{waits}"}`, 400, asGraphQL, ""},
		{"refuses introspection unless enabled", "POST", base, asGraphQL, asJSON, `{"query":"{__schema{description}}"}`, 400, asGraphQL, ""},
		{"refuses a long document", "POST", base, asGraphQL, asJSON, `{"query":"{name} #` + strings.Repeat("x", 2<<10) + `"}`, 400, asGraphQL, ""},
		{"refuses too many tokens", "POST", base, asGraphQL, asJSON, `{"query":"{` + strings.Repeat("name ", 100) + `}"}`, 400, asGraphQL, ""},

		{"refuses malformed JSON", "POST", base, asJSON, asJSON, `{"query":"{na`, 400, asJSON, `{"errors":[{"message":"malformed JSON","extensions":{"code":"bad_request"}}]}`},
		{"refuses text after the object", "POST", base, asJSON, asJSON, `{"query":"{name}"}{}`, 400, asJSON, ""},
		{"refuses an absent query", "POST", base, asJSON, asJSON, `{"qeury":"{name}"}`, 400, asJSON, ""},
		{"refuses an empty body", "POST", base, asJSON, asJSON, ``, 400, asJSON, ""},
		{"refuses a batch", "POST", base, asJSON, asJSON, `[{"query":"{name}"}]`, 400, asJSON, ""},
		{"refuses a query that is no string", "POST", base, asJSON, asJSON, `{"query":0}`, 400, asJSON, ""},
		{"refuses variables that are no object", "POST", base, asJSON, asJSON, `{"query":"{name}","variables":["x"]}`, 400, asJSON, ""},
		{"refuses a large body", "POST", base, asJSON, asJSON, `{"query":"{name}","variables":{"x":"` + strings.Repeat("x", 4<<10) + `"}}`, 413, asJSON, ""},
		{"refuses a form", "POST", base, asJSON, "application/x-www-form-urlencoded", `query={name}`, 415, asJSON, ""},
		{"refuses multipart", "POST", base, asJSON, "multipart/form-data; boundary=x", "--x--", 415, asJSON, ""},
		{"refuses another charset", "POST", base, asJSON, asJSON + "; charset=latin1", `{"query":"{name}"}`, 415, asJSON, ""},
		{"refuses no content type", "POST", base, asJSON, "", `{"query":"{name}"}`, 415, asJSON, ""},
		{"refuses an Accept that it cannot answer", "POST", base, "text/html", asJSON, `{"query":"{name}"}`, 406, asJSON, ""},
		{"refuses q=0", "POST", base, asJSON + ";q=0", asJSON, `{"query":"{name}"}`, 406, asJSON, ""},

		{"answers GET", "GET", get("query Q{name} query R{__typename}") + "&operationName=R", asJSON, "", "", 200, asJSON, `{"data":{"__typename":"Query"}}`},
		{"reads variables of a GET", "GET", get("query($n:Int!){sum(of:[$n])}") + "&variables=" + url.QueryEscape(`{"n":1}`), asJSON, "", "", 200, asJSON, `{"data":{"sum":null}}`},
		{"refuses malformed variables of a GET", "GET", get("{name}") + "&variables=x", asJSON, "", "", 400, asJSON, ""},
		{"refuses a mutation by GET", "GET", get(`mutation{rename(to:"x")}`), asGraphQL, "", "", 405, asGraphQL, ""},
		{"refuses PUT", "PUT", base, asJSON, asJSON, `{"query":"{name}"}`, 405, asJSON, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			for name, v := range map[string]string{"Accept": c.accept, "Content-Type": c.contentType} {
				if v != "" {
					req.Header.Set(name, v)
				}
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.status {
				t.Errorf("status = %d, want %d: %s", resp.StatusCode, c.status, body)
			}
			if got, want := resp.Header.Get("Content-Type"), c.media+"; charset=utf-8"; got != want {
				t.Errorf("content type = %q, want %q", got, want)
			}
			if c.want != "" && string(body) != c.want {
				t.Errorf("body = %s, want %s", body, c.want)
			}
			if c.status >= 400 && strings.Contains(string(body), `"data"`) {
				t.Errorf("a request error carries data: %s", body)
			}
			if c.status == 405 && !strings.Contains(resp.Header.Get("Allow"), "POST") {
				t.Errorf("Allow = %q, want POST in it", resp.Header.Get("Allow"))
			}
		})
	}
}

func TestOptions(t *testing.T) {
	_, _, base := serve(t, transport.Config{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, base, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Allow") != "GET, POST, OPTIONS" {
		t.Errorf("OPTIONS = %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
}
