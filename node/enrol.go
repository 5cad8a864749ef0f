package node

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// IdentityFile is the name, in a node's directory, of its key and of what it is
// enrolled as. Whoever reads it can act as the node.
const IdentityFile = "node.json"

// ErrNotEnrolled reports a directory of a node that has not joined a hub.
var ErrNotEnrolled = errors.New("the node is not enrolled: scidex node join")

// An Identity is a node's key and its enrolment at one hub.
type Identity struct {
	HubURL string   `json:"hub_url"`
	HubID  string   `json:"hub_id"`
	NodeID string   `json:"node_id"` // "" until the hub has answered
	Lab    string   `json:"lab"`
	Scopes []string `json:"scopes"`
	Seed   []byte   `json:"seed"` // of the Ed25519 key
	// Code is the hash of the code that it joined by, so that joining again with
	// another is told.
	Code artifact.Hash `json:"code_hash"`
}

// Key returns the key that the node signs its credentials with.
func (i *Identity) Key() *verb.NodeKey {
	return &verb.NodeKey{Node: i.NodeID, Private: ed25519.NewKeyFromSeed(i.Seed)}
}

// ReadIdentity returns what a node's directory is enrolled as, or ErrNotEnrolled.
func ReadIdentity(dir string) (*Identity, error) {
	i, err := readIdentity(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && i.NodeID == "" {
		return nil, ErrNotEnrolled
	}
	return i, err
}

func readIdentity(dir string) (*Identity, error) {
	path := filepath.Join(dir, IdentityFile)
	raw, err := os.ReadFile(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	i := new(Identity)
	if err := json.Unmarshal(raw, i); err != nil || len(i.Seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%s is damaged: remove it and join anew with another code", path)
	}
	return i, nil
}

func (i *Identity) write(dir string) error {
	raw, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, IdentityFile)
	side := path + ".new"
	return errors.Join(os.WriteFile(side, append(raw, '\n'), 0o600), os.Rename(side, path))
}

// Join enrols the node of a directory at a hub by a one-time code. Its key is
// made and kept first, so that joining again with the same code, after an answer
// that got lost, is safe. A directory that is enrolled stays as it is.
func Join(ctx context.Context, dir, hubURL, code string, client *http.Client) (*Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the node's directory: %w", err)
	}
	i, err := readIdentity(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		i = &Identity{HubURL: hubURL, Seed: make([]byte, ed25519.SeedSize)}
		if _, err := rand.Read(i.Seed); err != nil {
			return nil, err
		}
		if err := i.write(dir); err != nil {
			return nil, fmt.Errorf("keep the node's key: %w", err)
		}
	case err != nil:
		return nil, err
	case i.NodeID != "" && i.HubURL == hubURL && i.Code == artifact.HashBytes([]byte(code)):
		return i, nil
	case i.NodeID != "":
		return nil, fmt.Errorf("%s is enrolled already, at %s as %s for %s; the code was not used: to enrol anew, stop the node, move %s away and join again",
			dir, i.HubURL, i.NodeID, strings.Join(i.Scopes, ", "), filepath.Join(dir, IdentityFile))
	}
	i.HubURL = hubURL
	public, ok := i.Key().Private.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("the node's key has no public half")
	}
	e, err := enrol(ctx, hubURL, verb.EnrolRequest{Code: code, PublicKey: base64.StdEncoding.EncodeToString(public)}, client)
	if err != nil {
		return nil, err
	}
	i.HubID, i.NodeID, i.Lab, i.Scopes, i.Code = e.HubID, e.NodeID, e.Lab, e.Scopes, artifact.HashBytes([]byte(code))
	return i, i.write(dir)
}

func enrol(ctx context.Context, hubURL string, in verb.EnrolRequest, client *http.Client) (e verb.Enrolment, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return e, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hubURL+verb.EnrolPath, bytes.NewReader(body))
	if err != nil {
		return e, err
	}
	req.Header.Set("Content-Type", "application/json")
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return e, fmt.Errorf("%s does not answer: is the hub running, and the URL right? (%w)", hubURL, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return e, fmt.Errorf("ask the hub: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		refused := new(artifact.Error)
		if json.Unmarshal(raw, refused) == nil && refused.Code != "" {
			return e, refused
		}
		return e, fmt.Errorf("%s answered %s: is it a hub?", hubURL, resp.Status)
	}
	if err := json.Unmarshal(raw, &e); err != nil || e.NodeID == "" {
		return e, fmt.Errorf("%s answered with no enrolment: is it a hub?", hubURL)
	}
	return e, nil
}
