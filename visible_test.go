package substrate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A store is a package whose queries read what belongs to scopes.
type store struct {
	dir string
	// asks are the marks of a query that asks for the caller's scopes.
	asks []string
	// others are queries that do not, by the name of their constant or function,
	// each with its reason.
	others map[string]string
}

var stores = []store{
	{
		dir:  "hub",
		asks: []string{"visible", "visibleVersion", "scope = ANY ($1)", "id = ANY ($1)", "agentKnown"},
		others: map[string]string{
			"lockWriteQuery":      "state.meet drops what the caller may not see",
			"lockOneQuery":        "state.meet drops what the caller may not see",
			"lockShareQuery":      "state.meet drops what the caller may not see",
			"presentQuery":        "whether others hold what is there; nobody is told",
			"presentOneQuery":     "whether others hold what is there; nobody is told",
			"contentQuery":        "of heads, which state.meet drops that the caller may not see",
			"basesQuery":          "loaded.view drops what the caller may not see",
			"linksQuery":          "the callers' own links",
			"signalsQuery":        "asked of heads that state.meet let pass",
			"lockWholeQuery":      "moveOp and redactOp ask for state.sees first",
			"threadQuery":         "of an artifact that moveOp has found visible",
			"wholeRevisionsQuery": "of an artifact that moveOp or redactOp has found visible",
			"wholeLinksQuery":     "of an artifact that moveOp has found visible",
			"goingQuery":          "of an artifact that moveOp has found visible",
			"hungQuery":           "of an artifact that moveOp has found visible",
			"scopesOfQuery":       "of what hangs on an artifact that moveOp has found visible",
			"headsQuery":          "state.meet drops what the caller may not see",
			"headQueryOf":         "of what moveOp asks for a right to",
			"wholeSignalsQuery":   "of an artifact that moveOp has found visible",
			"storedQuery":         "of all of a type, which an admin changes",
			"statesQuery":         "of all of a type, which an admin changes",
			"linkedQuery":         "of all of a type, which an admin changes",
			"manyQuery":           "of all of a type, which an admin changes",
			"signaledQuery":       "of all of a type, which an admin changes",
			"otherValuesQuery":    "of all of a type, which an admin changes",
			"artifactsQuery":      "of all of a type, which an admin changes; compatibility.judge tells what the caller may see",
			"notHidden":           "a condition of queries that ask by inScopes",
			"fillAgents":          "a table of fillQuery, which asks by inScopes",
			"fillSums":            "a table of fillQuery, which asks by inScopes",
			"logEnd":              "the pump reads all; feedReader.page sends what a follower may see",
			"chainQuery":          "the chain runs over all; nothing of a row is told",
			"betweenQuery":        "changes of the digest, of scopes that Digest keeps to",
			"headRangeQuery":      "of a scope that digestFor has found followed",
			"revisionRangeQuery":  "of a scope that digestFor has found followed",
			"linkRangeQuery":      "of a scope that digestFor has found followed",
			"signalRangeQuery":    "of a scope that digestFor has found followed",
			"eventRangeQuery":     "of a scope that digestFor has found followed",
			"digestQuery":         "of all scopes; Digest keeps to those that are asked for",
			"storedVersionsQuery": "of a scope that rowsFor has found followed",
			"storedLinksQuery":    "of a scope that rowsFor has found followed",
			"storedSignalsQuery":  "of a scope that rowsFor has found followed",
			"storedEventsQuery":   "of a scope that rowsFor has found followed",
			"elsewhereQuery":      "whether things that a replica holds are in other scopes; it is not told which",
			"oldestEventQuery":    "the operator's, on the database",
			"eventsDueQuery":      "which are old; nothing of a row is told",
			"goneEventsQuery":     "each scope is told of its own, in its own row of the feed",
			"logEndsQuery":        "how far the log reaches; nothing of a row is told",
			"journalQuery":        "the operator's, on the database",
			"allHeadsQuery":       "its readers ask by scope, or are the operator's",
			"allVersionsQuery":    "its readers ask by scope, or are the operator's",
			"allLinksQuery":       "its readers ask by scope, or are the operator's",
			"allSignalsQuery":     "its readers ask by scope, or are the operator's",
			"checkRevisionsQuery": "the operator's proof of the whole store",
			"checkHeadsQuery":     "the operator's proof of the whole store",
			"checkLinksQuery":     "the operator's proof of the whole store",
			"checkSignalsQuery":   "the operator's proof of the whole store",
			"checkLogQuery":       "the operator's proof of the whole store",
			"unloggedQuery":       "the operator's proof of the whole store",
			"beyondQuery":         "the operator's proof of the whole store",
			"pageEndQuery":        "the operator's proof of the whole store",
			"countedSignalsQuery": "the operator's proof of the whole store",
			"strayQuery":          "the operator's proof of the whole store",
			"facetedQuery":        "the operator's proof of the whole store",
			"keptAnswersQuery":    "it takes what is redacted out of answers; nothing of a row is told",
			"candidateColumns":    "columns of queries that ask by the candidate's scope",
			"typesQuery":          "the operator's proof of the whole store",
			"membershipsQuery":    "it fills the directory that decides",
			"load":                "an admin's, who is asked for that",
			"unindexedQuery":      "whether the index is complete; nothing of a row is told",
			"lockUnindexedQuery":  "it fills the index, which search asks by visible",
			"unvectoredFrom":      "it makes vectors, which search asks by visible",
			"lockVectoredQuery":   "it makes vectors, which search asks by visible",
			"vectoredQuery":       "it makes vectors, which search asks by visible",
			"plainVectorsQuery":   "it copies vectors, which search asks by visible",
			"seenQuery":           "whether the feed has told of the writer",
			"delegatesQuery":      "it fills the directory that decides",
			"agentColumns":        "columns of queries that ask by agentKnown, and of agentQuery",
			"handleHolderQuery":   "whether a handle is free, over the whole hub",
			"seenScopesQuery":     "of an agent that agents/update has found known",
			"MayDelegate":         "the operator's, on the database",
			"buildHeadsQuery":     "facets are made of all artifacts",
			"buildContentsQuery":  "facets are made of all artifacts",
			"scope":               "a lock; membershipOp.decide asks for the caller's right",
		},
	},
	{
		dir:  "node",
		asks: []string{"{scopes}", "json_each(?1)", "json_each(?2)"},
		others: map[string]string{
			"logEndsSQL":          "how far the events reach; nothing of a row is told",
			"predicatesOfSQL":     "its conditions are ofEnd's, which ask for the scopes",
			"eventsSQL":           "Subscription.taker drops what the caller may not see",
			"allEventsSQL":        "the digest of the whole replica, which no caller gets",
			"hashesSQL":           "the digest of the whole replica, which no caller gets",
			"agentColumns":        "columns of queries that ask for the scopes",
			"headHashesSQL":       "proves the whole replica; no caller gets it",
			"revisionHashesSQL":   "proves the whole replica; no caller gets it",
			"linkHashesSQL":       "proves the whole replica; no caller gets it",
			"signalHashesSQL":     "proves the whole replica; no caller gets it",
			"eventHashesSQL":      "proves the whole replica; no caller gets it",
			"headRowsSQL":         "proves the whole replica; no caller gets it",
			"revisionRowsSQL":     "proves the whole replica; no caller gets it",
			"linkRowsSQL":         "proves the whole replica; no caller gets it",
			"signalRowsSQL":       "proves the whole replica; no caller gets it",
			"deleteOrphanSumsSQL": "it erases",
			"redactVectorsSQL":    "it erases",
			"contentSQL":          "it fills the index, which search asks by {scopes}",
			"unindexedSQL":        "it fills the index, which search asks by {scopes}",
			"orphans":             "it erases",
			"checkCursor":         "whether a place in the log is one",
			"allMembershipsSQL":   "it fills the directory that decides",
			"allAgentsSQL":        "it fills the directory that decides",
			"headAsIsSQL":         "what of an artifact its facets depend on",
			"currentTextSQL":      "facets are made of all artifacts",
			"buildHeadsSQL":       "facets are made of all artifacts",
		},
	},
}

// reads matches a query of a table whose rows belong to scopes.
var reads = regexp.MustCompile(`(?s)SELECT.*\b(FROM|JOIN)\s+(artifact|artifact_revision|artifact_vector|vector|link|signal|event|membership|agent|agent_seen|handle|scope|candidate|candidate_version)\b`)

// TestVisibility checks that each query which reads what belongs to scopes asks
// for the caller's, or stands above with the reason why not.
func TestVisibility(t *testing.T) {
	for _, s := range stores {
		used := make(map[string]bool)
		files, err := filepath.Glob(filepath.Join(s.dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				s.check(t, file, used)
			}
		}
		for name := range s.others {
			if !used[name] {
				t.Errorf("%s: %s is no query any more that needs a reason", s.dir, name)
			}
		}
	}
}

func (s *store) check(t *testing.T, file string, used map[string]bool) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	text := func(n ast.Node) string {
		return string(source[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
	}
	query := func(name string, e ast.Expr) {
		sql := text(e)
		if !strings.Contains(sql, "`") && !strings.Contains(sql, `"`) || !reads.MatchString(sql) {
			return
		}
		for _, mark := range s.asks {
			if strings.Contains(sql, mark) {
				return
			}
		}
		if _, known := s.others[name]; known {
			used[name] = true
			return
		}
		t.Errorf("%s: the query %s reads what belongs to scopes and does not ask for the caller's", set.Position(e.Pos()), name)
	}
	function := ""
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			function = n.Name.Name
		case *ast.ValueSpec:
			for i, v := range n.Values {
				name := n.Names[i].Name
				if name == "query" || name == "known" || name == "lookup" {
					name = function
				}
				query(name, v)
			}
			return false
		case *ast.BinaryExpr:
			query(function, n)
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				query(function, n)
			}
		}
		return true
	})
}
