package node

import (
	"context"
	"database/sql"
	"errors"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

func (s *Store) get(ctx context.Context, in verb.GetRequest) (out verb.GetResponse, err error) {
	if err := in.Check(); err != nil {
		return out, err
	}
	if in.Plain() {
		err = s.readOne(ctx, nil, &in, &out)
	} else {
		err = s.oneState(ctx, func(tx *sql.Tx) error { return s.getMore(ctx, tx, &in, &out) })
	}
	if err != nil {
		return verb.GetResponse{}, s.absent(err, in.Ref)
	}
	return out, nil
}

// oneState runs reads that see the same commits. A read that is one statement needs
// none.
func (s *Store) oneState(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.readers.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it only read
	return f(tx)
}

// readOne reads what a ref names, in a transaction or without, or returns
// [sql.ErrNoRows] when it is not there for the caller.
func (s *Store) readOne(ctx context.Context, tx *sql.Tx, in *verb.GetRequest, out *verb.GetResponse) error {
	if in.Ref.Type == replicate.LinkType || in.Ref.Type == replicate.SignalType {
		return s.readAddressed(ctx, tx, in, out)
	}
	query, args := &s.read.get, []any{in.Ref.Type, in.Ref.ID, in.WithContent()}
	switch {
	case in.Ref.IsPinned():
		query, args = &s.read.getPinned, append(args, in.Ref.Hash[:])
	case in.Follow:
		query = &s.read.getFollowed
	}
	// One row by its key: watching ctx would cost more than reading it.
	row, err := query.row(context.WithoutCancel(ctx), tx, args...)
	if err != nil {
		return err
	}
	return s.scanVersion(row, out)
}

// scanVersion reads a row of an artifact with its provenance.
func (s *Store) scanVersion(row *sql.Row, out *verb.GetResponse) (err error) {
	var provenance []byte
	out.Artifact, err = scanArtifact(row.Scan, &out.AsOf, &provenance)
	out.Artifact.Provenance = provenance
	s.upgrades.Load().Beside(&out.Artifact)
	return err
}

// getMore answers a get that asks for more than the artifact as it is now.
func (s *Store) getMore(ctx context.Context, tx *sql.Tx, in *verb.GetRequest, out *verb.GetResponse) error {
	if in.AsOfSeq > 0 {
		return s.readAsOf(ctx, tx, in, out)
	}
	if err := s.readOne(ctx, tx, in, out); err != nil {
		return err
	}
	ref := out.Artifact.Ref.Current()
	if in.IncludeLinks {
		out.Links = new(verb.GetLinks)
		for _, r := range out.Links.Requests(ref) {
			page := verb.LinksResponse{}
			if err := s.linksIn(ctx, tx, &r, &page); err != nil {
				return err
			}
			out.Links.Add(r, &page)
		}
	}
	switch {
	case !in.IncludeSignals:
	case ref.Type == replicate.LinkType || ref.Type == replicate.SignalType:
		out.Signals = []artifact.SignalSummary{} // there are none on those
	default:
		signals := verb.SignalsResponse{}
		if err := s.signalsIn(ctx, tx, &verb.SignalsRequest{Ref: ref}, &signals); err != nil {
			return err
		}
		out.Signals = signals.Signals
	}
	return nil
}

func (s *Store) diff(ctx context.Context, in verb.DiffRequest) (out verb.DiffResponse, err error) {
	var sides [2]verb.GetResponse
	err = s.oneState(ctx, func(tx *sql.Tx) error {
		for i, ref := range []artifact.Ref{in.RefA, in.RefB} {
			err := s.readOne(ctx, tx, &verb.GetRequest{Ref: ref}, &sides[i])
			if errors.Is(err, sql.ErrNoRows) {
				return s.notFoundAt(ref, [...]string{"/ref_a", "/ref_b"}[i])
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	out.AsOf = sides[0].AsOf
	return out, out.Place(sides[0].Artifact, sides[1].Artifact)
}
