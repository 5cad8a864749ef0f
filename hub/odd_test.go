package hub_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestOddButValid sends what looks like an attack and is data: it is stored as it
// is, can be read by the ref that the answer gives, and does nothing else.
func TestOddButValid(t *testing.T) {
	f, _, url, token := hostileHub(t)
	call := func(name string, in, out any) answer {
		t.Helper()
		a := request(t, http.MethodPost, url+"/api/scidex/"+name, token, content(in))
		if a.status == http.StatusOK && out != nil {
			if err := json.Unmarshal(a.body, out); err != nil {
				t.Fatal(err)
			}
		}
		return a
	}
	const sql = `'; DROP TABLE artifact; --`
	for name, c := range map[string]struct{ id, title, content, want string }{
		"an emoji":                     {"", "🧬 GENE 👩🏽‍🔬", `{"symbol":"🧬"}`, `{"symbol":"🧬"}`},
		"combining characters":         {"", "e\u0301 and é", `{"symbol":"e\u0301"}`, "{\"symbol\":\"e\u0301\"}"},
		"a right-to-left override":     {"", "gene \u202eEPOA\u202c", "{\"symbol\":\"\u202e\"}", "{\"symbol\":\"\u202e\"}"},
		"a surrogate pair":             {"", "pair", `{"symbol":"\ud83e\uddec"}`, `{"symbol":"🧬"}`},
		"SQL":                          {"';DROP/**/TABLE/**/artifact;--", sql, `{"symbol":"` + sql + `"}`, `{"symbol":"` + sql + `"}`},
		"HTML":                         {"", "<script>alert(1)</script>", `{"symbol":"<img src=x onerror=alert(1)>"}`, `{"symbol":"<img src=x onerror=alert(1)>"}`},
		"an id that climbs":            {"../../etc/passwd", "path", `{"symbol":"s"}`, `{"symbol":"s"}`},
		"a percent-encoded id":         {"a%2Fb%00%0A", "percent", `{"symbol":"s"}`, `{"symbol":"s"}`},
		"an id of 256 bytes":           {strings.Repeat("x", 256), "long", `{"symbol":"s"}`, `{"symbol":"s"}`},
		"a title of 512 characters":    {"", strings.Repeat("é", 512), `{"symbol":"s"}`, `{"symbol":"s"}`},
		"-0":                           {"", "zero", `{"symbol":"s","n":-0}`, `{"n":0,"symbol":"s"}`},
		"the least double":             {"", "least", `{"symbol":"s","n":5e-324}`, `{"n":5e-324,"symbol":"s"}`},
		"the greatest exact integer":   {"", "exact", `{"symbol":"s","n":-9007199254740991}`, `{"n":-9007199254740991,"symbol":"s"}`},
		"a number in another form":     {"", "form", `{"symbol":"s","n":1.50E+1}`, `{"n":15,"symbol":"s"}`},
		"keys of odd names":            {"", "keys", `{"symbol":"s","":1,"__proto__":2,"a/b~c":3}`, `{"":1,"__proto__":2,"a/b~c":3,"symbol":"s"}`},
		"64 levels":                    {"", "deep", `{"symbol":"s","n":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, `{"n":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `,"symbol":"s"}`},
		"a content of 1 MiB canonical": {"", "large", `{ "symbol" : "` + strings.Repeat("x", 1<<20-len(`{"symbol":""}`)) + `" }`, `{"symbol":"` + strings.Repeat("x", 1<<20-len(`{"symbol":""}`)) + `"}`},
	} {
		var made verb.WriteResult
		a := call("create", map[string]any{"type": "gene", "id": c.id, "title": c.title, "content": json.RawMessage(c.content)}, &made)
		if a.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.status, a.body)
			continue
		}
		if c.id != "" && made.Ref.ID != c.id {
			t.Errorf("%s: the id is %q", name, made.Ref.ID)
		}
		var got verb.GetResponse
		if a := call("get", map[string]any{"ref": made.Ref}, &got); a.status != http.StatusOK || got.Artifact.Title != c.title || string(got.Artifact.Content) != c.want {
			t.Errorf("%s: get = %d %.300s, want %.300s", name, a.status, a.body, c.want)
		}
	}
	t.Run("in what is asked for", func(t *testing.T) {
		for name, c := range map[string]struct {
			verb, body, want string
		}{
			"SQL in a ref":        {"get", `{"ref":"gene:'OR'1'='1"}`, "404 not_found"},
			"SQL in a type":       {"list", `{"type":"' OR 1=1 --"}`, "422 validation_failed | /type registered_type"},
			"SQL in a cursor":     {"list", `{"type":"gene","cursor":"' OR 1=1 --"}`, "400 validation_failed/invalid_cursor | /cursor cursor"},
			"SQL of a type":       {"schema", `{"type":"' OR 1=1 --"}`, "404 not_found"},
			"SQL as a kind":       {"signals", `{"ref":"hypothesis:h-1","kinds":["' OR 1=1 --"]}`, "422 validation_failed | /kinds/0 signal_kind"},
			"a limit of 10^9":     {"list", `{"type":"gene","limit":1000000000}`, "422 validation_failed | /limit range"},
			"a limit of -1":       {"list", `{"type":"gene","limit":-1}`, "422 validation_failed | /limit range"},
			"a limit of 1.5":      {"list", `{"type":"gene","limit":1.5}`, "422 validation_failed | /limit type"},
			"an unknown member":   {"list", `{"typ":"gene"}`, `422 validation_failed | /typ unknown_field "type"`},
			"an unknown verb":     {"creat", `{}`, "404 not_found/unknown_verb"},
			"a verb that climbs":  {"..%2f..%2fhealthz", `{}`, "404 not_found/unknown_verb"},
			"a verb with NUL":     {"create%00", `{}`, "404 not_found/unknown_verb"},
			"a verb in capitals":  {"CREATE", `{}`, "404 not_found/unknown_verb"},
			"a verb with a slash": {"create/", `{}`, "404 not_found/unknown_verb"},
		} {
			a := request(t, http.MethodPost, url+"/api/scidex/"+c.verb, token, []byte(c.body))
			if got := describe(a.status, &a.err); got != c.want {
				t.Errorf("%s = %s, want %s\n%.300s", name, got, c.want, a.body)
			}
		}
		a := request(t, http.MethodPost, url+"/api/scidex/creat", token, []byte(`{}`))
		if a.err.Details["suggestion"] != "create" {
			t.Errorf("an unknown verb is answered without a suggestion: %s", a.body)
		}
	})
	t.Run("1,000 links at once, and all that are missing told", func(t *testing.T) {
		var items []verb.BatchItem
		var links []verb.LinkSpec
		for i := range 1000 {
			id := fmt.Sprintf("G%d", i)
			items = append(items, verb.BatchItem{Create: &verb.CreateRequest{Type: "gene", ID: id, Title: id, Content: content(map[string]any{"symbol": id})}})
			links = append(links, verb.LinkSpec{Predicate: "about", To: "gene:" + id})
		}
		in := hypothesis("linked", "x")
		in.Links = links
		before := f.rowCounts(t)
		a := call("create", in, nil)
		if e := describe(a.status, &a.err); !strings.HasPrefix(e, "422 link_target_missing | /links/0/to link_targets_exist | ") || len(a.err.Details["refs"].([]any)) != 1000 {
			t.Errorf("1,000 missing targets = %.300s with %d refs", e, len(a.err.Details["refs"].([]any)))
		}
		if after := f.rowCounts(t); after != before {
			t.Errorf("it left rows behind: %s, before %s", after, before)
		}
		if _, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: items, Atomic: true}); err != nil {
			t.Fatal(err)
		}
		var made verb.WriteResult
		if a := call("create", in, &made); a.status != http.StatusOK || len(made.Links) != 1000 {
			t.Fatalf("a create with 1,000 links = %d %.300s", a.status, a.body)
		}
	})
	f.checkDense(t)
	f.checkDigest(t)
}

// TestHostileTransport sends requests that HTTP allows and the hub does not, and
// some that HTTP does not.
func TestHostileTransport(t *testing.T) {
	f, _, base, token := hostileHub(t)
	before := f.rowCounts(t)
	body := []byte(hostileWith(""))
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(bytes.Repeat([]byte(" "), 64<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		method, path string
		body         []byte
		header       []string
		want         string
	}{
		"GET":                              {http.MethodGet, "create", nil, nil, "405 validation_failed/method_not_allowed"},
		"PUT":                              {http.MethodPut, "create", body, nil, "405 validation_failed/method_not_allowed"},
		"PATCH":                            {http.MethodPatch, "update", body, nil, "405 validation_failed/method_not_allowed"},
		"DELETE":                           {http.MethodDelete, "unlink", nil, nil, "405 validation_failed/method_not_allowed"},
		"TRACE":                            {http.MethodTrace, "create", nil, nil, "405 validation_failed/method_not_allowed"},
		"a method of its own":              {"CREATE", "create", body, nil, "405 validation_failed/method_not_allowed"},
		"text":                             {http.MethodPost, "create", body, []string{"Content-Type", "text/plain"}, "415 validation_failed/unsupported_media_type"},
		"JSON by another name":             {http.MethodPost, "create", body, []string{"Content-Type", "application/jsonp"}, "415 validation_failed/unsupported_media_type"},
		"a malformed type":                 {http.MethodPost, "create", body, []string{"Content-Type", "application/json; ="}, "415 validation_failed/unsupported_media_type"},
		"a form of parts":                  {http.MethodPost, "create", body, []string{"Content-Type", "multipart/form-data; boundary=x"}, "415 validation_failed/unsupported_media_type"},
		"a bomb":                           {http.MethodPost, "create", zipped.Bytes(), []string{"Content-Encoding", "gzip"}, "415 validation_failed/unsupported_media_type"},
		"a bomb that does not say so":      {http.MethodPost, "create", zipped.Bytes(), nil, "400 validation_failed/invalid_json |  json"},
		"Authorization of another scheme":  {http.MethodPost, "create", body, []string{"Authorization", "Basic YWRhOmFkYQ=="}, "401 permission_denied/unauthenticated"},
		"Authorization without a token":    {http.MethodPost, "create", body, []string{"Authorization", "Bearer "}, "401 permission_denied/unauthenticated"},
		"Authorization of dots":            {http.MethodPost, "create", body, []string{"Authorization", "Bearer ..."}, "401 permission_denied/unauthenticated"},
		"Authorization of SQL":             {http.MethodPost, "create", body, []string{"Authorization", "Bearer ' OR '1'='1"}, "401 permission_denied/unauthenticated"},
		"Authorization with a token twice": {http.MethodPost, "create", body, []string{"Authorization", "Bearer " + token + " " + token}, "401 permission_denied/unauthenticated"},
		"Authorization beyond ASCII":       {http.MethodPost, "create", body, []string{"Authorization", "Bearer ключ"}, "401 permission_denied/unauthenticated"},
		"a node's credential of nobody":    {http.MethodPost, "create", body, []string{verb.NodeHeader, "garbage"}, "401 permission_denied/unauthenticated"},
	} {
		a := request(t, c.method, base+"/api/scidex/"+c.path, token, c.body, c.header...)
		if got := describe(a.status, &a.err); got != c.want {
			t.Errorf("%s = %s, want %s\n%.300s", name, got, c.want, a.body)
		}
	}
	t.Run("a request id that is none is replaced", func(t *testing.T) {
		for _, id := range []string{"1", "<script>", "a b", strings.Repeat("x", 4096), "{" + uuid.NewString() + "}", `"},{"error":"`} {
			a := request(t, http.MethodPost, base+"/api/scidex/get", token, []byte(`{"ref":"gene:NONE"}`), "X-Request-Id", id)
			if got, err := uuid.Parse(a.err.RequestID); err != nil || len(a.err.RequestID) != 36 || a.header.Get("X-Request-Id") != got.String() {
				t.Errorf("X-Request-Id %.40q became %q", id, a.err.RequestID)
			}
		}
	})
	t.Run("a header in a header is refused by HTTP", func(t *testing.T) {
		raw := "POST /api/scidex/create HTTP/1.1\r\nHost: hub\r\nX-Request-Id: a\nSet-Cookie: b=c\r\n\x00: d\r\n\r\n"
		if answer := rawExchange(t, base, raw); !strings.HasPrefix(answer, "HTTP/1.1 400 ") || strings.Contains(answer, "Set-Cookie: b=c") {
			t.Errorf("answer = %q", answer)
		}
	})
	t.Run("two lengths are refused by HTTP", func(t *testing.T) {
		raw := "POST /api/scidex/create HTTP/1.1\r\nHost: hub\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"
		if answer := rawExchange(t, base, raw); !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
			t.Errorf("answer = %q", answer)
		}
	})
	if after := f.rowCounts(t); after != before {
		t.Errorf("rows = %s, before %s", after, before)
	}
}

// rawExchange sends bytes to a server and returns what it answers first.
func rawExchange(t *testing.T, base, raw string) string {
	t.Helper()
	conn := dial(t, base)
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[:n])
}

func dial(t *testing.T, base string) net.Conn {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestStalledBody sends a body that stops in its midst: it is given up, and
// nothing is written.
func TestStalledBody(t *testing.T) {
	f, _, _, token := hostileHub(t)
	srv := httptest.NewServer((&verb.Server{Registry: f.Verbs(), Verifier: f.Verifier(), BodyTimeout: 200 * time.Millisecond}).Handler())
	t.Cleanup(srv.Close)
	before := f.rowCounts(t)
	for name, framing := range map[string]string{
		"chunked":         "Transfer-Encoding: chunked\r\n\r\n10\r\n{\"type\":\"hypothes\r\n",
		"of known length": "Content-Length: 100\r\n\r\n{\"type\":",
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, srv.URL)
			start := time.Now()
			if _, err := io.WriteString(conn, "POST /api/scidex/create HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\nAuthorization: Bearer "+token+"\r\n"+framing); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var e artifact.Error
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
				t.Fatal(err)
			}
			if got := describe(resp.StatusCode, &e); got != "400 validation_failed/unreadable_body" || time.Since(start) > 10*time.Second {
				t.Errorf("answer = %s after %v", got, time.Since(start))
			}
		})
	}
	if after := f.rowCounts(t); after != before {
		t.Errorf("rows = %s, before %s", after, before)
	}
}
