package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
)

// A JobConfig says how the hub's own jobs run. One of the hubs on a database, which
// they elect, asks for them; any of them runs them.
type JobConfig struct {
	Every   time.Duration // between two runs of a job; the default is an hour
	Look    time.Duration // how often a hub looks for jobs; the default is 5 seconds
	Timeout time.Duration // of a run; the default is a minute
	Rescue  time.Duration // after which a run is done again whose hub died; the default is 5 minutes more
}

func (c JobConfig) orDefaults() JobConfig {
	c.Every = cmp.Or(c.Every, time.Hour)
	c.Look = cmp.Or(c.Look, 5*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.Rescue = cmp.Or(c.Rescue, c.Timeout+5*time.Minute)
	return c
}

const (
	jobSchema  = "job"            // of River's tables
	jobTries   = 10               // the last one four hours after the first
	jobsToEnd  = 10 * time.Second // that a hub waits for its jobs when it stops
	jobsAtOnce = 2                // of a hub: they are to hold up nobody
)

// A job is done again and again, by one hub at a time. Doing it twice changes nothing.
type job struct {
	name string
	run  func(*Hub, context.Context) (rows int, err error)
}

// jobArgs is how River knows a job.
type jobArgs struct {
	Job string `json:"job"`
}

// Kind implements [river.JobArgs].
func (jobArgs) Kind() string { return "hub" }

// InsertOpts lets a job be asked for again only once it was done or given up.
func (jobArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: jobTries, UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}}
}

// A jobWorker runs jobs.
type jobWorker struct {
	river.WorkerDefaults[jobArgs]
	hub *Hub
}

// Work implements [river.Worker].
func (w *jobWorker) Work(ctx context.Context, asked *river.Job[jobArgs]) error {
	i := slices.IndexFunc(jobs, func(j job) bool { return j.name == asked.Args.Job })
	if i < 0 {
		return fmt.Errorf("job %q is not known to this version", asked.Args.Job)
	}
	j, m, begun := jobs[i], &w.hub.metrics.jobs, time.Now()
	n, err := j.try(ctx, w.hub)
	m.cleared.WithLabelValues(j.name).Add(float64(n))
	if n > 0 {
		w.hub.log.InfoContext(ctx, "expired rows were cleared away", "job", j.name, "rows", n)
	}
	switch {
	case err == nil:
		m.seconds.WithLabelValues(j.name, "done").Observe(time.Since(begun).Seconds())
		return nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return err // the hub stops; the job is done by whoever is there next
	case asked.Attempt >= asked.MaxAttempts:
		m.givenUp.WithLabelValues(j.name).Inc()
	}
	m.seconds.WithLabelValues(j.name, "failed").Observe(time.Since(begun).Seconds())
	w.hub.log.ErrorContext(ctx, "a job failed", "job", j.name, "attempt", asked.Attempt, "of", asked.MaxAttempts, "err", err)
	return err
}

// try runs a job. A panic is an error like others: the hub lives on.
func (j job) try(ctx context.Context, h *Hub) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return j.run(h, ctx)
}

// keepJobs asks for jobs and runs them until ctx ends, and then waits for those that
// run. It polls: a notification would take a lock that all who write wait for.
func (h *Hub) keepJobs(ctx context.Context) error {
	c := h.config.Jobs
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &jobWorker{hub: h}); err != nil {
		return fmt.Errorf("prepare jobs: %w", err)
	}
	var periodic []*river.PeriodicJob
	for _, j := range jobs {
		periodic = append(periodic, river.NewPeriodicJob(river.PeriodicInterval(c.Every),
			func() (river.JobArgs, *river.InsertOpts) { return jobArgs{j.name}, nil }, &river.PeriodicJobOpts{ID: j.name, RunOnStart: true}))
	}
	client, err := river.NewClient(riverpgxv5.New(h.db), &river.Config{
		Schema: jobSchema, PollOnly: true, FetchPollInterval: c.Look, FetchCooldown: min(c.Look, 100*time.Millisecond),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: jobsAtOnce}},
		Workers: workers, PeriodicJobs: periodic,
		JobTimeout: c.Timeout, RescueStuckJobsAfter: c.Rescue, SoftStopTimeout: jobsToEnd,
		Logger: slog.New(jobLog{h.log.Handler()}),
	})
	if err != nil {
		return fmt.Errorf("prepare jobs: %w", err)
	}
	// Without the database a hub answers that it is unavailable, and goes on.
	for err := client.Start(ctx); err != nil; err = client.Start(ctx) {
		if ctx.Err() == nil {
			h.log.WarnContext(ctx, "jobs could not be begun", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Look):
		}
	}
	<-client.Stopped()
	return nil
}

// jobLog passes on what River warns of: of its coming and going it tells at length.
type jobLog struct {
	slog.Handler
}

func (l jobLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && l.Handler.Enabled(ctx, level)
}

func (l jobLog) WithAttrs(attrs []slog.Attr) slog.Handler { return jobLog{l.Handler.WithAttrs(attrs)} }

func (l jobLog) WithGroup(name string) slog.Handler { return jobLog{l.Handler.WithGroup(name)} }

type jobMetrics struct {
	seconds *prometheus.HistogramVec
	cleared *prometheus.CounterVec
	givenUp *prometheus.CounterVec
}

func newJobMetrics(r prometheus.Registerer) jobMetrics {
	m := jobMetrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scidex_hub_job_seconds", Help: "Time of runs of the hub's own jobs by this process, by job and by whether they are done or failed.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"job", "outcome"}),
		cleared: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scidex_hub_job_rows_total", Help: "Rows that jobs of this process cleared away, by job.",
		}, []string{"job"}),
		givenUp: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scidex_hub_jobs_given_up_total", Help: "Jobs that failed each time they were tried, by job.",
		}, []string{"job"}),
	}
	r.MustRegister(m.seconds, m.cleared, m.givenUp)
	return m
}
