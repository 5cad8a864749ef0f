package event

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// TestLogicTable runs a table in the form of jsonlogic.com's: rule, data and result,
// with texts as headings. Its results are those of the reference implementation in
// JavaScript.
func TestLogicTable(t *testing.T) {
	raw, err := os.ReadFile("testdata/jsonlogic.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []json.RawMessage
	if err := json.Unmarshal(raw, &rows); err != nil {
		t.Fatal(err)
	}
	heading, n := "", 0
	for _, row := range rows {
		if json.Unmarshal(row, &heading) == nil {
			continue
		}
		var parts [3]json.RawMessage
		if err := json.Unmarshal(row, &parts); err != nil {
			t.Fatalf("%s: %v", row, err)
		}
		c := struct{ rule, data, want json.RawMessage }{parts[0], parts[1], parts[2]}
		rule, problems := CompileRule(c.rule, "")
		if problems != nil {
			t.Errorf("%s: %s: %+v", heading, c.rule, problems)
			continue
		}
		var data, want, got any
		if err := json.Unmarshal(c.data, &data); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(c.want, &want); err != nil {
			t.Fatal(err)
		}
		steps := maxSteps
		text, err := json.Marshal(rule.run(&scope{data, &steps}))
		if err != nil || json.Unmarshal(text, &got) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s of %s = %s, %v, want %s", heading, c.rule, c.data, text, err, c.want)
		}
		if holds := rule.Match(data); holds != truthy(want) {
			t.Errorf("%s: whether %s holds for %s: %v", heading, c.rule, c.data, holds)
		}
		n++
	}
	if n < 300 {
		t.Errorf("the table has %d rules", n)
	}
}
