package replicate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 60e6, time.UTC)

// awkward is text that encoders are known to disagree on.
const awkward = "\u2028 \u2029 \\u2028 \\\\u2029 \"q\" <&> é 😀 \x01\b\f\n\r\t\x7f/"

// samples holds one of each type of data, with awkward text wherever there is any.
func samples() map[string]any {
	score := 1.0 / 3
	raw := json.RawMessage(`{"a":"\u0001<&>` + "\u2028" + `\\u2028"}`)
	return map[string]any{
		"head": replicate.Head{
			ContentHash: artifact.Hash{1}, CreatedAt: at, CreatedBy: awkward, ID: awkward, IsLatest: true, QualityScore: &score, Revision: 7,
			SchemaVersion: 1, Scope: awkward, State: awkward, SupersededBy: awkward, Title: awkward, Type: "paper", UpdatedAt: at, UpdatedBy: awkward,
		},
		"empty head": replicate.Head{},
		"revision": replicate.Revision{
			ContentHash: artifact.Hash{1}, CreatedAt: at, CreatedBy: awkward, ID: awkward, Note: awkward, Revision: 7, SchemaVersion: 1, Scope: awkward, State: awkward, Title: awkward, Type: "paper",
			Provenance: replicate.Provenance{
				ActorID: awkward, ActorKind: "human", Import: true, ParentSessionID: awkward, RequestID: awkward, SessionID: awkward, TaskID: awkward, Verb: awkward,
				Delegation: []artifact.DelegationStep{{ActorID: awkward, SessionID: awkward, TaskID: awkward}, {ActorID: "b"}},
			},
		},
		"empty revision": replicate.Revision{},
		"link":           replicate.Link{At: at, By: awkward, Evidence: raw, EvidenceRefs: []string{awkward, ""}, From: awkward, ID: awkward, Predicate: awkward, Scope: awkward, To: awkward},
		"empty link":     replicate.Link{},
		"signal": replicate.Signal{
			Aggregate: artifact.NewAggregate("vote", awkward, 3, 2, artifact.Decimal{}, artifact.Decimal{}), At: at, By: awkward, Dimension: awkward, ID: awkward, Kind: awkward,
			Metadata: raw, Reason: awkward, Ref: awkward, Scope: awkward, Value: "-0.125", Voter: awkward, VoterKind: "human", Weight: "1",
		},
		"empty signal": replicate.Signal{},
		"schema":       replicate.Schema{CreatedAt: at, Document: raw, SchemaVersion: 2, Type: "paper"},
		"scope":        replicate.Scope{CreatedAt: at, ID: awkward, Title: awkward},
	}
}

func TestEncodeIsCanonical(t *testing.T) {
	for name, data := range samples() {
		t.Run(name, func(t *testing.T) {
			got, hash, err := replicate.Encode(data)
			if err != nil {
				t.Fatal(err)
			}
			want, err := jcs.Transform(got)
			if err != nil {
				t.Fatalf("Encode = %s: %v", got, err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("Encode is not canonical (-want +got)\n%s", diff)
			}
			if hash != artifact.HashBytes(want) {
				t.Errorf("hash = %s, want that of %s", hash, want)
			}
		})
	}
}

// sampleRows returns a row of each kind of data, in order.
func sampleRows(tb testing.TB) (rows []replicate.Row) {
	tb.Helper()
	names := []string{"head", "revision", "link", "signal", "schema", "scope"}
	for i, name := range names {
		data, hash, err := replicate.Encode(samples()[name])
		if err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, replicate.Row{
			Seq: artifact.Seq(i + 11), Prev: artifact.Seq(i), Commit: artifact.Seq(10 + len(names)), Scope: awkward, Kind: name, Op: replicate.Put, Ref: awkward, Revision: i, Hash: hash, At: at, Data: data,
		})
	}
	rows[1].Content = json.RawMessage(`{"a":"` + "\u2028" + `<&>\\u2028"}`)
	rows[2].Event = &replicate.RowEvent{Type: "link.created", Ref: awkward, ActorID: awkward, ActorKind: "human", Payload: json.RawMessage(`{"n":[1,2]}`)}
	rows[3].Op, rows[3].Data, rows[3].PrevHash, rows[3].Hash = replicate.Delete, nil, rows[3].Hash, artifact.Hash{}
	return rows
}

func TestDecodeFrame(t *testing.T) {
	rows := sampleRows(t)
	page := replicate.Page{From: 10, To: 16, Chain: artifact.Hash{9}, Head: 20}
	for i := range rows {
		page.Rows = append(page.Rows, rows[i].AppendJSON(nil))
	}
	line := page.Line()
	if n := bytes.IndexByte(line, '\n'); n != len(line)-1 {
		t.Fatalf("a page's line has a newline at %d of %d", n, len(line))
	}
	got, err := replicate.DecodeFrame(line)
	want := replicate.Frame{Type: replicate.FramePage, From: 10, To: 16, Chain: artifact.Hash{9}, Head: 20, Rows: rows}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("DecodeFrame: %v (-want +got)\n%s", err, diff)
	}
	t.Run("refuses", func(t *testing.T) {
		for name, spoil := range map[string]func(*replicate.Page, []replicate.Row){
			"data that is not what its hash says": func(_ *replicate.Page, rows []replicate.Row) { rows[0].Data = json.RawMessage(`{}`) },
			"rows out of order":                   func(_ *replicate.Page, rows []replicate.Row) { rows[1].Seq = 11 },
			"a row before the page":               func(p *replicate.Page, _ []replicate.Row) { p.From = 11 },
			"a row beyond the page":               func(p *replicate.Page, _ []replicate.Row) { p.To = 15 },
			"a row beyond its commit":             func(_ *replicate.Page, rows []replicate.Row) { rows[5].Commit = 15 },
			"a row that follows itself":           func(_ *replicate.Page, rows []replicate.Row) { rows[2].Prev = 13 },
			"a page that goes back":               func(p *replicate.Page, rows []replicate.Row) { p.From, p.To = 30, 10 },
		} {
			rows, p := sampleRows(t), replicate.Page{From: 10, To: 16}
			spoil(&p, rows)
			for i := range rows {
				p.Rows = append(p.Rows, rows[i].AppendJSON(nil))
			}
			if _, err := replicate.DecodeFrame(p.Line()); err == nil {
				t.Errorf("DecodeFrame takes %s", name)
			}
		}
		for _, line := range []string{``, `{}`, `{"type":"hello"}`, `{"type":"other"}`, `[]`, `{"type":"page","from":2,"to":1}`} {
			if _, err := replicate.DecodeFrame([]byte(line)); err == nil {
				t.Errorf("DecodeFrame takes %s", line)
			}
		}
	})
}

// FuzzDecodeFrame checks that no line makes the decoder panic, and that the rows
// of a line that it takes come back from their own wire form.
func FuzzDecodeFrame(f *testing.F) {
	rows := sampleRows(f)
	page := replicate.Page{From: 10, To: 16, Head: 20}
	for i := range rows {
		page.Rows = append(page.Rows, rows[i].AppendJSON(nil))
	}
	f.Add(page.Line())
	f.Add([]byte(`{"type":"hb","from":1,"to":2,"head":3,"at":"2026-01-02T03:04:05.060Z"}`))
	f.Add([]byte(`{"type":"hello","hello":{"hub_id":"h","epoch":1,"scopes":["commons"]}}`))
	f.Add([]byte(`{"type":"page","to":9,"rows":[{"seq":1,"commit":2,"op":"D","event":{"payload":null}},{}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		frame, err := replicate.DecodeFrame(line)
		if err != nil || frame.Type != replicate.FramePage || len(frame.Rows) == 0 {
			return
		}
		p := replicate.Page{From: frame.From, To: frame.To, Head: frame.Head, Chain: frame.Chain}
		for i := range frame.Rows {
			r := &frame.Rows[i]
			if r.Event != nil && r.Event.Payload == nil {
				return // the hub writes no event without one
			}
			// Times of a year beyond 9999 and fractions of a millisecond are no hub's.
			if r.At = r.At.UTC().Truncate(time.Millisecond); r.At.Year() > 9999 || r.At.Year() < 0 {
				return
			}
			p.Rows = append(p.Rows, r.AppendJSON(nil))
		}
		again, err := replicate.DecodeFrame(p.Line())
		if err != nil {
			t.Fatalf("DecodeFrame(%s): %v", p.Line(), err)
		}
		if diff := cmp.Diff(frame.Rows, again.Rows); diff != "" || again.From != frame.From || again.To != frame.To || again.Chain != frame.Chain {
			t.Errorf("rows come back as others (-sent +read)\n%s", diff)
		}
	})
}

func TestSums(t *testing.T) {
	rows := sampleRows(t)
	for i := range rows {
		rows[i].Kind = []string{replicate.KindArtifact, replicate.KindRevision, replicate.KindLink, replicate.KindSignal, replicate.KindSchema, replicate.KindScope}[i]
		rows[i].Ref = "paper:p1"
	}
	sums := make(replicate.Sums)
	for i := range rows {
		sums.Apply(&rows[i], false)
	}
	if d := sums.Digest(16); len(d.Entries) != 5 || !slices.IsSortedFunc(d.Entries, func(a, b replicate.DigestSum) int { return a.Compare(b.DigestKey) }) {
		t.Errorf("Digest = %+v, want head, revision, link, signal and event", d.Entries)
	}
	for i := range rows {
		sums.Apply(&rows[i], true)
	}
	if d := sums.Digest(10); len(d.Entries) != 0 {
		t.Errorf("undone, Digest = %+v, want none", d.Entries)
	}
}

// A script is a source whose streams end as told, and a sink that takes note.
type script struct {
	start  time.Time
	ends   []error         // of each stream, the last for all others too
	frames int             // in each stream
	calls  []time.Duration // when each stream began
	aborts int
	refuse error // of each Apply
}

func (s *script) Follow(ctx context.Context, _ replicate.Position, handle func(replicate.Frame) error) error {
	end := s.ends[min(len(s.calls), len(s.ends)-1)]
	s.calls = append(s.calls, time.Since(s.start))
	for i := range s.frames {
		time.Sleep(time.Millisecond)
		if err := handle(replicate.Frame{Type: replicate.FrameBeat, To: artifact.Seq(i), Head: 7}); err != nil {
			return fmt.Errorf("handle: %v", err) //nolint:errorlint // a source may hide it
		}
	}
	if end == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return end
}

func (s *script) Position(context.Context) (replicate.Position, error) {
	return replicate.Position{}, nil
}
func (s *script) Hello(context.Context, replicate.Hello) error { return nil }
func (s *script) Apply(context.Context, replicate.Batch) error { return s.refuse }
func (s *script) Abort(context.Context)                        { s.aborts++ }

func TestFollower(t *testing.T) {
	broken := errors.New("broken")
	run := func(t *testing.T, s *script, lasts time.Duration) (status []replicate.Status, err error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		s.start = time.Now()
		f := &replicate.Follower{Source: s, Sink: s, Log: slog.New(slog.DiscardHandler), Status: func(st replicate.Status) { status = append(status, st) }}
		err = f.Run(ctx)
		if s.aborts != len(s.calls) {
			t.Errorf("%d streams ended with %d aborts", len(s.calls), s.aborts)
		}
		return status, err
	}
	t.Run("waits longer each time, within bounds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{ends: []error{broken}}
			status, err := run(t, s, 10*time.Minute)
			if err != nil {
				t.Errorf("Run = %v, want nil at the end of its context", err)
			}
			wait := 100 * time.Millisecond
			for i := range s.calls[1:] {
				if got := s.calls[i+1] - s.calls[i]; got < wait/2 || got > 3*wait/2 {
					t.Errorf("pause %d is %v, want %v to %v", i, got, wait/2, 3*wait/2)
				}
				wait = min(2*wait, 5*time.Second)
			}
			if n := len(s.calls); n < 80 || n > 250 {
				t.Errorf("%d tries in ten minutes, want some 120", n)
			}
			if last := status[len(status)-1]; last.Connected || !errors.Is(last.Err, broken) {
				t.Errorf("status = %+v, want why it broke", last)
			}
		})
	})
	t.Run("begins anew after a stream that worked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{ends: []error{broken}, frames: 3}
			status, err := run(t, s, time.Minute)
			if err != nil {
				t.Errorf("Run = %v", err)
			}
			for i := range s.calls[1:] {
				if pause := s.calls[i+1] - s.calls[i] - 3*time.Millisecond; pause > 150*time.Millisecond {
					t.Errorf("pause %d is %v, want the least", i, pause)
				}
			}
			if first := status[0]; !first.Connected || first.Head != 7 || first.Heard.IsZero() {
				t.Errorf("first status = %+v, want connected with head 7", first)
			}
		})
	})
	t.Run("ends when the source cannot resume it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gone := &artifact.Error{Code: artifact.CodeNotFound, Reason: artifact.ReasonCursorExpired}
			s := &script{ends: []error{broken, gone}}
			if _, err := run(t, s, time.Minute); !errors.Is(err, gone) || len(s.calls) != 2 {
				t.Errorf("Run = %v after %d streams, want cursor_expired after 2", err, len(s.calls))
			}
		})
	})
	t.Run("ends when the sink refuses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{ends: []error{nil}, frames: 1, refuse: errors.New("disk full")}
			if _, err := run(t, s, time.Minute); !errors.Is(err, s.refuse) || len(s.calls) != 1 {
				t.Errorf("Run = %v after %d streams, want the sink's error after 1", err, len(s.calls))
			}
		})
	})
	t.Run("ends in peace amid a stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &script{ends: []error{nil}, frames: 1}
			if _, err := run(t, s, time.Second); err != nil || time.Since(s.start) != time.Second {
				t.Errorf("Run = %v after %v, want nil after a second", err, time.Since(s.start))
			}
		})
	})
}
