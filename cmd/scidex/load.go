package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/load"
)

// rejectedCode is the exit code of a load that left out lines.
const rejectedCode = 3

// loadFlags are what scidex load is told.
type loadFlags struct {
	remote   remoteFlags
	imported bool
	parallel int
	retryFor time.Duration
	from     int64
	rejects  string
	json     bool
	quiet    bool
}

func newLoadCmd() *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load FILE…|-",
		Short: "Load artifacts, links and signals from JSONL into a hub",
		Long: `Loads files of one JSON object a line, or standard input (-):

  {"type":"hypothesis","id":"h-1","title":"…","content":{…},
   "links":[{"rel":"about","to":"gene:APOE"}]}

All artifacts are made first, then links and signals, so lines may stand in any
order. A line of type signal is a signal on the target of its link "rates";
content.kind and content.value say which. With --import, which takes an admin's
token, it keeps the voter that content.by names; otherwise it is yours.

Bad lines are reported and left out. What the hub has already counts as
unchanged, so a load may be run again. A load that was interrupted says how to
go on; lines are counted over all files, in the order given.

The exit code is 0 when all was loaded, 3 when lines were left out, 1 when the
load did not finish.`,
		Example: `  scidex load papers.jsonl genes.jsonl
  zcat corpus.jsonl.gz | scidex load --rejects bad.jsonl -
  scidex load --import --json data/*.jsonl`,
		Args: cobra.MinimumNArgs(1),
		RunE: f.run,
	}
	f.remote.add(cmd)
	cmd.Flags().BoolVar(&f.imported, "import", false, "import as an admin: signals keep the voters that lines name")
	cmd.Flags().IntVar(&f.parallel, "parallel", 2, "batches under way at a time, 1 to 64")
	cmd.Flags().DurationVar(&f.retryFor, "retry-for", 2*time.Minute, "how long to try again while the hub is away")
	cmd.Flags().Int64Var(&f.from, "from", 1, "first line to load, counted over all files")
	cmd.Flags().StringVar(&f.rejects, "rejects", "", "file for the faults of lines left out, as JSONL")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the summary as JSON, and no progress")
	cmd.Flags().BoolVar(&f.quiet, "quiet", false, "no progress")
	return cmd
}

func (f *loadFlags) run(cmd *cobra.Command, args []string) error {
	switch {
	case f.parallel < 1 || f.parallel > 64:
		return &exitError{2, errors.New("--parallel is 1 to 64")}
	case f.from < 1:
		return &exitError{2, errors.New("--from counts from 1")}
	}
	client, err := f.remote.client()
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http's own
	transport.MaxIdleConnsPerHost = f.parallel
	client.HTTP = &http.Client{Transport: transport} // load bounds each request itself
	inputs, closeInputs, err := openInputs(cmd.Context(), cmd.InOrStdin(), args)
	defer closeInputs()
	if err != nil {
		return err
	}
	rejects, err := createRejects(f.rejects, args)
	if err != nil {
		return err
	}
	retryFor := f.retryFor
	if retryFor <= 0 {
		retryFor = -1 // zero is the library's default
	}
	screen := newLoadScreen(cmd.ErrOrStderr(), f.json || f.quiet)
	sum, err := load.Run(cmd.Context(), load.Config{
		Invoker: client, Inputs: inputs, Import: f.imported, Parallel: f.parallel, From: f.from,
		RetryFor: retryFor, Progress: screen.progress,
		Reject: func(r load.Rejected) {
			screen.reject(r)
			rejects.write(r)
		},
		Log: slog.New(slog.NewTextHandler(screen, nil)),
	})
	screen.finish(sum.RejectedLines)
	rerr := rejects.close()
	if perr := f.print(cmd.OutOrStdout(), &sum); perr != nil {
		rerr = errors.Join(rerr, perr)
	}
	switch {
	case err != nil:
		return f.explain(err, sum.ResumeFrom)
	case rerr != nil:
		return rerr
	case sum.RejectedLines > 0:
		return &exitError{code: rejectedCode}
	}
	return nil
}

// explain says why a load ended early and what to do.
func (f *loadFlags) explain(err error, resumeFrom int64) error {
	var e *artifact.Error
	denied := errors.As(err, &e) && e.Code == artifact.CodePermissionDenied
	switch {
	case denied && e.Reason == artifact.ReasonUnauthenticated:
		return fmt.Errorf("load: %s: give a valid token with --token or SCIDEX_TOKEN; scidex token makes one", e.Message)
	case denied && f.imported:
		return fmt.Errorf("load: %s: give an admin's token with --token or SCIDEX_TOKEN, or leave out --import", e.Message)
	case denied:
		return fmt.Errorf("load: %s: give such a token with --token or SCIDEX_TOKEN; scidex token makes one", e.Message)
	}
	again := "run it again: what is loaded counts as unchanged"
	if resumeFrom > 0 {
		again = fmt.Sprintf("run it again with --from %d to go on", resumeFrom)
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("load: interrupted; %s", again)
	}
	return fmt.Errorf("load: %w; %s", err, again)
}

// print prints the summary.
func (f *loadFlags) print(w io.Writer, s *load.Summary) error {
	if f.json {
		return json.NewEncoder(w).Encode(s)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tcreated\tunchanged\trejected\tskipped\t")
	row := func(name string, c load.Counts, skipped int64) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t\n", name, c.Created, c.Unchanged, c.Rejected, skipped)
	}
	row("artifacts", s.Artifacts, 0)
	row("links", s.Links.Counts, s.Links.Skipped)
	row("signals", s.Signals, 0)
	if err := t.Flush(); err != nil {
		return err
	}
	seq := "nothing new was written"
	if s.LastSeq > 0 {
		seq = fmt.Sprintf("last seq %d", s.LastSeq)
	}
	_, err := fmt.Fprintf(w, "%d lines, %d with faults; %.1f s, %.0f records/s; %s\n", s.Lines, s.RejectedLines, s.Seconds, s.RecordsPerSecond, seq)
	return err
}

// openInputs makes inputs of file names. What can be read only once, such as a
// pipe, is copied to a temporary file. closeInputs is never nil.
func openInputs(ctx context.Context, stdin io.Reader, names []string) (inputs []load.Input, closeInputs func(), err error) {
	var closers []func() error
	closeInputs = func() {
		for _, c := range closers {
			_ = c() // of files that were only read
		}
	}
	spool := func(name string, r io.Reader) error {
		in, closeSpool, err := load.Spool(ctx, name, r)
		if err != nil {
			return err
		}
		inputs, closers = append(inputs, in), append(closers, closeSpool)
		return nil
	}
	usedStdin := false
	for _, name := range names {
		if name == "-" {
			if usedStdin {
				return nil, closeInputs, &exitError{2, errors.New("- is given twice")}
			}
			usedStdin = true
			if err := spool("-", stdin); err != nil {
				return nil, closeInputs, err
			}
			continue
		}
		info, err := os.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, closeInputs, &exitError{2, fmt.Errorf("load: no such file: %s", name)}
		case err != nil:
			return nil, closeInputs, fmt.Errorf("load: %w", err)
		case info.IsDir():
			return nil, closeInputs, &exitError{2, fmt.Errorf("load: %s is a directory: name its files, such as %s/*.jsonl", name, name)}
		case info.Mode().IsRegular():
			inputs = append(inputs, load.File(name))
			continue
		}
		if err := func() error {
			r, err := os.Open(name)
			if err != nil {
				return fmt.Errorf("load: %w", err)
			}
			defer r.Close() //nolint:errcheck // it is only read
			return spool(name, r)
		}(); err != nil {
			return nil, closeInputs, err
		}
	}
	return inputs, closeInputs, nil
}

// A rejectsFile is where --rejects goes. A nil one takes nothing.
type rejectsFile struct {
	f   *os.File
	w   *bufio.Writer
	err error // the first
}

func createRejects(name string, inputs []string) (*rejectsFile, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // nobody wants them
	}
	if old, err := os.Stat(name); err == nil {
		for _, in := range inputs {
			if info, err := os.Stat(in); err == nil && os.SameFile(old, info) {
				return nil, &exitError{2, fmt.Errorf("--rejects %s would overwrite an input", name)}
			}
		}
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("--rejects: %w", err)
	}
	return &rejectsFile{f: f, w: bufio.NewWriter(f)}, nil
}

func (r *rejectsFile) write(x load.Rejected) {
	if r != nil && r.err == nil {
		e := json.NewEncoder(r.w)
		e.SetEscapeHTML(false)
		r.err = e.Encode(x)
	}
}

func (r *rejectsFile) close() error {
	if r == nil {
		return nil
	}
	if err := errors.Join(r.err, r.w.Flush(), r.f.Close()); err != nil {
		return fmt.Errorf("--rejects: %w", err)
	}
	return nil
}

// maxShown is how many faults are printed; --rejects has them all.
const maxShown = 20

// logInterval is how often progress is told where no bar can be drawn.
const logInterval = 5 * time.Second

// A loadScreen shows a load as it goes: a bar on a terminal, lines elsewhere.
// One goroutine at a time uses it.
type loadScreen struct {
	w      io.Writer
	bar    *progressbar.ProgressBar // nil without a terminal
	silent bool
	start  time.Time
	told   time.Time
	shown  int
	hidden int
}

func newLoadScreen(w io.Writer, silent bool) *loadScreen {
	s := &loadScreen{w: w, silent: silent, start: time.Now(), told: time.Now()}
	if file, ok := w.(*os.File); ok && !silent && term.IsTerminal(int(file.Fd())) {
		s.bar = progressbar.NewOptions64(1,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("loading"), progressbar.OptionSetWidth(24),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("records"),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(200*time.Millisecond),
			progressbar.OptionSetRenderBlankState(false))
	}
	return s
}

func (s *loadScreen) progress(done, total int64) {
	switch {
	case s.silent || total == 0:
	case s.bar != nil:
		s.bar.ChangeMax64(max(total, done+1)) // a full bar would take no more
		_ = s.bar.Set64(done)                 // a terminal that is gone shows nothing
	case time.Since(s.told) >= logInterval:
		s.told = time.Now()
		rate := float64(done) / time.Since(s.start).Seconds()
		left := "unknown"
		if rate > 0 {
			left = (time.Duration(float64(total-done)/rate) * time.Second).String()
		}
		_, _ = fmt.Fprintf(s.w, "load: %d of %d records, %.0f/s, %s left\n", done, total, rate, left) // a terminal that is gone shows nothing
	}
}

func (s *loadScreen) reject(r load.Rejected) {
	if s.shown == maxShown {
		s.hidden++
		return
	}
	s.shown++
	_, _ = fmt.Fprintln(s, r) // they are in the summary and in --rejects too
}

// Write implements io.Writer: it writes above the bar.
func (s *loadScreen) Write(p []byte) (int, error) {
	if s.bar != nil {
		_ = s.bar.Clear() // a terminal that is gone shows nothing
	}
	return s.w.Write(p)
}

func (s *loadScreen) finish(rejectedLines int64) {
	if s.bar != nil {
		_ = s.bar.Clear() // a terminal that is gone shows nothing
	}
	if s.hidden > 0 {
		// They are in the summary too.
		_, _ = fmt.Fprintf(s.w, "load: %d more faults; %d lines have faults in all (--rejects FILE keeps them)\n", s.hidden, rejectedLines)
	}
}
