package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

var _ replicate.Filler = (*Hub)(nil)

// fillsAtOnce is how many pages of back-fills are read at one time: those who
// begin to copy share what is left over by those who write.
const fillsAtOnce = 2

// backfill serves GET /feed/backfill to those who begin to copy.
func (h *Hub) backfill(done <-chan struct{}) http.HandlerFunc {
	fill := &replicate.FillHandler{
		Filler: h, Logger: h.log, Done: done, Scopes: followed,
		Fail: func(w http.ResponseWriter, req *http.Request, err error) {
			verb.WriteError(req.Context(), w, h.log, callerError(err))
		},
	}
	return func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := h.whileAllowed(req.Context())
		defer cancel()
		fill.ServeHTTP(w, req.WithContext(ctx))
	}
}

// OpenFill implements [replicate.Filler].
func (h *Hub) OpenFill(ctx context.Context, r replicate.FillRequest, scopes []string) (hello replicate.FillHello, err error) {
	first, last, err := bounds(ctx, h.db)
	if err != nil {
		return hello, err
	}
	floor, err := floorOf(ctx, h.db, first)
	if err != nil {
		return hello, err
	}
	err = h.checkPosition(ctx, &replicate.Position{HubID: r.HubID, Epoch: r.Epoch, Seq: r.UpTo}, floor, last)
	if e, ok := errors.AsType[*artifact.Error](err); err != nil && (!ok || r.UpTo > 0 || e.Reason != artifact.ReasonCursorExpired) {
		return hello, err // without a place in the log, the feed takes over at the head
	}
	hello.Hello = replicate.Hello{
		HubID: h.id.hubID, Epoch: h.id.epoch, Head: last, Floor: floor,
		Schema: replicate.WireVersion, MinReader: replicate.WireVersion, BeatS: int(replicate.BeatInterval.Seconds()), Scopes: scopes,
	}
	if c, err := verb.CallerFrom(ctx); err == nil && c.NodeID != "" {
		h.noteFollower(ctx, c.NodeID, cmp.Or(r.UpTo, last)) // the log is kept from where it will follow
	}
	if err := h.db.QueryRow(ctx, eventFloorQuery).Scan(&hello.EventFloor); err != nil {
		return hello, fmt.Errorf("read up to where events are gone: %w", err)
	}
	hello.Estimate, err = h.estimate(ctx, scopes)
	return hello, err
}

// estimate returns about how many rows of each kind there are in scopes, as the
// planner expects: to count them would read them all.
func (h *Hub) estimate(ctx context.Context, scopes []string) (map[string]int64, error) {
	out := make(map[string]int64)
	for kind, query := range map[string]string{
		replicate.KindRevision: `EXPLAIN (FORMAT JSON) SELECT FROM artifact_revision WHERE scope = ANY ($1)`,
		replicate.KindArtifact: `EXPLAIN (FORMAT JSON) SELECT FROM artifact WHERE scope = ANY ($1)`,
		replicate.KindLink:     `EXPLAIN (FORMAT JSON) SELECT FROM link WHERE scope = ANY ($1)`,
		replicate.KindSignal:   `EXPLAIN (FORMAT JSON) SELECT FROM signal WHERE scope = ANY ($1)`,
		replicate.KindVector:   `EXPLAIN (FORMAT JSON) SELECT FROM artifact_vector WHERE scope = ANY ($1)`,
		replicate.KindEvent:    `EXPLAIN (FORMAT JSON) SELECT FROM event WHERE scope = ANY ($1)`,
	} {
		var raw []byte
		if err := h.db.QueryRow(ctx, query, scopes).Scan(&raw); err != nil {
			return nil, fmt.Errorf("estimate rows: %w", err)
		}
		var plans []struct {
			Plan struct {
				Rows float64 `json:"Plan Rows"`
			}
		}
		if err := json.Unmarshal(raw, &plans); err != nil || len(plans) != 1 {
			return nil, fmt.Errorf("estimate rows: %w", err)
		}
		out[kind] = int64(plans[0].Plan.Rows)
	}
	return out, nil
}

// Fill implements [replicate.Filler]. Its page is one statement of its own: no
// snapshot outlives it. The head is read after it, so that the log up to there
// leads to all that the page shows.
func (h *Hub) Fill(ctx context.Context, from replicate.Place, upTo artifact.Seq, scopes []string) (p replicate.FillPage, err error) {
	select {
	case h.fills <- struct{}{}:
		defer func() { <-h.fills }()
	case <-ctx.Done():
		return p, ctx.Err()
	}
	if from.Kind == "" {
		from.Kind = replicate.FillKinds[0]
	}
	kind := fillKinds[from.Kind]
	key, err := kind.parse(from.After)
	if err != nil {
		return p, err
	}
	args := append([]any{scopes, replicate.MaxPageRows, replicate.MaxPageBytes}, key...)
	if kind.upTo {
		args = append(args, int64(upTo))
	}
	p.Kind = from.Kind
	var last []string // the key of the last row that was looked at
	done := true
	var batch pgx.Batch
	batch.Queue(kind.query, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			f := new(filled)
			if err := kind.scan(rows, f); err != nil {
				return err
			}
			last, done = f.key, f.done
			if !f.mine || !slices.Contains(scopes, f.row.Scope) {
				continue
			}
			p.Rows = append(p.Rows, f.row.AppendJSON(nil))
		}
		return rows.Err()
	})
	batch.Queue(headQuery).QueryRow(func(row pgx.Row) error { return row.Scan(&p.Head) })
	if err := h.db.SendBatch(ctx, &batch).Close(); err != nil {
		return p, fmt.Errorf("back-fill %s: %w", from.Kind, err)
	}
	if p.Next = (&replicate.Place{Kind: from.Kind, After: last}); done {
		p.Next = from.Following()
	}
	return p, nil
}

// A filled is a row of a page.
type filled struct {
	row  replicate.Row
	key  []string
	mine bool // the follower may have it
	done bool // nothing of this kind comes after it
}

// put fills in the row of what is now as data says. Stored is the hash that the
// hub keeps of it; nil where it keeps none.
func (f *filled) put(scope, kind, ref string, revision int, data any, stored []byte) error {
	raw, hash, err := replicate.Encode(data)
	if err != nil {
		return err
	}
	if f.mine && stored != nil && artifact.Hash(stored) != hash {
		return fmt.Errorf("%s %s at the hub is not what its hash says: it was changed by another program", kind, ref)
	}
	f.row = replicate.Row{Scope: scope, Kind: kind, Op: replicate.Put, Ref: ref, Revision: revision, Hash: hash, Data: raw}
	return nil
}

// A fillKind reads pages of one kind.
type fillKind struct {
	query string
	upTo  bool // the query's last parameter is the seq up to which it reads
	// parse turns a key into parameters; nil is the start.
	parse func(key []string) ([]any, error)
	scan  func(rows pgx.Rows, f *filled) error
}

// keyOf returns what parses a key of some texts and then some numbers.
func keyOf(texts, numbers int) func([]string) ([]any, error) {
	return func(key []string) ([]any, error) {
		args := make([]any, 0, texts+numbers)
		if key == nil {
			key = append(make([]string, texts), slices.Repeat([]string{"0"}, numbers)...)
		}
		if len(key) != texts+numbers {
			return nil, invalidPlace()
		}
		for i, part := range key {
			if i < texts {
				args = append(args, part)
				continue
			}
			n, err := strconv.ParseInt(part, 10, 64)
			if err != nil {
				return nil, invalidPlace()
			}
			args = append(args, n)
		}
		return args, nil
	}
}

func invalidPlace() error {
	return &artifact.Error{Code: artifact.CodeValidationFailed, Reason: artifact.ReasonInvalidCursor, Message: "the key is not one of this kind"}
}
