package event

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
)

// TestOperators checks each operator as JSONLogic defines it.
func TestOperators(t *testing.T) {
	const data = `{
		"event_type": "hypothesis.scored", "n": 0, "empty": "", "list": [1, 2, 3], "none": [],
		"payload": {"score": 0.87, "dimension": "novelty", "tags": ["tau", "amyloid"], "deep": {"er": {"est": 7}}, "items": [{"q": 1}, {"q": 5}]}
	}`
	tests := []struct{ rule, want string }{
		{`true`, `true`},
		{`"apple"`, `"apple"`},
		{`[]`, `[]`},
		{`{"var":"event_type"}`, `"hypothesis.scored"`},
		{`{"var":["payload.score"]}`, `0.87`},
		{`{"var":"payload.deep.er.est"}`, `7`},
		{`{"var":"payload.tags.1"}`, `"amyloid"`},
		{`{"var":"payload.tags.9"}`, `null`},
		{`{"var":["absent", 26]}`, `26`},
		{`{"var":["absent"]}`, `null`},
		{`{"var":{"cat":["payload",".","dimension"]}}`, `"novelty"`},
		{`{"missing":["event_type","absent","empty"]}`, `["absent","empty"]`},
		{`{"missing":[["absent"]]}`, `["absent"]`},
		{`{"missing_some":[1,["event_type","absent"]]}`, `[]`},
		{`{"missing_some":[2,["event_type","absent"]]}`, `["absent"]`},
		{`{"if":[false,"a",true,"b","c"]}`, `"b"`},
		{`{"if":[false,"a","c"]}`, `"c"`},
		{`{"if":[]}`, `null`},
		{`{"?:":["x",1,2]}`, `1`},
		{`{"==":[1,"1"]}`, `true`},
		{`{"==":[null,0]}`, `false`},
		{`{"==":[null,{"var":"absent"}]}`, `true`},
		{`{"==":[true,1]}`, `true`},
		{`{"==":["a",0]}`, `false`},
		{`{"==":[[1],"1"]}`, `true`},
		{`{"!=":[1,"1"]}`, `false`},
		{`{"===":[1,"1"]}`, `false`},
		{`{"===":["a","a"]}`, `true`},
		{`{"!==":[1,"1"]}`, `true`},
		{`{"!":[true]}`, `false`},
		{`{"!":true}`, `false`},
		{`{"!":[[]]}`, `true`},
		{`{"!!":["0"]}`, `true`},
		{`{"!!":[[]]}`, `false`},
		{`{"!!":[{"var":"n"}]}`, `false`},
		{`{"or":[false,"",null,"a"]}`, `"a"`},
		{`{"or":[false,0]}`, `0`},
		{`{"and":[true,"",3]}`, `""`},
		{`{"and":[1,3,2]}`, `2`},
		{`{"and":[{"var":"absent"},true]}`, `null`},
		{`{"and":[[],true]}`, `[]`},
		{`{"<":[1,2]}`, `true`},
		{`{"<":[1,2,3]}`, `true`},
		{`{"<":[1,1,3]}`, `false`},
		{`{"<=":[1,1,1]}`, `true`},
		{`{"<":["9",10]}`, `true`},
		{`{"<":["10","9"]}`, `true`},
		{`{"<":["a",1]}`, `false`},
		{`{">":[2,1]}`, `true`},
		{`{">=":[{"var":"payload.score"},0.8]}`, `true`},
		{`{"max":[1,3,2]}`, `3`},
		{`{"min":[1,3,"-2"]}`, `-2`},
		{`{"+":[1,"2",3]}`, `6`},
		{`{"+":"3.14"}`, `3.14`},
		{`{"+":["1e2x"]}`, `100`},
		{`{"*":[2,"3"]}`, `6`},
		{`{"-":[5,2]}`, `3`},
		{`{"-":[5]}`, `-5`},
		{`{"/":[4,2]}`, `2`},
		{`{"%":[7,3]}`, `1`},
		{`{"map":[{"var":"list"},{"*":[{"var":""},2]}]}`, `[2,4,6]`},
		{`{"map":[{"var":"absent"},1]}`, `[]`},
		{`{"filter":[{"var":"payload.items"},{">":[{"var":"q"},2]}]}`, `[{"q":5}]`},
		{`{"reduce":[{"var":"list"},{"+":[{"var":"current"},{"var":"accumulator"}]},10]}`, `16`},
		{`{"reduce":[{"var":"absent"},1,10]}`, `10`},
		{`{"all":[{"var":"list"},{">":[{"var":""},0]}]}`, `true`},
		{`{"all":[{"var":"none"},true]}`, `false`},
		{`{"some":[{"var":"list"},{"==":[{"var":""},2]}]}`, `true`},
		{`{"some":[{"var":"none"},true]}`, `false`},
		{`{"none":[{"var":"list"},{"==":[{"var":""},9]}]}`, `true`},
		{`{"none":[{"var":"absent"},true]}`, `true`},
		{`{"merge":[[1,2],3,[[4]]]}`, `[1,2,3,[4]]`},
		{`{"in":["tau",{"var":"payload.tags"}]}`, `true`},
		{`{"in":["1",[1]]}`, `false`},
		{`{"in":["sis.sc",{"var":"event_type"}]}`, `true`},
		{`{"in":["a",{"var":"absent"}]}`, `false`},
		{`{"cat":["I love ",{"var":"list"},1.5,true,null]}`, `"I love 1,2,31.5true"`},
		{`{"cat":[0.000001," ",0.0000001," ",1e21]}`, `"0.000001 1e-7 1e+21"`},
		{`{"substr":["jsonlogic",4]}`, `"logic"`},
		{`{"substr":["jsonlogic",-5]}`, `"logic"`},
		{`{"substr":["jsonlogic",1,3]}`, `"son"`},
		{`{"substr":["jsonlogic",4,-2]}`, `"log"`},
		{`{"substr":["Aβ42",1,1]}`, `"β"`},
		{`{"substr":["ab",-9,9]}`, `"ab"`},
		{`[1,{"+":[1,1]}]`, `[1,2]`},
	}
	var in any
	if err := json.Unmarshal([]byte(data), &in); err != nil {
		t.Fatal(err)
	}
	run := map[string]bool{}
	for _, tt := range tests {
		r, problems := CompileRule([]byte(tt.rule), "/filter")
		if problems != nil {
			t.Errorf("%s: %v", tt.rule, problems)
			continue
		}
		for name := range operators {
			run[name] = run[name] || strings.Contains(tt.rule, `"`+name+`":`)
		}
		steps := maxSteps
		got, err := json.Marshal(r.run(&scope{in, &steps}))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s = %s, %v, want %s", tt.rule, got, err, tt.want)
		}
	}
	for name := range operators {
		if !run[name] {
			t.Errorf("no test of %s", name)
		}
	}
}

// TestHostileRules checks that rules that are none are refused, each with what is
// wrong with it, and that none costs more than it may.
func TestHostileRules(t *testing.T) {
	for _, tt := range []struct{ name, rule, at, constraint, suggestion string }{
		{"unknown operator", `{"and":[{"eqals":[1,2]}]}`, "/filter/and/0/eqals", "operator", ""},
		{"one that is near", `{"filtr":[[],1]}`, "/filter/filtr", "operator", `"filter"`},
		{"what would log", `{"log":"x"}`, "/filter/log", "operator", ""},
		{"two operators", `{"==":[1,1],"!=":[1,2]}`, "/filter", "one_operator", ""},
		{"none", `{"and":[{}]}`, "/filter/and/0", "one_operator", ""},
		{"too few arguments", `{"==":[1]}`, "/filter/==", "arguments", ""},
		{"too many", `{">":[3,2,1]}`, "/filter/>", "arguments", ""},
		{"too large", `{"in":["x",["` + strings.Repeat("a", MaxRuleBytes) + `"]]}`, "/filter", "max_bytes", ""},
		{"too deep", strings.Repeat(`{"!":[`, 17) + "1" + strings.Repeat("]}", 17), "", "max_depth", ""},
		{"no JSON", `{"and":[`, "", "json", ""},
		{"a member twice", `{"!":1,"!":2}`, "/filter/!", "duplicate_key", ""},
	} {
		_, problems := CompileRule([]byte(tt.rule), "/filter")
		if len(problems) != 1 || problems[0].Constraint != tt.constraint || tt.at != "" && problems[0].Path != tt.at || tt.suggestion != "" && string(problems[0].Suggestion) != tt.suggestion {
			t.Errorf("%s: %+v, want %s at %s", tt.name, problems, tt.constraint, tt.at)
		}
	}
	list := make([]any, 5000)
	for i := range list {
		list[i] = float64(i)
	}
	for _, rule := range []string{
		`{"some":[{"var":"l"},{"some":[{"var":"l"},false]}]}`,
		`{"map":[{"var":"l"},{"map":[[1,2,3,4,5,6,7,8],{"+":[{"var":""},1]}]}]}`,
		`{"reduce":[{"var":"l"},{"cat":[{"var":"accumulator"},{"var":"accumulator"}]},"aaaaaaaa"]}`,
		`{"reduce":[{"var":"l"},{"merge":[{"var":"accumulator"},{"var":"accumulator"}]},[1,2]]}`,
		`{"!!":{"cat":[{"reduce":[{"var":"m"},[{"var":"accumulator"},{"var":"accumulator"}],1]}]}}`,
		`{"!=":[{"reduce":[{"var":"m"},[{"var":"accumulator"},{"var":"accumulator"}],1]},"x"]}`,
		`{"!":{"var":[{"reduce":[{"var":"m"},[{"var":"accumulator"},{"var":"accumulator"}],1]}]}}`,
		`{"missing":[{"reduce":[{"var":"m"},[[{"var":"accumulator"},{"var":"accumulator"}]],1]}]}`,
		`{"!":{"+":[{"reduce":[{"var":"m"},[{"var":"accumulator"},{"var":"accumulator"}],1]}]}}`,
		`{"!":{"-":[{"reduce":[{"var":"m"},[{"var":"accumulator"},{"var":"accumulator"}],1]}]}}`,
		`{"!":{"<":[{"reduce":[{"var":"m"},[{"var":"accumulator"},{"var":"accumulator"}],1]},"x"]}}`,
		`{"!":{"in":[{"reduce":[{"var":"m"},[{"var":"accumulator"},{"var":"accumulator"}],1]},"x"]}}`,
		`{"substr":[{"reduce":[{"var":"m"},[{"var":"accumulator"},{"var":"accumulator"}],1]},1]}`,
		`{"!":{"max":[{"reduce":[{"var":"m"},[{"var":"accumulator"},{"var":"accumulator"}],1]}]}}`,
		`{"!":{"reduce":[{"var":"l"},{"if":[{"==":[{"var":"accumulator"},"x"]},1,{"var":"accumulator"}]},{"var":"l"}]}}`,
	} {
		r, problems := CompileRule([]byte(rule), "/filter")
		if problems != nil {
			t.Fatal(problems)
		}
		if r.Match(map[string]any{"l": list, "m": list[:60]}) {
			t.Errorf("%s holds, though it costs too much", rule)
		}
	}
}

// TestFilter checks names, wildcards, names of before and rules together.
func TestFilter(t *testing.T) {
	e := func(id artifact.Seq, typ, payload string) *artifact.Event {
		return &artifact.Event{ID: id, Type: typ, Ref: "hypothesis:h", Scope: "commons", Payload: json.RawMessage(payload)}
	}
	scored, created, banned := e(1, "hypothesis.scored", `{"score":0.9}`), e(2, "paper.created", `{}`), e(3, "agent.banned", `{}`)
	for _, tt := range []struct {
		types []string
		rule  string
		want  string
	}{
		{nil, "", "1 2 3"},
		{[]string{"*"}, "null", "1 2 3"},
		{[]string{"hypothesis.*"}, "", "1"},
		{[]string{"hypothesis.scored", "paper.updated"}, "", "1"},
		{[]string{"actor.banned"}, "", "3"},
		{[]string{"actor.*", "paper.*"}, "", "2 3"},
		{[]string{"hypothesis.*", "*"}, "", "1 2 3"},
		{nil, `{">=":[{"var":"payload.score"},0.8]}`, "1"},
		{[]string{"paper.*"}, `{">=":[{"var":"payload.score"},0.8]}`, ""},
		{nil, `{"==":[{"var":"ref.id"},"h"]}`, "1 2 3"},
	} {
		f, err := NewFilter(tt.types, json.RawMessage(tt.rule))
		if err != nil {
			t.Errorf("%v %s: %v", tt.types, tt.rule, err)
			continue
		}
		var got []string
		for _, e := range []*artifact.Event{scored, created, banned} {
			if f.Match(e) {
				got = append(got, fmt.Sprint(e.ID))
			}
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%v %s: (-want +got)\n%s", tt.types, tt.rule, diff)
		}
	}
	for _, name := range []string{"hypothesis", "hyp*.created", "hypothesis.cre*", "", ".", "*.created", "Hypothesis.created", "hypothesis.*.x"} {
		if _, err := NewFilter([]string{name}, nil); err == nil || artifact.AsError(err).Problems[0].Path != "/types/0" {
			t.Errorf("%q is taken: %v", name, err)
		}
	}
}

// TestRulesAreShared checks that equal rules are one, run once for an event, and
// that events of another log with the same id are not taken for it.
func TestRulesAreShared(t *testing.T) {
	a, err := NewFilter(nil, json.RawMessage(`{"==":[{"var":"payload.x"},1]}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewFilter(nil, json.RawMessage(` {"==": [{"var":"payload.x"}, 1]}`))
	if err != nil {
		t.Fatal(err)
	}
	if a.rule != b.rule {
		t.Error("equal rules are two")
	}
	runs := 0
	run := a.rule.run
	a.rule.run = func(s *scope) any { runs++; return run(s) }
	one := &artifact.Event{ID: 7, Type: "hypothesis.created", Ref: "hypothesis:a", Payload: json.RawMessage(`{"x":1}`)}
	other := &artifact.Event{ID: 7, Type: "hypothesis.created", Ref: "hypothesis:b", Payload: json.RawMessage(`{"x":2}`)}
	for range 3 {
		if !a.Match(one) || !b.Match(one) {
			t.Error("the rule does not hold")
		}
	}
	if runs != 1 {
		t.Errorf("the rule ran %d times for one event", runs)
	}
	if a.Match(other) {
		t.Error("an event of another log is taken for one that was seen")
	}
}

func FuzzRule(f *testing.F) {
	for _, seed := range []string{`{"and":[{"var":"a"},{"in":["x",[1]]}]}`, `{"substr":["abc",1,-1]}`, `{"reduce":[[1],{"cat":[1]},0]}`, `{"%":[1,0]}`} {
		f.Add([]byte(seed), []byte(`{"a":[1,{"b":null}],"c":"d"}`))
	}
	f.Fuzz(func(t *testing.T, rule, data []byte) {
		var in any
		if json.Unmarshal(data, &in) != nil {
			return
		}
		r, problems := CompileRule(rule, "/filter")
		if problems == nil {
			r.Match(in)
		}
	})
}
