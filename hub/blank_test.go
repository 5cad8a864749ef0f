package hub_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestBlankAndBounded: what a reader cannot see is no remark, reason or title, and
// what a comment is said to be is one short line.
func TestBlankAndBounded(t *testing.T) {
	f, _, url, token := hostileHub(t)
	comment := func(body, kind string) string {
		return `{"ref":"hypothesis:h-1","body":` + quoted(body) + `,"kind":` + quoted(kind) + `}`
	}
	f.refuse(t, url, token, []hostileRequest{
		{name: "of zero-width spaces", verb: "comment", body: comment("\u200b\u200d\ufeff", "k"), want: "422 validation_failed | /body length"},
		{name: "of Hangul fillers", verb: "comment", body: comment("\u3164", "k"), want: "422 validation_failed | /body length"},
		{name: "of blanks", verb: "comment", body: comment(" \n\u00a0", "k"), want: "422 validation_failed | /body length"},
		{name: "of a kind without end", verb: "comment", body: comment("x", strings.Repeat("k", 65)), want: "422 validation_failed | /kind length"},
		{name: "of a kind of two lines", verb: "comment", body: comment("x", "a\nb"), want: "422 validation_failed | /kind length"},
		{name: "of a kind that is blank", verb: "comment", body: comment("x", "\u200b"), want: "422 validation_failed | /kind length"},
		{name: "of a comment of nothing", verb: "create", body: `{"type":"comment","title":"t","content":{"markdown":"\u200b \u00a0","kind":` + quoted(strings.Repeat("k", 65)) + `}}`, want: "422 validation_failed | /content/kind maxLength | /content/markdown pattern"},
		{name: "of a title of nothing", verb: "create", body: `{"type":"gene","title":"\u200b","content":{"symbol":"s"}}`, want: "422 validation_failed | /title required"},
		{name: "for a reason of nothing", verb: "supersede", body: `{"ref":"hypothesis:h-1","reason":"\u2060"}`, want: "422 validation_failed | /reason required"},
	})
	for _, body := range []string{comment("👩\u200d🔬", "praise"), comment("\u200bx", strings.Repeat("k", 64))} {
		if a := request(t, http.MethodPost, url+"/api/scidex/comment", token, []byte(body)); a.status != http.StatusOK {
			t.Errorf("%s = %d %s", body, a.status, a.body)
		}
	}
}

// TestOnePMID: a PubMed id is the same thing wherever one is written.
func TestOnePMID(t *testing.T) {
	f, _, url, token := hostileHub(t)
	for name, pmid := range map[string]string{"9 digits": "123456789", "a zero before": "0123", "letters": "12a", "nothing": ""} {
		f.refuse(t, url, token, []hostileRequest{
			{name: name, verb: "create", body: `{"type":"paper","title":"t","content":{"pmid":` + quoted(pmid) + `}}`, want: "422 validation_failed | /content/pmid pattern"},
			{name: name, verb: "cite", body: `{"ref":"hypothesis:h-1","paper_pmid":` + quoted(pmid) + `}`, want: suggesting("422 validation_failed | /paper_pmid pmid", pmid)},
		})
		f.refuse(t, url, token, []hostileRequest{{name: name, verb: "create", body: `{"type":"paper","id":"PMID:` + pmid + `","title":"t","content":{}}`, want: strings.Replace(suggesting("422 validation_failed | /id pmid", pmid), `"123"`, `"PMID:123"`, 1)}})
		if pmid != "" {
			f.refuse(t, url, token, []hostileRequest{{name: name, verb: "comment", body: `{"ref":"hypothesis:h-1","body":"[PMID:` + pmid + `]"}`, want: suggesting("422 validation_failed | /body resolve_pmid_citations", pmid)}})
		}
	}
	for _, pmid := range []string{"1", "12345678"} {
		a := request(t, http.MethodPost, url+"/api/scidex/create", token, []byte(`{"type":"paper","title":"t","content":{"pmid":"`+pmid+`"},"dry_run":true}`))
		if taken := pmid == "1"; taken == (a.status == http.StatusOK) { // hostileHub has that one
			t.Errorf("a paper of %s = %d %s", pmid, a.status, a.body)
		}
	}
}

// suggesting adds the suggestion of an id that lacks no more than its zero's removal.
func suggesting(want, pmid string) string {
	if pmid == "0123" {
		return want + ` "123"`
	}
	return want
}
