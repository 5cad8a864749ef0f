package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// controlFile says where a running node takes orders of whoever may read its
// directory, and the secret that shows it.
const controlFile = "control.json"

// ErrNoControl reports that no running node takes orders there.
var ErrNoControl = errors.New("no running node takes orders")

type control struct {
	URL    string `json:"url"`
	Secret string `json:"secret"`
}

type verifyOrder struct {
	Repair bool `json:"repair"`
}

type verifyAnswer struct {
	Report        VerifyReport `json:"report"`
	Error         string       `json:"error,omitempty"`
	NotComparable bool         `json:"not_comparable,omitempty"`
}

// ServeControl takes the orders of the operator's commands until ctx ends: on a
// loopback address of its own, which a file in the node's directory names. Two
// programs cannot write one replica, so the commands ask the one that does.
func (n *Node) ServeControl(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for orders: %w", err)
	}
	c := control{URL: "http://" + l.Addr().String(), Secret: rand.Text()}
	path := filepath.Join(n.config.Dir, controlFile)
	if err := writeControl(path, &c); err != nil {
		return errors.Join(err, l.Close())
	}
	defer os.Remove(path) //nolint:errcheck // a stale one answers nothing
	mux := http.NewServeMux()
	mux.HandleFunc("POST /verify", func(w http.ResponseWriter, req *http.Request) {
		if subtle.ConstantTimeCompare([]byte(req.Header.Get("Authorization")), []byte("Bearer "+c.Secret)) != 1 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var order verifyOrder
		if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<10)).Decode(&order); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer := n.obey(req.Context(), order)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the command may be gone
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err = <-served:
		return err
	case <-ctx.Done():
		err = srv.Close()
		<-served //nolint:errcheck // it was closed
		return err
	}
}

func (n *Node) obey(ctx context.Context, order verifyOrder) (answer verifyAnswer) {
	run := n.Verify
	if order.Repair {
		run = n.Repair
	}
	checked := n.Store()
	report, err := run(ctx)
	if err == nil && report.Equal() {
		n.checks.last.Store(&Checkup{At: time.Now().UTC(), Equal: true, Mended: report.Mended, of: checked})
	}
	answer.Report, answer.NotComparable = report, NotNow(err)
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

func writeControl(path string, c *control) error {
	raw, err := json.Marshal(c) //nolint:gosec // for the operator alone: the file's mode says so
	if err != nil {
		return err
	}
	// A file of another mode would keep it.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, raw, 0o600)
}

// AskToVerify has the node that runs on a directory verify or repair its replica.
// The error wraps [ErrNoControl] when none does.
func AskToVerify(ctx context.Context, dir string, repair bool) (report VerifyReport, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, controlFile)) //nolint:gosec // the operator names the directory
	if err != nil {
		return report, fmt.Errorf("%w: %w", ErrNoControl, err)
	}
	var c control
	if err := json.Unmarshal(raw, &c); err != nil {
		return report, fmt.Errorf("%w: %s: %w", ErrNoControl, controlFile, err)
	}
	body, err := json.Marshal(verifyOrder{repair})
	if err != nil {
		return report, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/verify", bytes.NewReader(body))
	if err != nil {
		return report, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Secret)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return report, fmt.Errorf("%w: %w", ErrNoControl, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return report, fmt.Errorf("%w: it answers %s", ErrNoControl, resp.Status)
	}
	var answer verifyAnswer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return report, fmt.Errorf("read what the node found: %w", err)
	}
	switch {
	case answer.NotComparable:
		return answer.Report, fmt.Errorf("%w: %s", ErrNotComparable, strings.TrimPrefix(answer.Error, ErrNotComparable.Error()+": "))
	case answer.Error != "":
		return answer.Report, errors.New(answer.Error)
	}
	return answer.Report, nil
}
