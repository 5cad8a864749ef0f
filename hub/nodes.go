package hub

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// An edgeNode is the data of a node's row in the log, which is in no feed: the
// other hub processes learn of nodes by it.
type edgeNode struct {
	ID        string   `json:"id"`
	PublicKey []byte   `json:"public_key"`
	Revoked   bool     `json:"revoked"`
	Scopes    []string `json:"scopes"`
}

// kindNode is the kind of such rows.
const kindNode = "node"

var _ verb.NodeKeys = (*access)(nil)

// Node implements [verb.NodeKeys].
func (a *access) Node(id string) (key ed25519.PublicKey, scopes []string, ok bool) {
	n, ok := a.nodes.Load(id)
	if !ok {
		return nil, nil, false
	}
	node := n.(*edgeNode)
	return node.PublicKey, node.Scopes, !node.Revoked
}

// codePrefix begins the codes of invitations, so that people and scanners know
// them for secrets.
const codePrefix = "scidex-join-"

// nodesInvite answers the verb of that name.
func (h *Hub) nodesInvite(ctx context.Context, in verb.NodesInviteRequest) (out verb.InviteResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	secret := make([]byte, 24)
	if _, err := rand.Read(secret); err != nil {
		return out, err
	}
	o := &inviteOp{lab: in.Lab, code: codePrefix + base64.RawURLEncoding.EncodeToString(secret), requestID: c.RequestID}
	seconds := in.ExpiresSeconds
	if seconds == 0 {
		seconds = 86_400
	}
	o.asked, o.scopes = in.Scopes, nodeScopes(in.Scopes)
	o.expires = c.Now.Add(time.Duration(seconds) * time.Second)
	return single[verb.InviteResult](ctx, h, c, &writeRequest{
		verb: verb.NodesInvite.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			var problems []artifact.Problem
			if p := artifact.CheckTitle(in.Lab, "/lab"); p != nil {
				problems = append(problems, *p)
			}
			if seconds < 1 || seconds > 2_592_000 {
				problems = append(problems, artifact.Problem{Path: "/expires_seconds", Constraint: "range", Message: "a code holds from 1 second to 30 days"})
			}
			if in.IdempotencyKey != "" {
				problems = append(problems, artifact.Problem{Path: "/idempotency_key", Constraint: "secret", Message: "an answer with a secret is not kept: ask again without a key"})
			}
			if problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			return []op{o}, nil
		},
	})
}

// nodeScopes returns scopes in order, commons among them.
func nodeScopes(private []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(append([]string{artifact.Commons}, private...))))
}

// An inviteOp keeps the hash of a code.
type inviteOp struct {
	lab, code string
	asked     []string // of scopes
	scopes    []string // in order, commons among them
	expires   time.Time
	requestID string

	known map[string]bool // scopes; loaded
}

func (o *inviteOp) needs(*needs) {}

func (o *inviteOp) load(ctx context.Context, db querier, _ *state) error {
	rows, err := db.Query(ctx, `SELECT id FROM scope WHERE id = ANY ($1)`, o.scopes)
	if err != nil {
		return err
	}
	o.known = make(map[string]bool)
	var id string
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		o.known[id] = true
		return nil
	})
	return err
}

func (o *inviteOp) decide(s *state) error {
	var problems []artifact.Problem
	for i, scope := range o.asked {
		if !o.known[scope] {
			problems = append(problems, artifact.Problem{
				Path: "/scopes/" + strconv.Itoa(i), Constraint: "scope", Value: artifact.Received(scope),
				Message: "there is no scope " + strconv.Quote(scope) + ": scopes/create makes one",
			})
		}
	}
	if problems != nil {
		return artifact.Invalid(problems...)
	}
	const insert = `
		INSERT INTO node_invite (code_hash, lab, scopes, created_at, created_by, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6)`
	hash := artifact.HashBytes([]byte(o.code))
	s.also(insert, hash[:], o.lab, o.scopes, s.caller.Now, s.caller.Actor.ID, o.expires)
	s.rows.internal = true
	ref := "node_invite:" + hex.EncodeToString(hash[:8]) // a name for the code that does not tell it
	return s.rows.emit(artifact.Commons, ref, 1, &eventOf{typ: "system.node_invited", ref: ref, payload: map[string]any{"lab": o.lab, "scopes": o.scopes}})
}

func (o *inviteOp) answer(seq artifact.Seq, token string) any {
	code := o.code
	if seq == 0 { // of a dry run: it was not kept
		code = ""
	}
	r := &verb.InviteResult{Code: code, Lab: o.lab, Scopes: o.scopes, ExpiresAt: o.expires, Receipt: verb.NewReceipt(o.requestID)}
	r.Place(seq, token, "")
	return r
}

const nodesQuery = `
	SELECT id, lab, scopes, created_at, revoked_at, last_seen_at FROM edge_node
	WHERE $1 = '' OR id = $1
	ORDER BY id`

func readNodes(ctx context.Context, db querier, id string) ([]verb.EdgeNode, error) {
	rows, err := db.Query(ctx, nodesQuery, id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (n verb.EdgeNode, err error) {
		err = row.Scan(&n.ID, &n.Lab, &n.Scopes, &n.EnrolledAt, &n.RevokedAt, &n.LastSeenAt)
		n.EnrolledAt = n.EnrolledAt.UTC()
		return n, err
	})
}

// nodesList answers the verb of that name.
func (h *Hub) nodesList(ctx context.Context, _ verb.NodesListRequest) (out verb.NodesListResponse, err error) {
	out.Nodes, err = readNodes(ctx, h.db, "")
	if out.Nodes == nil {
		out.Nodes = []verb.EdgeNode{}
	}
	return out, callerError(err)
}

// nodesRevoke answers the verb of that name.
func (h *Hub) nodesRevoke(ctx context.Context, in verb.NodesRevokeRequest) (out verb.NodeResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.NodeResult](ctx, h, c, &writeRequest{
		verb: verb.NodesRevoke.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) { return []op{&nodeRevokeOp{id: in.ID, requestID: c.RequestID}}, nil },
	})
}

// A nodeRevokeOp ends an enrolment.
type nodeRevokeOp struct {
	id        string
	requestID string

	node []verb.EdgeNode // loaded; none or one
	key  []byte
	same bool
}

func (o *nodeRevokeOp) needs(*needs) {}

func (o *nodeRevokeOp) load(ctx context.Context, db querier, _ *state) (err error) {
	if err = db.QueryRow(ctx, `SELECT public_key FROM edge_node WHERE id = $1 FOR UPDATE`, o.id).Scan(&o.key); errors.Is(err, pgx.ErrNoRows) {
		o.node = nil
		return nil
	} else if err != nil {
		return err
	}
	o.node, err = readNodes(ctx, db, o.id)
	return err
}

func (o *nodeRevokeOp) decide(s *state) error {
	if len(o.node) == 0 {
		e := artifact.NotFound(kindNode + ":" + o.id)
		e.Message = "no node has this id: nodes/list names those that there are"
		e.Problems = []artifact.Problem{{Path: "/id", Constraint: "node", Message: "no node is called " + strconv.Quote(o.id), Value: artifact.Received(o.id)}}
		return e
	}
	n := &o.node[0]
	if o.same = n.RevokedAt != nil; o.same {
		return nil
	}
	n.RevokedAt = &s.caller.Now
	s.also(`UPDATE edge_node SET revoked_at = $2 WHERE id = $1`, o.id, s.caller.Now)
	return s.putNode(edgeNode{ID: n.ID, PublicKey: o.key, Revoked: true, Scopes: n.Scopes}, "system.node_revoked")
}

func (s *state) putNode(n edgeNode, event string) error {
	s.rows.internal = true
	ref := kindNode + ":" + n.ID
	return s.rows.put(artifact.Commons, kindNode, ref, 1, noHash, n, &eventOf{typ: event, ref: ref, payload: map[string]any{"scopes": n.Scopes}})
}

func (o *nodeRevokeOp) answer(seq artifact.Seq, token string) any {
	r := &verb.NodeResult{Node: o.node[0], Receipt: verb.NewReceipt(o.requestID)}
	outcome := ""
	if o.same {
		outcome = verb.IdempotencyDeduplicated
	}
	r.Place(seq, token, outcome)
	return r
}

// enrol exchanges a code for an enrolment. The same code with the same key gives
// the same enrolment again, so a node whose answer got lost may ask once more.
func (h *Hub) enrol(ctx context.Context, in verb.EnrolRequest) (verb.Enrolment, error) {
	key, err := base64.StdEncoding.DecodeString(in.PublicKey)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return verb.Enrolment{}, artifact.Invalid(artifact.Problem{Path: "/public_key", Constraint: "ed25519", Message: "a public key is 32 bytes in base64"})
	}
	o := &enrolOp{hash: artifact.HashBytes([]byte(in.Code)), key: key}
	caller := &verb.Caller{Actor: system, Permissions: []verb.Permission{verb.Admin}, RequestID: uuid.NewString(), Now: artifact.Now()}
	w := &writeRequest{verb: "nodes/enrol", request: in, prepare: func() ([]op, error) { return []op{o}, nil }}
	if _, err := h.write(ctx, caller, w, func(*written) any { return nil }); err != nil {
		if failed, ok := errors.AsType[*opError](err); ok {
			err = failed.err
		}
		return verb.Enrolment{}, err
	}
	o.enrolment.HubID = h.id.hubID
	return o.enrolment, nil
}

// An enrolOp makes a node of a code.
type enrolOp struct {
	hash artifact.Hash
	key  []byte

	enrolment verb.Enrolment
	valid     bool // loaded
	used      bool // by this very key
}

func (o *enrolOp) needs(*needs) {}

func (o *enrolOp) load(ctx context.Context, db querier, s *state) error {
	const invite = `
		SELECT lab, scopes, expires_at, coalesce(node_id, '') FROM node_invite
		WHERE code_hash = $1
		FOR UPDATE`
	var expires time.Time
	err := db.QueryRow(ctx, invite, o.hash[:]).Scan(&o.enrolment.Lab, &o.enrolment.Scopes, &expires, &o.enrolment.NodeID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	// Read once the invitation is locked: another may have used it meanwhile.
	const node = `SELECT public_key, revoked_at IS NOT NULL FROM edge_node WHERE id = $1`
	var key []byte
	var revoked bool
	if err := db.QueryRow(ctx, node, o.enrolment.NodeID).Scan(&key, &revoked); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	o.used = o.enrolment.NodeID != "" && bytes.Equal(key, o.key) && !revoked
	o.valid = o.used || o.enrolment.NodeID == "" && s.caller.Now.Before(expires)
	return nil
}

func (o *enrolOp) decide(s *state) error {
	if !o.valid {
		return verb.Unauthenticated("the code is not valid: it may have been used or have ended; ask for another: scidex hub invite")
	}
	if o.used {
		return nil
	}
	o.enrolment.NodeID = "n-" + newUUID()
	const insert = `
		INSERT INTO edge_node (id, lab, public_key, scopes, created_at, created_by) VALUES ($1, $2, $3, $4, $5, $6)`
	s.also(insert, o.enrolment.NodeID, o.enrolment.Lab, o.key, o.enrolment.Scopes, s.caller.Now, s.caller.Actor.ID)
	s.also(`UPDATE node_invite SET node_id = $2 WHERE code_hash = $1`, o.hash[:], o.enrolment.NodeID)
	return s.putNode(edgeNode{ID: o.enrolment.NodeID, PublicKey: o.key, Scopes: o.enrolment.Scopes}, "system.node_enrolled")
}

func (o *enrolOp) answer(artifact.Seq, string) any { return nil }

// serveEnrol is the door at which nodes enrol.
func (h *Hub) serveEnrol(w http.ResponseWriter, req *http.Request) {
	var in verb.EnrolRequest
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 4<<10))
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		err = d.Decode(&in)
	}
	if err != nil {
		verb.WriteError(req.Context(), w, h.log, artifact.Invalid(artifact.Problem{Constraint: "json", Message: "the body is {code, public_key}"}))
		return
	}
	enrolment, err := h.enrol(req.Context(), in)
	if err != nil {
		verb.WriteError(req.Context(), w, h.log, callerError(err))
		return
	}
	h.log.InfoContext(req.Context(), "node enrolled", "node", enrolment.NodeID, "lab", enrolment.Lab, "scopes", enrolment.Scopes)
	w.Header().Set("Cache-Control", "no-store")
	verb.WriteJSON(w, http.StatusOK, enrolment)
}

// sawNode notes, at most once a minute, that a node is there.
func (h *Hub) sawNode(ctx context.Context, id string) {
	const update = `
		UPDATE edge_node SET last_seen_at = now()
		WHERE id = $1 AND (last_seen_at IS NULL OR last_seen_at < now() - interval '1 minute')`
	if _, err := h.db.Exec(ctx, update, id); err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "when a node was seen could not be noted", "node", id, "err", err)
	}
}

// nodeOf takes the row of a node into the directory.
func (a *access) nodeOf(r *logRow) error {
	var n edgeNode
	if err := json.Unmarshal(r.Data, &n); err != nil {
		return fmt.Errorf("node %s: %w", strings.TrimPrefix(r.Ref, kindNode+":"), err)
	}
	a.nodes.Store(n.ID, &n)
	a.Tell()
	return nil
}
