package hub

import (
	"cmp"
	"context"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/verb"
)

// A ConsumerConfig bounds durable consumers.
type ConsumerConfig struct {
	PerAgent int           // the default is verb.MaxConsumers
	Refusals int           // of an event, which then is a dead letter; the default is verb.MaxRefusals
	Idle     time.Duration // after which one is deleted; the default is 30 days
	Look     time.Duration // how often streams are told of what other hubs did to their consumers; the default is 5 seconds
}

func (c ConsumerConfig) orDefaults() ConsumerConfig {
	c.PerAgent = cmp.Or(c.PerAgent, verb.MaxConsumers)
	c.Refusals = cmp.Or(c.Refusals, verb.MaxRefusals)
	c.Idle = cmp.Or(c.Idle, 30*24*time.Hour)
	c.Look = cmp.Or(c.Look, 5*time.Second)
	return c
}

// deleted is above each generation.
const deleted = math.MaxInt64

// A liveConsumer is a stream that reads with a consumer.
type liveConsumer struct {
	agent, id  string
	generation int64
	ended      chan struct{}
	why        error // set before ended is closed
}

// liveConsumers are this process's.
type liveConsumers struct {
	mu  sync.Mutex
	all map[*liveConsumer]struct{} // guarded by mu
	by  map[[2]string]*liveConsumer
}

// begin adds a stream, and ends the elder.
func (l *liveConsumers) begin(agent, id string, generation int64) *liveConsumer {
	l.end(agent, id, generation)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all, l.by = make(map[*liveConsumer]struct{}), make(map[[2]string]*liveConsumer)
	}
	s := &liveConsumer{agent: agent, id: id, generation: generation, ended: make(chan struct{})}
	l.all[s] = struct{}{}
	l.by[[2]string{agent, id}] = s
	return s
}

// end ends the stream of a generation before one.
func (l *liveConsumers) end(agent, id string, generation int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.by[[2]string{agent, id}]
	if s == nil || s.generation >= generation {
		return
	}
	delete(l.by, [2]string{agent, id})
	if s.why = taken(id, generation); generation == deleted {
		s.why = noConsumer(id)
	}
	close(s.ended)
}

// close takes a stream out that is over.
func (l *liveConsumers) close(s *liveConsumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, s)
	if l.by[[2]string{s.agent, s.id}] == s {
		delete(l.by, [2]string{s.agent, s.id})
	}
}

// names returns whose streams there are.
func (l *liveConsumers) names() (agents, ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.by {
		agents, ids = append(agents, key[0]), append(ids, key[1])
	}
	return agents, ids
}

// keepConsumers ends streams whose consumers other hubs have given to others or
// deleted, and notes that those of this one are in use, until ctx ends.
func (h *Hub) keepConsumers(ctx context.Context) error {
	tick := time.NewTicker(h.config.Consumers.Look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := h.lookAtConsumers(ctx); err != nil && ctx.Err() == nil {
				h.log.WarnContext(ctx, "the consumers of streams could not be read", "err", err)
			}
		}
	}
}

// lookAtConsumers reads the consumers of this process's streams, in one query for
// all, and none when there are none.
func (h *Hub) lookAtConsumers(ctx context.Context) error {
	agents, ids := h.live.names()
	if len(ids) == 0 {
		return nil
	}
	const touch = `
		UPDATE consumer_subscriptions c SET last_activity_at = now() FROM unnest($1::text[], $2::text[]) AS k (agent, id)
		WHERE c.agent = k.agent AND c.consumer_id = k.id AND c.last_activity_at < now() - make_interval(secs => $3)`
	if _, err := h.db.Exec(ctx, touch, agents, ids, activityNoted.Seconds()); err != nil {
		return err
	}
	const query = `
		SELECT k.agent, k.id, coalesce(c.generation, $3) FROM unnest($1::text[], $2::text[]) AS k (agent, id)
		LEFT JOIN consumer_subscriptions c ON c.agent = k.agent AND c.consumer_id = k.id`
	rows, err := h.db.Query(ctx, query, agents, ids, int64(deleted))
	if err != nil {
		return err
	}
	var agent, id string
	var generation int64
	_, err = pgx.ForEachRow(rows, []any{&agent, &id, &generation}, func() error {
		h.live.end(agent, id, generation)
		return nil
	})
	return err
}
