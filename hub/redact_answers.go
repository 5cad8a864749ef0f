package hub

import (
	"context"
	"encoding/json"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// Answers that are kept for a retry repeat what an item of a batch has lost to, and
// what a candidate proposes.
const (
	keptAnswersQuery = `
		SELECT k.actor, k.key, k.response, k.proposed
		FROM (
			SELECT i.actor, i.key::text, i.response, strpos(i.response, '"candidate_id"') > 0 AND EXISTS (
				SELECT FROM candidate c
				WHERE (c.target_type = $1 AND c.target_id = $2 OR c.result_type = $1 AND c.result_id = $2)
					AND strpos(i.response, '"candidate_id":"' || c.id || '"') > 0) AS proposed
			FROM idempotency i) k
		WHERE k.proposed OR strpos(k.response, '"version_conflict"') > 0`
	rewriteAnswersQuery = `
		UPDATE idempotency i SET response = k.response
		FROM unnest($1::text[], $2::text[], $3::text[]) AS k (actor, key, response)
		WHERE i.actor = k.actor AND i.key = k.key::uuid`
)

// keptAnswers are answers as they are to be kept from now on.
type keptAnswers struct{ actors, keys, responses []string }

// answersWithout reads the kept answers that repeat an artifact's content, and takes
// it out of them. The artifact is locked: no write adds one meanwhile.
func answersWithout(ctx context.Context, db querier, ref artifact.Ref) (k keptAnswers, err error) {
	rows, err := db.Query(ctx, keptAnswersQuery, ref.Type, ref.ID)
	if err != nil {
		return k, err
	}
	defer rows.Close()
	for rows.Next() {
		var actor, key, response string
		var proposed bool
		if err := rows.Scan(&actor, &key, &response, &proposed); err != nil {
			return k, err
		}
		without, err := answerWithout([]byte(response), ref, proposed)
		if err != nil {
			return k, err
		}
		if without == nil {
			continue
		}
		k.actors, k.keys, k.responses = append(k.actors, actor), append(k.keys, key), append(k.responses, string(without))
	}
	return k, rows.Err()
}

// answerWithout returns an answer without what it repeats of an artifact, nil when it
// repeats nothing. Proposed means that it is of a candidate that would change it or has
// made it, of which the answer, given before that was decided, may not tell.
func answerWithout(response []byte, ref artifact.Ref, proposed bool) ([]byte, error) {
	var c verb.Candidate
	if err := json.Unmarshal(response, &c); proposed && err == nil && c.CandidateID != "" {
		c.Proposal = verb.Proposal{Title: redactedTitle, Content: json.RawMessage("{}")}
		c.Reason = ""
		if c.DecisionReason != "" {
			c.DecisionReason = redactedTitle
		}
		return json.Marshal(c)
	}
	var answer verb.BatchResult
	if err := json.Unmarshal(response, &answer); err != nil || !forget(&answer, ref) {
		return nil, nil //nolint:nilerr // another verb's says nothing of a conflict
	}
	return json.Marshal(answer)
}

// forget takes out of a batch's answer what the items that lost to a version of an
// artifact say of it, and reports whether any did.
func forget(answer *verb.BatchResult, ref artifact.Ref) (any bool) {
	for _, item := range answer.Items {
		if item.Error == nil || item.Error.Conflict == nil {
			continue
		}
		c := item.Error.Conflict
		if c.Current == nil || c.Current.Ref.Current() != ref {
			continue
		}
		c.Current.Title, c.Current.Content, c.Diff, c.Merge = redactedTitle, nil, nil, nil
		any = true
	}
	return any
}
