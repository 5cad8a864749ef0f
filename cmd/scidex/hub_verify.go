package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/scidex-ai/substrate/hub"
)

func newHubVerifyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that the database is what the hub has written, row for row",
		Long: `Makes each version, artifact, link and signal anew and compares its hash with the one
that was stored; hashes the content of each version; counts the sums of signals anew;
and walks the log, whose chain must lead from checkpoint to checkpoint and which must
say what the tables hold. Ends of links, versions, types, events and the journal must
fit together. A change that was made past the hub, by hand or by a fault of the disk,
shows. It changes nothing and reads all there is, in small pieces; the hub may run
meanwhile. The first 100 faults are named; the exit code is 1 when there are any.`,
		Example: `  scidex hub verify --managed --data ./data/hub
  scidex hub verify --json --database-url "$DATABASE_URL"`,
	}
	return newDatabaseCmd(cmd, func(ctx context.Context, db *database, _ []string, asJSON bool) error {
		screen := newStepScreen(cmd.ErrOrStderr())
		v, err := hub.Verify(ctx, db.Pool, screen.rows)
		screen.end()
		if err != nil {
			return err
		}
		return printVerification(cmd.OutOrStdout(), &v, asJSON)
	})
}

// printVerification tells what was found, and what to do about it.
func printVerification(w io.Writer, v *hub.Verification, asJSON bool) (err error) {
	if asJSON {
		err = writeJSON(w, v)
	} else {
		err = tellVerification(w, v)
	}
	if err == nil {
		err = verdict(v)
	}
	return err
}

// verdict is the error of a database that is not what the hub has written.
func verdict(v *hub.Verification) error {
	if v.Total > 0 {
		return &exitError{1, errors.New("the database is not what the hub has written: another program or a failing disk changed it. " +
			"Stop the hub, keep a copy of the database, and restore the last backup that is whole")}
	}
	return nil
}

func tellVerification(w io.Writer, v *hub.Verification) error {
	for _, f := range v.Faults {
		ref := f.Ref
		if f.Revision > 0 {
			ref = fmt.Sprintf("%s, revision %d", ref, f.Revision)
		}
		if err := say(w, fmt.Sprintf("%s %s: %s", f.Kind, ref, f.What)); err != nil {
			return err
		}
	}
	if more := v.Total - int64(len(v.Faults)); more > 0 {
		return say(w, fmt.Sprintf("… and %d more", more))
	}
	if v.Total > 0 {
		return nil
	}
	return say(w, fmt.Sprintf("The database is what the hub has written, up to seq %d: %d artifacts, %d versions, %d links, %d signals, %d changes in the log (%.1f s).",
		v.Head, v.Rows["artifact"], v.Rows["revision"], v.Rows["link"], v.Rows["signal"], v.Rows["log"], v.Seconds))
}

// A stepScreen shows on a terminal how far something is.
type stepScreen struct {
	w    io.Writer // nil without a terminal
	told time.Time
}

func newStepScreen(w io.Writer) *stepScreen {
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &stepScreen{w: w}
	}
	return new(stepScreen)
}

// rows tells how many rows of a kind were read.
func (s *stepScreen) rows(kind string, rows int64) { s.tell(fmt.Sprintf("%s: %d rows", kind, rows)) }

// bytes tells how many bytes something came to.
func (s *stepScreen) bytes(what string, done int64) { s.tell(what + ": " + size(done)) }

func (s *stepScreen) tell(line string) {
	if s.w == nil || time.Since(s.told) < 100*time.Millisecond {
		return
	}
	s.told = time.Now()
	_, _ = fmt.Fprintf(s.w, "\r\x1b[K%s", line) // a terminal that is gone shows nothing
}

func (s *stepScreen) end() {
	if s.w != nil {
		_, _ = fmt.Fprint(s.w, "\r\x1b[K")
	}
}
