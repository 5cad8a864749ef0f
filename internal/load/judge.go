package load

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A fate is what became of an item.
type fate int

const (
	created fate = iota
	unchanged
	rejected
)

// An outcome is the fate of an item, with the faults of a rejected one as
// problems of its line.
type outcome struct {
	fate     fate
	problems []artifact.Problem
}

// judge turns an item's answer into its outcome. An old answer is one that the
// hub gave before this load.
func (it *item) judge(a *verb.BatchItemResult, old bool) outcome {
	switch {
	case a.Error != nil:
		return it.judgeError(a.Error)
	case old,
		a.Link != nil && a.Link.Idempotency == verb.IdempotencyDeduplicated,
		a.Signal != nil && a.Signal.Idempotency == verb.IdempotencyDeduplicated:
		return outcome{fate: unchanged}
	}
	return outcome{fate: created}
}

func (it *item) judgeError(e *artifact.Error) outcome {
	if e.Code == artifact.CodeVersionConflict && it.write.Create != nil && e.Conflict != nil && e.Conflict.Current != nil {
		current := e.Conflict.Current
		if it.hash(current.State) == current.Ref.Hash {
			return outcome{fate: unchanged}
		}
		return outcome{rejected, []artifact.Problem{problem("", string(e.Code), fmt.Sprintf("%s differs from what the hub has, revision %d by %s",
			it.record.ref(), current.Revision, current.ChangedBy.ID))}}
	}
	if e.Code == artifact.CodeLinkTargetMissing && it.write.Link != nil {
		return outcome{rejected, []artifact.Problem{problem(it.linkPath()+"/to", artifact.GuardTargets, "the hub has no "+it.write.Link.To)}}
	}
	if len(e.Problems) > 0 {
		return outcome{rejected, it.onLine(e.Problems)}
	}
	// An error without problems is about an artifact that the write names.
	message := e.Message
	switch {
	case e.Code == artifact.CodeNotFound && it.write.Link != nil:
		message = "the hub has no " + it.write.Link.From
	case e.Code == artifact.CodeNotFound && it.write.Signal != nil:
		message = "the hub has no " + it.write.Signal.Ref
	}
	path := ""
	switch {
	case it.write.Link != nil:
		path = it.linkPath()
	case it.write.Signal != nil && e.Code == artifact.CodeNotFound:
		path = "/links/0/to"
	}
	return outcome{rejected, []artifact.Problem{problem(path, cmp.Or(e.Reason, string(e.Code)), message)}}
}

// hash returns the content hash of the item's artifact in a state.
func (it *item) hash(state string) artifact.Hash {
	content, problems := artifact.Canonical(it.record.content, "/content")
	if problems != nil {
		return artifact.Hash{}
	}
	return artifact.ContentHash(it.record.typ, it.record.title, state, content)
}

func (it *item) linkPath() string { return "/links/" + strconv.Itoa(it.place) }

// onLine turns problems of the item's request into problems of its line.
func (it *item) onLine(problems []artifact.Problem) []artifact.Problem {
	out := make([]artifact.Problem, len(problems))
	for i, p := range problems {
		p.Path = it.linePath(p.Path)
		out[i] = p
	}
	return out
}

func (it *item) linePath(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if rest != "" {
		rest = "/" + rest
	}
	switch {
	case it.write.Link != nil:
		switch first {
		case "predicate":
			return it.linkPath() + "/rel"
		case "to":
			return it.linkPath() + "/to"
		}
		return it.linkPath()
	case it.write.Signal != nil:
		switch first {
		case "ref":
			return "/links/0/to"
		case "voter":
			return "/content/by"
		case "metadata":
			return "/content" + rest
		case "":
			return "/content"
		}
		return "/content" + path
	}
	return path
}

// itemProblems returns the problems of a refused request by item, or nil unless
// each problem is an item's.
func itemProblems(err error, items int) map[int][]artifact.Problem {
	var e *artifact.Error
	if !errors.As(err, &e) || e.Code != artifact.CodeValidationFailed || len(e.Problems) == 0 {
		return nil
	}
	by := make(map[int][]artifact.Problem)
	for _, p := range e.Problems {
		rest, ok := strings.CutPrefix(p.Path, "/items/")
		if !ok {
			return nil
		}
		index, path, deeper := strings.Cut(rest, "/")
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= items {
			return nil
		}
		if p.Path = ""; deeper {
			p.Path = "/" + path
		}
		by[i] = append(by[i], p)
	}
	return by
}
