// Command scidex runs a hub, a node or both, and talks to them.
//
// Each command is in the file of its name; serve.go is how all of them serve.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/scidex-ai/substrate/internal/memory"
)

func main() { os.Exit(run()) }

// run is main with an exit code, for tests.
func run() int {
	memory.Tune()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	root := newRootCmd()
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		if exit.err != nil {
			_, _ = fmt.Fprintln(root.ErrOrStderr(), "scidex:", exit.err) // the exit code tells it too
		}
		return exit.code
	}
	_, _ = fmt.Fprintln(root.ErrOrStderr(), "scidex:", err) // the exit code tells it too
	return 1
}

// An exitError ends the program with a code other than 1.
type exitError struct {
	code int
	err  error // nil when all was said
}

// Error implements error.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the error that the code is for.
func (e *exitError) Unwrap() error { return e.err }

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "scidex",
		Short: "The data layer of an open-science network: a hub, its nodes, and tools for both",
		Long: `scidex keeps scientific artifacts (hypotheses, papers, evidence, wiki pages) in a
hub on PostgreSQL that owns every write, and in any number of nodes, each a
SQLite replica with a GraphQL API and live subscriptions.

Every flag may also be given as an environment variable: --hub as SCIDEX_HUB,
--database-url as SCIDEX_DATABASE_URL.`,
		Example: `  scidex demo                      # all in one process, with a sample
  scidex load --hub http://127.0.0.1:7171 --token "$TOKEN" papers.jsonl
  scidex call get '{"ref":"gene:APOE"}'`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := bindEnv(cmd); err != nil {
				return err
			}
			if err := cmd.ValidateRequiredFlags(); err != nil {
				return &exitError{2, fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
			}
			return nil
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitError{2, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the program's version",
		RunE: func(cmd *cobra.Command, _ []string) error { return say(cmd.OutOrStdout(), "scidex "+version()) },
	})
	root.AddCommand(newDemoCmd(), newHubCmd(), newNodeCmd(), newTokenCmd(), newKeysCmd(), newAgentsCmd(), newScopesCmd(), newLoadCmd(), newCallCmd(), newTailCmd(), newMailCmd(), newReviewCmd(), newMCPCmd())
	for _, c := range allCommands(root) {
		if c.RunE == nil { // a group: without it an unknown command prints help and succeeds
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		c.Args = oneLineArgs(c)
	}
	return root
}

func allCommands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, child := range c.Commands() {
		all = append(all, allCommands(child)...)
	}
	return all
}

// oneLineArgs makes a command's complaint about its arguments say what to do.
func oneLineArgs(c *cobra.Command) cobra.PositionalArgs {
	check := c.Args
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			if cmd.HasSubCommands() && len(args) > 0 {
				return &exitError{2, fmt.Errorf("%s has no command %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())}
			}
			check = cobra.NoArgs
		}
		if err := check(cmd, args); err != nil {
			return &exitError{2, fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
		}
		return nil
	}
}

// version is the module's version, or the commit that the program was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) > 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}
