package verb

import "time"

// The verbs on nodes: the replicas that labs run.
var (
	NodesInvite = Verb[NodesInviteRequest, InviteResult]{
		Name:    "nodes/invite",
		Summary: "Make a code by which a lab's node enrols, once.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Admin}, Where: InCommons},
	}
	NodesList = Verb[NodesListRequest, NodesListResponse]{
		Name:    "nodes/list",
		Summary: "List the enrolled nodes: their scopes and when they were last seen.",
		Effect:  Read, // by the hub alone: no replica knows of others
		Needs:   Needs{AnyOf: []Permission{Admin}, Where: InCommons},
	}
	NodesRevoke = Verb[NodesRevokeRequest, NodeResult]{
		Name:    "nodes/revoke",
		Summary: "End a node's enrolment: it is fed no more, and no call that it forwards is taken.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Admin}, Where: InCommons},
	}
)

// EnrolPath is the door at which a node enrols: POST an [EnrolRequest], without a
// token.
const EnrolPath = "/nodes/enrol"

// An EdgeNode is a node that is, or was, enrolled.
type EdgeNode struct {
	ID         string     `json:"id"`
	Lab        string     `json:"lab"`
	Scopes     []string   `json:"scopes"`
	EnrolledAt time.Time  `json:"enrolled_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	LastSeenAt *time.Time `json:"last_seen_at"` // to the minute
}

// NodesInviteRequest asks for a code.
type NodesInviteRequest struct {
	Lab            string   `json:"lab" jsonschema:"name of the lab, for people"`
	Scopes         []string `json:"scopes,omitempty" jsonschema:"private scopes that the node is to hold, beside commons"`
	ExpiresSeconds int      `json:"expires_seconds,omitempty" jsonschema:"how long the code holds, up to 2,592,000 (30 days); the default is 86,400 (a day)"`
	WriteOptions
}

// InviteResult is an invitation. Whoever has the code can enrol a node.
type InviteResult struct {
	Code      string    `json:"code"`
	Lab       string    `json:"lab"`
	Scopes    []string  `json:"scopes"`
	ExpiresAt time.Time `json:"expires_at"`
	Receipt
}

// NodesListRequest asks for all nodes.
type NodesListRequest struct{}

// NodesListResponse lists nodes by id.
type NodesListResponse struct {
	Nodes []EdgeNode `json:"nodes"`
}

// NodesRevokeRequest names a node.
type NodesRevokeRequest struct {
	ID string `json:"id"`
	WriteOptions
}

// NodeResult tells how a node is after a write.
type NodeResult struct {
	Node EdgeNode `json:"node"`
	Receipt
}

// An EnrolRequest exchanges a code for an enrolment under the node's own key.
type EnrolRequest struct {
	Code      string `json:"code"`
	PublicKey string `json:"public_key"` // Ed25519, base64 (RFC 4648 §4)
}

// Enrolment is what a node learns when it enrols.
type Enrolment struct {
	NodeID string   `json:"node_id"`
	HubID  string   `json:"hub_id"`
	Lab    string   `json:"lab"`
	Scopes []string `json:"scopes"` // commons among them
}
