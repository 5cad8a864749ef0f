package rights_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// newDuels makes a hub whose hypotheses meet in duels, before anybody reads its log.
func newDuels(t *testing.T) *world {
	t.Helper()
	db := pgtest.New(t, initHub)
	for _, q := range []string{
		`UPDATE schema_registry SET document = replace(document, '"signals":{', '"signals":{"duel":{"aggregation":"append","values":[0,0.5,1]},') WHERE artifact_type = 'hypothesis'`,
		`UPDATE feed.change SET data = replace(data, '"signals":{', '"signals":{"duel":{"aggregation":"append","values":[0,0.5,1]},') WHERE kind = 'schema' AND ref = 'schema:hypothesis'`,
		`UPDATE feed.change SET hash = sha256(convert_to(data, 'UTF8')) WHERE kind = 'schema' AND ref = 'schema:hypothesis'`,
	} {
		if _, err := db.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return newPairOn(t, db)
}

// summed returns what signals answers at hub and node, by kind and dimension.
func (w *world) summed(t *testing.T, token string, r request) map[string]artifact.SignalSummary {
	t.Helper()
	a := w.alike(t, token, "signals", r.with(request{"at": "2030-01-31T00:00:00Z"}))
	var out verb.SignalsResponse
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
		t.Fatalf("signals %s = %d %s", text(r), a.status, a.body)
	}
	all := make(map[string]artifact.SignalSummary)
	for _, s := range out.Signals {
		all[strings.TrimSuffix(s.Kind+" "+s.Dimension, " ")] = s
	}
	return all
}

func near(a *float64, b float64) bool { return a != nil && math.Abs(*a-b) < 1e-9 }

// TestSignalSummaries checks what is told of each kind of signal.
func TestSignalSummaries(t *testing.T) {
	w := newDuels(t)
	as := func(agent string) *verb.Client { return w.client(t, atHub, agent, nil, verb.Viewer, verb.Contributor) }
	signal := func(agent, id, kind, dimension, value string, metadata string) error {
		in := verb.SignalRequest{Ref: "hypothesis:" + id, Kind: kind, Dimension: dimension, Value: json.Number(value)}
		if metadata != "" {
			in.Metadata = json.RawMessage(metadata)
		}
		_, err := verb.Signal.Call(t.Context(), as(agent), in)
		return err
	}
	for _, s := range [][]string{
		{"ada", "vote", "", "1", ""},
		{"bob", "vote", "", "-1", ""},
		{"ada", "vote", "", "0", ""}, // ada's last counts
		{"ada", "rank", "novelty", "0.5", ""},
		{"bob", "rank", "novelty", "1", ""},
		{"ada", "rank", "feasibility", "0.25", ""},
		{"ada", "fund", "", "4", ""},
		{"ada", "fund", "", "5", ""},
		{"bob", "fund", "", "16", ""},
		{"ada", "calibration", "", "0.8", `{"outcome":1}`},
		{"ada", "calibration", "", "0.5", `{"outcome":0}`},
		{"ada", "calibration", "", "0.9", ""},
		{"ada", "duel", "", "1", `{"opponent":"hypothesis:i"}`},
	} {
		if err := signal(s[0], "h", s[1], s[2], s[3], s[4]); err != nil {
			t.Fatalf("%v: %v", s, err)
		}
	}
	out := w.token(t, "out", nil, verb.Viewer)
	got := w.summed(t, out, request{"ref": "hypothesis:h"})
	if len(got) != 6 {
		t.Errorf("%d kinds and dimensions, want 6: %v", len(got), got)
	}
	if v := got["vote"]; v.Count != 2 || v.Voters != 2 || v.Sum != "-1" || !near(v.Mean, -0.5) || !near(v.Min, -1) || !near(v.Max, 0) || v.Aggregation != "replace" {
		t.Errorf("votes = %+v", v)
	}
	if bars := got["vote"].Histogram; len(bars) != 3 || text(bars) != `[{"value":-1,"count":1},{"value":0,"count":1},{"value":1,"count":0}]` {
		t.Errorf("votes by value = %s", text(bars))
	}
	if bars := got["rank novelty"].Histogram; len(bars) != 10 || text(bars[5]) != `{"from":0.5,"to":0.6,"count":1}` || text(bars[9]) != `{"from":0.9,"to":1,"count":1}` || bars[4].Count != 0 {
		t.Errorf("ranks by range = %s", text(bars))
	}
	if bars := got["fund"].Histogram; bars != nil {
		t.Errorf("funds, which have no range, by %s", text(bars))
	}
	if v := got["rank novelty"]; v.Count != 2 || !near(v.Mean, 0.75) || !near(v.DecayedMean, 0.75) || v.QuadraticTotal != nil {
		t.Errorf("ranks = %+v", v)
	}
	if v := got["fund"]; v.Count != 3 || v.Voters != 2 || v.Sum != "25" || !near(v.QuadraticTotal, 49) || v.Currency != "scidex_token" {
		t.Errorf("funds = %+v", v)
	}
	if v := got["calibration"]; v.Brier == nil || v.Brier.Forecasts != 2 || !near(v.Brier.Mean, (0.04+0.25)/2) || v.Count != 3 {
		t.Errorf("forecasts = %+v", v)
	}
	if v := got["duel"]; v.Elo == nil || !near(&v.Elo.Rating, 1516) || v.Elo.Place != 1 || v.Elo.Of != 2 || v.DecayedMean != nil {
		t.Errorf("duels = %+v", v)
	}
	// The other side has no duel of its own, and a place all the same.
	if v := w.summed(t, out, request{"ref": "hypothesis:i"})["duel"]; v.Elo == nil || !near(&v.Elo.Rating, 1484) || v.Elo.Place != 2 || v.Count != 0 {
		t.Errorf("the loser = %+v", v)
	}
	if v := w.summed(t, out, request{"ref": "hypothesis:j"}); len(v) != 0 {
		t.Errorf("one without signals = %v", v)
	}
	if v := w.summed(t, out, request{"ref": "hypothesis:h", "kinds": []string{"rank"}}); len(v) != 2 {
		t.Errorf("ranks alone = %v", v)
	}
	if a := w.got(t, out, request{"ref": "hypothesis:h"}); !near(a.QualityScore, (0.75+0.25)/2) || a.Revision != 1 {
		t.Errorf("the quality score is %v in revision %d", a.QualityScore, a.Revision)
	}
	if a := w.got(t, out, request{"ref": "hypothesis:i"}); a.QualityScore != nil {
		t.Errorf("without ranks the quality score is %v", *a.QualityScore)
	}
	if a := w.alike(t, out, "signals", request{"ref": "hypothesis:h", "kinds": []string{"votes"}}); a.status != 422 || !strings.Contains(a.body, `"suggestion":"vote"`) {
		t.Errorf("an unknown kind = %d %s", a.status, a.body)
	}
	for _, ref := range []string{"hypothesis:none", "hypothesis:lab-a/h", "nothing:x"} {
		if a := w.alike(t, out, "signals", request{"ref": ref}); a.status != 404 {
			t.Errorf("%s = %d %s", ref, a.status, a.body)
		}
	}
	for name, c := range map[string]struct{ id, value, metadata, path string }{
		"a result that is none": {"h", "0.7", `{"opponent":"hypothesis:i"}`, "/value"},
		"no opponent":           {"h", "1", "", "/metadata/opponent"},
		"itself":                {"h", "1", `{"opponent":"hypothesis:h"}`, "/metadata/opponent"},
		"another type":          {"h", "1", `{"opponent":"paper:p"}`, "/metadata/opponent"},
		"what is not there":     {"h", "1", `{"opponent":"hypothesis:none"}`, "/metadata/opponent"},
		"what is a lab's":       {"h", "1", `{"opponent":"hypothesis:lab-a/i"}`, "/metadata/opponent"},
		"a version":             {"h", "1", `{"opponent":"hypothesis:i@sha256:` + strings.Repeat("0", 64) + `"}`, "/metadata/opponent"},
	} {
		err := signal("ada", c.id, "duel", "", c.value, c.metadata)
		if e := artifact.AsError(err); e.Code != artifact.CodeValidationFailed || len(e.Problems) != 1 || e.Problems[0].Path != c.path {
			t.Errorf("a duel with %s = %v", name, err)
		}
	}
	if err := signal("ada", "lab-a/h", "duel", "", "0.5", `{"opponent":"hypothesis:i"}`); err != nil {
		t.Errorf("a lab's duel with what is in commons = %v", err)
	}
	if v := w.summed(t, out, request{"ref": "hypothesis:i"})["duel"]; v.Elo.Duels != 1 {
		t.Errorf("others see %d duels", v.Elo.Duels)
	}
	if v := w.summed(t, as("ada").Token, request{"ref": "hypothesis:i"})["duel"]; v.Elo.Duels != 2 {
		t.Errorf("members see %d duels", v.Elo.Duels)
	}
}

// recomputedQuery sums the rows that count anew.
const recomputedQuery = `
	WITH counting AS (
		SELECT * FROM signal WHERE kind NOT IN ('vote', 'rank')
		UNION ALL
		SELECT * FROM (SELECT DISTINCT ON (type, artifact, kind, dimension, voter) * FROM signal
			WHERE kind IN ('vote', 'rank') ORDER BY type, artifact, kind, dimension, voter, id DESC) l
	), anew AS (
		SELECT type, artifact, kind, dimension, count(*) AS n, count(DISTINCT voter) AS voters, sum(value) AS sum, sum(value * value) AS sum_sq
		FROM counting GROUP BY type, artifact, kind, dimension
	)
	SELECT count(*), count(*) FILTER (WHERE (g.n, g.voters, g.sum, g.sum_sq) IS DISTINCT FROM (a.n, a.voters, a.sum, a.sum_sq)) FROM signal_aggregate g
	FULL JOIN anew a ON a.type = g.type AND a.artifact = g.artifact AND a.kind = g.kind AND a.dimension = g.dimension`

// scoredQuery finds heads whose quality score is not the mean of the means.
const scoredQuery = `
	SELECT count(*), count(*) FILTER (WHERE a.quality_score IS NULL AND q.score IS NOT NULL OR abs(a.quality_score - q.score) > 1e-9)
	FROM artifact a LEFT JOIN (
		SELECT type, artifact, avg(sum / n) AS score FROM signal_aggregate WHERE kind = 'rank' GROUP BY type, artifact) q ON q.type = a.type AND q.artifact = a.id
	WHERE a.type = 'hypothesis'`

// TestSignalProperty sends many signals at once, and sums them anew.
func TestSignalProperty(t *testing.T) {
	w := newDuels(t)
	refs := []string{"hypothesis:h", "hypothesis:i", "hypothesis:j", "hypothesis:lab-a/h"}
	dimensions := []string{"mechanistic_plausibility", "evidence_strength", "novelty", "feasibility", "therapeutic_potential"}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := func(r *rand.Rand) verb.SignalRequest {
		in := verb.SignalRequest{Ref: refs[r.IntN(len(refs))]}
		switch r.IntN(5) {
		case 0:
			in.Kind, in.Value = "vote", json.Number(strconv.Itoa(r.IntN(3)-1))
		case 1:
			in.Kind, in.Dimension, in.Value = "rank", dimensions[r.IntN(5)], json.Number(fmt.Sprintf("0.%02d", r.IntN(100)))
		case 2:
			in.Kind, in.Value = "fund", json.Number(fmt.Sprintf("%d.%03d", r.IntN(1000), r.IntN(1000)))
		case 3:
			in.Kind, in.Value, in.Metadata = "calibration", json.Number(fmt.Sprintf("0.%d", r.IntN(10))), json.RawMessage(fmt.Sprintf(`{"outcome":%d}`, r.IntN(2)))
		default:
			in.Kind, in.Value, in.Metadata = "duel", []json.Number{"0", "0.5", "1"}[r.IntN(3)], json.RawMessage(`{"opponent":"hypothesis:i"}`)
			if in.Ref == "hypothesis:i" {
				in.Metadata = json.RawMessage(`{"opponent":"hypothesis:j"}`)
			}
		}
		return in
	}
	var wg sync.WaitGroup
	for n := range 8 {
		agent := fmt.Sprintf("voter-%d", n)
		w.grant(t, "lab-a", agent, verb.Contributor)
		c := w.client(t, atHub, agent, nil, verb.Viewer, verb.Contributor)
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			for range 25 {
				if r.IntN(4) > 0 {
					if _, err := verb.Signal.Call(t.Context(), c, random(r)); err != nil {
						t.Error(err)
					}
					continue
				}
				items := make([]verb.BatchItem, 4)
				for i := range items {
					in := random(r)
					items[i].Signal = &in
				}
				if out, err := verb.Batch.Call(t.Context(), c, verb.BatchRequest{Items: items, Atomic: true}); err != nil || !out.Committed {
					t.Errorf("batch = %+v, %v", out, err)
				}
			}
		})
	}
	wg.Wait()
	for what, query := range map[string]string{"sums": recomputedQuery, "quality scores": scoredQuery} {
		var n, wrong int
		if err := w.db.QueryRow(t.Context(), query).Scan(&n, &wrong); err != nil {
			t.Fatal(err)
		}
		if n < 6 || wrong > 0 {
			t.Errorf("%d of %d %s are not what the rows say", wrong, n, what)
		}
	}
	token := w.token(t, "voter-0", nil, verb.Viewer)
	for _, ref := range refs {
		summed := w.summed(t, token, request{"ref": ref})
		for name, s := range summed {
			rows := w.rowsOf(t, w.db, ref, s.Kind, s.Dimension)
			anew := artifact.SumSignals(rows, s.Aggregation)
			if len(rows) > 0 && (s.Count != anew.Count || s.Voters != anew.Voters || string(s.Sum) != anew.Sum.String() || !near(s.Min, anew.Min.Float()) || !near(s.Max, anew.Max.Float())) {
				t.Errorf("%s of %s = %+v, and anew %+v", name, ref, s, anew)
			}
		}
		w.got(t, token, request{"ref": ref}) // with the same quality score at both
	}
}

func (w *world) rowsOf(t *testing.T, db *pgxpool.Pool, ref, kind, dimension string) (rows []artifact.SignalRow) {
	t.Helper()
	const query = `SELECT voter, value::text FROM signal WHERE type || ':' || artifact = $1 AND kind = $2 AND dimension = $3 ORDER BY id`
	found, err := db.Query(t.Context(), query, ref, kind, dimension)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var r artifact.SignalRow
		var value string
		if err := found.Scan(&r.Voter, &value); err != nil {
			t.Fatal(err)
		}
		if r.Value, err = artifact.ParseDecimal(value); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}
