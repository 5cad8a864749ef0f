package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// remoteFlags say which hub or node a command talks to, and as whom.
type remoteFlags struct {
	url   string
	token string
	open  bool // a token may be left out: some servers let anyone read
}

func (r *remoteFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.url, "hub", "http://"+defaultHubAddr, "URL of the hub or node")
	cmd.Flags().StringVar(&r.token, "token", "", "token to call with; better given as SCIDEX_TOKEN")
}

func (r *remoteFlags) client() (*verb.Client, error) {
	u, err := url.Parse(r.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, &exitError{2, fmt.Errorf("--hub %q: give a URL such as http://%s", r.url, defaultHubAddr)}
	}
	if r.token == "" && !r.open {
		return nil, &exitError{2, errors.New("no token: give --token or set SCIDEX_TOKEN; scidex token makes one")}
	}
	return &verb.Client{URL: strings.TrimSuffix(r.url, "/"), Token: r.token, HTTP: &http.Client{Timeout: time.Minute}}, nil
}

func newCallCmd() *cobra.Command {
	var r remoteFlags
	cmd := &cobra.Command{
		Use:   "call VERB [JSON|-]",
		Short: "Call a verb of a hub or node and print its answer",
		Long: `Sends a request as JSON (- reads it from standard input) and prints the answer
as JSON. An error is printed the same way, and the exit code is 1.

docs/VERBS.md has all verbs with their fields, and the server's /openapi.json.`,
		Example: `  scidex call get '{"ref":"gene:APOE"}'
  scidex call list '{"type":"hypothesis","limit":5}'
  scidex call create - < hypothesis.json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.open = true
			client, err := r.client()
			if err != nil {
				return err
			}
			body := "{}"
			if len(args) == 2 {
				body = args[1]
			}
			if body == "-" {
				raw, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), verb.MaxBatchBytes+1))
				if err != nil {
					return fmt.Errorf("read the request: %w", err)
				}
				body = string(raw)
			}
			if !json.Valid([]byte(body)) {
				return &exitError{2, errors.New("the request is no JSON")}
			}
			var out json.RawMessage
			if err := client.Invoke(cmd.Context(), args[0], json.RawMessage(body), &out); err != nil {
				if werr := writeJSON(cmd.OutOrStdout(), artifact.AsError(err)); werr != nil {
					return werr
				}
				if r.token == "" && artifact.AsError(err).Reason == artifact.ReasonUnauthenticated {
					return &exitError{1, errors.New("no token: give --token or set SCIDEX_TOKEN; scidex token makes one")}
				}
				if e := artifact.AsError(err); e.Reason == artifact.ReasonHubUnreachable && e.RequestID == "" { // it did not answer itself
					return &exitError{1, fmt.Errorf("%s does not answer: is it running? another is given with --hub", r.url)}
				}
				return &exitError{code: 1}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", strings.TrimSpace(string(out)))
			return err
		},
	}
	r.add(cmd)
	return cmd
}
