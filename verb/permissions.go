package verb

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

const permissionsHead = `# Permissions

Generated from the program by ` + "`make generate`" + `; do not edit.

## Roles

| role | may |
|---|---|
| viewer | read |
| contributor | read; create, update, comment, link, signal |
| reviewer | read; decide, and move lifecycles |
| admin | read; configure: types, scopes, members, agents, nodes; move, redact, import. An admin writes no content and decides nothing |

Each role reads; beyond that none includes another. An agent may have several.

Where a role counts:

- In **commons** the permissions of the token count (its claim ` + "`permissions`" + `).
- In a **private scope** the roles of the membership count, which ` + "`scopes/grant`" + ` gives.
  What a token may do in commons it may not therefore do there, not even an admin's.
- A token's claim ` + "`scopes`" + ` narrows its memberships to the scopes that it lists. At a
  node only the scopes that the node is enrolled for count, and the hub checks that again.
- In a private scope who **created** an artifact may update it, as long as they see the
  scope. In commons it gives no right to have made something.
- **Without a token** commons is read as by a viewer, at servers that run with
  ` + "`--anonymous-read`" + `. Everything else takes a token.

What a caller may not see is answered as if it were not there: ` + "`not_found`" + `, or for a scope
to write to ` + "`validation_failed`" + `. ` + "`permission_denied`" + ` tells of what may be seen and not done.

## Verbs

One of the permissions is enough. *In the scope* is the scope of what is touched. Callers
who have none of them in any scope are refused with ` + "`permission_denied`" + ` before anything is read.

| verb | effect | takes | where | note |
|---|---|---|---|---|
`

const permissionsTypes = `
## Types

By the schemas that are shipped. A type's *lifecycle* lists its moves and, where not every
writer may make them, the roles that may; a new artifact begins in the first state, and one
created in a later state takes the role of that move.

| type | who sees it | create | update | lifecycle |
|---|---|---|---|---|
`

// Permissions returns the page docs/PERMISSIONS.md: what each bound verb takes,
// what roles mean, and what the schemas add to it.
func (r *Registry) Permissions(schemas []*artifact.Schema) []byte {
	var b bytes.Buffer
	b.WriteString(permissionsHead)
	for _, v := range r.order {
		takes, where := "any valid token", "—"
		if len(v.needs.AnyOf) > 0 {
			takes, where = strings.Join(v.needs.AnyOf, " or "), "in the scope"
		}
		if v.needs.Own {
			takes += ", or to have made it"
		}
		if v.needs.Where != InScope {
			where = "in " + string(v.needs.Where)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", v.name, v.effect, takes, where, cell(v.needs.Note))
	}
	b.WriteString(permissionsTypes)
	for _, s := range schemas {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Type, seenBy(s), createdBy(s), updatedBy(s), cell(moves(s.Lifecycle)))
	}
	return b.Bytes()
}

// cell escapes a text for a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func seenBy(s *artifact.Schema) string {
	if s.Visibility == artifact.VisibilityParticipants {
		return "its author and those it is addressed to, alone"
	}
	return "viewers of its scope"
}

func createdBy(s *artifact.Schema) string {
	switch {
	case s.Type == artifact.SchemaType:
		return Admin + "; a reviewer by a candidate"
	case s.WrittenDirectly():
		return Contributor
	case s.WritePolicy == artifact.WritePropose:
		return Contributor + ", by a candidate"
	}
	return "by other verbs (" + s.WritePolicy + ")"
}

func updatedBy(s *artifact.Schema) string {
	switch {
	case !s.WrittenDirectly(), s.Type == artifact.SchemaType:
		return createdBy(s)
	case s.Mutability != artifact.MutableWithHistory:
		return "nobody (" + string(s.Mutability) + ")"
	case s.Lifecycle == nil:
		return "contributor; in a private scope its creator"
	}
	return "contributor; in a private scope its creator; a reviewer moves the lifecycle alone"
}

func moves(l *artifact.Lifecycle) string {
	if l == nil {
		return "none"
	}
	texts := make([]string, len(l.Transitions))
	for i, t := range l.Transitions {
		from := strings.Replace(t[0], "*", "any", 1)
		texts[i] = from + " → " + t[1]
		if roles := l.Roles[t[1]]; len(roles) > 0 {
			texts[i] += " (" + strings.Join(slices.Sorted(slices.Values(roles)), " or ") + ")"
		}
	}
	return strings.Join(texts, "; ")
}
