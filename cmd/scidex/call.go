package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
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

// registry tells of the verbs; it runs none.
func registry() *verb.Registry { return new(hub.Hub).Verbs() }

func newCallCmd() *cobra.Command {
	var r remoteFlags
	var tries int
	cmd := &cobra.Command{
		Use:   "call VERB [JSON|-]",
		Short: "Call a verb of a hub or node and print its answer",
		Long: `Sends a request as JSON (- reads it from standard input) and prints the answer
as JSON.

An error is printed as JSON to standard output too, with error, details.reason and
problems. The exit code is 0 when the verb was done, 1 when it was refused, wrote nothing
of an atomic batch, or the server did not answer, and 2 when the command is wrong: flags,
or a request that is no JSON. What of a batch that is not atomic was refused, its items
say. A script looks at .retryable and .retry_after_ms, or lets --tries do that.

scidex call VERB --help shows a verb's request with an example; docs/VERBS.md has all of
them, with their answers and errors, and the server's /openapi.json.

Verbs:
` + verbList(),
		Example: `  scidex call get '{"ref":"gene:APOE"}'
  scidex call list '{"type":"hypothesis","limit":5}'
  scidex call create - < hypothesis.json
  scidex call update --help`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.open = true
			client, err := r.client()
			if err != nil {
				return err
			}
			client.Tries = tries
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
			var request json.RawMessage
			if err := json.Unmarshal([]byte(body), &request); err != nil {
				return &exitError{2, notJSON(body, err)}
			}
			var out json.RawMessage
			if err := client.Invoke(cmd.Context(), args[0], request, &out); err != nil {
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
			if _, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", strings.TrimSpace(string(out))); err != nil {
				return err
			}
			if refusedBatch(out) {
				return &exitError{code: 1}
			}
			return nil
		},
	}
	r.add(cmd)
	cmd.Flags().IntVar(&tries, "tries", 1, "how often to try while the server says that it may help; a write that may have happened is sent again only with an idempotency_key")
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c != cmd || len(cmd.Flags().Args()) == 0 {
			help(c, args)
			return
		}
		usage, err := usageOf(cmd.Flags().Arg(0))
		if err != nil {
			c.PrintErrln("scidex:", err)
			return
		}
		_, _ = io.WriteString(c.OutOrStdout(), usage) // help has no way to fail
	})
	return cmd
}

// notJSON says where a request stops to be JSON.
func notJSON(body string, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return fmt.Errorf("the request is no JSON: %w", err)
	}
	end := min(int(syntax.Offset), len(body))
	return fmt.Errorf("the request is no JSON: %w, at byte %d: %s", err, end, strings.ToValidUTF8(body[max(0, end-20):end], ""))
}

// refusedBatch reports whether an answer is that of an atomic batch that failed.
func refusedBatch(answer json.RawMessage) bool {
	var batch struct {
		Atomic bool
		Items  []struct{ Error json.RawMessage }
	}
	if json.Unmarshal(answer, &batch) != nil || !batch.Atomic {
		return false
	}
	for _, item := range batch.Items {
		if item.Error != nil {
			return true
		}
	}
	return false
}

// usageOf returns the help on a verb.
func usageOf(name string) (string, error) {
	verbs := registry()
	if usage, ok := verbs.Usage(name, verb.Examples()); ok {
		return usage, nil
	}
	var names []string
	for _, v := range verbs.Verbs() {
		names = append(names, v.Name)
	}
	if near := artifact.Nearest(name, names); near != "" {
		return "", fmt.Errorf("there is no verb %q; did you mean %s?", name, near)
	}
	return "", fmt.Errorf("there is no verb %q; scidex call --help lists them", name)
}

// verbList is a line for each verb.
func verbList() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, v := range registry().Verbs() {
		_, _ = fmt.Fprintf(t, "  %s\t%s\n", v.Name, v.Summary) // to memory
	}
	_ = t.Flush()
	return strings.TrimRight(b.String(), "\n")
}
