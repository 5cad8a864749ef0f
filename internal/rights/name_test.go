package rights_test

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// recipients returns all that a recipient may be.
func (g *generator) recipients(property string, value func(string) any) (all []variant) {
	p := &g.l.private
	for prefix, named := range map[string][]pair{"agent:": p.agents, "@": slices.Concat(p.handles, p.roles), "agents:role:": p.roles, "group:": p.groups} {
		for _, n := range named {
			all = append(all, variant{of: property, name: prefix + n.real, real: request{property: value(prefix + n.real)}, twin: request{property: value(prefix + n.twin)}})
		}
	}
	return all
}

// contents returns contents that name what is private. In a content the formats
// and names below name something; other texts are words.
func (g *generator) contents(v verb.Info, property string) (all []variant) {
	if v.Name != verb.Create.Name && v.Name != verb.Supersede.Name {
		return nil // an update's content is of its artifact's type; what it names is not looked at
	}
	for _, s := range artifact.ShippedSchemas() {
		var schema jsonschema.Schema
		if err := schema.UnmarshalJSON(s.ContentSchema); err != nil {
			g.t.Fatal(err)
		}
		base := request(contents(s.Type, "something"))
		for name, p := range schema.Properties {
			var named []variant
			set := func(text pair, value func(string) any) {
				named = append(named, variant{name: text.real, real: request{name: value(text.real)}, twin: request{name: value(text.twin)}, same: unlike(text)})
			}
			switch {
			case p.Format == artifact.FormatRef:
				for _, r := range g.l.private.refs {
					set(r.pair, func(s string) any { return s })
				}
			case name == "recipient":
				named = g.recipients(name, func(s string) any { return s })
			case name == "members":
				for _, a := range g.l.private.agents {
					set(a, func(s string) any { return []any{s} })
				}
			case p.Format != "":
				g.t.Errorf("the content of %s has the property %s of format %s: teach contents what it can name", s.Type, name, p.Format)
			}
			for _, f := range named {
				f.of, f.name, f.hashed = property+"."+name, s.Type+" "+f.name, true
				f.real = request{"type": s.Type, property: base.with(f.real)}
				f.twin = request{"type": s.Type, property: base.with(f.twin)}
				all = append(all, f)
			}
		}
	}
	return all
}

// ids returns what the property id of each verb may name.
func (g *generator) ids(v verb.Info, property string) (all []variant) {
	p := &g.l.private
	set := func(name string, named pair, more request) {
		all = append(all, variant{
			of: property, name: name, same: unlike(named),
			real: request{property: named.real}.with(more), twin: request{property: named.twin}.with(more),
		})
	}
	switch v.Name {
	case verb.Create.Name, verb.Supersede.Name:
		set("of an artifact", p.ids[0], nil)
		local := pair{secret + "-hypothesis", absent + "-hypothesis"}
		set("within the lab", local, request{"scope": labA})
		set("within another lab", p.ids[0], request{"scope": labB})
		set("in commons", local, nil)
		set("of a message", p.mail, request{"type": "message", "content": contents("message", "something"), "dry_run": true})
	case verb.ScopesCreate.Name:
		set("of a scope", paired(labA), nil)
	case verb.AgentsRegister.Name:
		for _, a := range p.agents {
			set("of an agent", a, nil)
		}
	case verb.NodesRevoke.Name:
		for _, n := range p.nodes {
			set("of a node", n, nil)
		}
	default:
		g.t.Errorf("%s: the generator does not know what its id is of: teach ids", v.Name)
	}
	return all
}

// cursors returns cursors that stand on what is private.
func (g *generator) cursors(v verb.Info, property string) (all []variant) {
	set := func(name string, real, twin string, realMore, twinMore request) {
		all = append(all, variant{
			of: property, name: name, same: []pair{{real, twin}},
			real: request{property: real}.with(realMore), twin: request{property: twin}.with(twinMore),
		})
	}
	switch v.Name {
	case verb.List.Name:
		h := g.l.private.hypothesis
		for filter, more := range map[string]request{"": nil, h.Type: {"type": h.Type}} {
			at := verb.ListCursor{At: h.CreatedAt, Type: h.Type, ID: h.ID}
			none := at
			none.ID = twin(h.ID)
			set("of an artifact", verb.EncodeCursor(at, filter), verb.EncodeCursor(none, filter), more, more)
		}
	case verb.AgentsList.Name:
		set("of an agent", verb.EncodeNameCursor(ada, "agents\n\n"), verb.EncodeNameCursor(twin(ada), "agents\n\n"), nil, nil)
	case verb.ScopesMembers.Name:
		for _, scope := range []string{labA, labB} {
			set("of a member of "+scope, verb.EncodeNameCursor(ada, "members "+scope), verb.EncodeNameCursor(twin(ada), "members "+twin(scope)),
				request{"scope": scope}, request{"scope": twin(scope)})
		}
	default:
		g.t.Errorf("%s: the generator does not know what its cursor stands on: teach cursors", v.Name)
	}
	return all
}
