package node

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/verb"
)

// A consumers has the hub's consumers read through a node: polls, streams and
// advances are the hub's, which is asked with the caller's token. While it is away,
// those that the node has a lease of go on, from its replica, and what they are done
// with is brought to the hub when it is back.
type consumers struct {
	node   *Node
	leases *leases

	mu   sync.Mutex
	owed map[[2]string]*verb.Caller // guarded by mu; who moved a cursor that the hub does not have, by agent and consumer
}

// away reports whether an error says that the hub, or its database, does not answer.
func away(err error) bool { return artifact.IsCode(err, artifact.CodeUnavailable) }

// poll answers a poll that is not the replica's to answer: of a consumer, or of what
// no replica holds.
func (k *consumers) poll(ctx context.Context, in verb.PollRequest) (out verb.PollResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if in.ConsumerID != "" {
		k.bring(ctx, c, in.ConsumerID)
	}
	out, err = verb.Poll.Call(ctx, k.node.hub, in)
	if in.ConsumerID == "" {
		k.node.ready(ctx, out.Cursor)
		return out, err
	}
	if away(err) {
		return k.pollOffline(ctx, c, in, err)
	}
	if err != nil || out.Consumer == nil {
		return out, k.lost(ctx, c, in.ConsumerID, err)
	}
	if err := k.leases.hold(ctx, c.Actor.ID, *out.Consumer); err != nil {
		return out, err
	}
	k.node.ready(ctx, out.Cursor)
	return out, nil
}

// lost forgets the lease of a consumer that is another's now, or is no more.
func (k *consumers) lost(ctx context.Context, c *verb.Caller, id string, err error) error {
	e, ok := errors.AsType[*artifact.Error](err)
	if ok && (e.Reason == artifact.ReasonConsumerTaken || e.Code == artifact.CodeNotFound && e.Reason != artifact.ReasonCursorExpired) {
		k.settle(c.Actor.ID, id)
		return errors.Join(err, k.leases.drop(ctx, c.Actor.ID, id))
	}
	return err
}

// pollOffline answers a poll from the replica, if the node has a lease.
func (k *consumers) pollOffline(ctx context.Context, c *verb.Caller, in verb.PollRequest, hub error) (out verb.PollResult, err error) {
	l, err := k.leases.find(ctx, c.Actor.ID, in.ConsumerID)
	if err != nil {
		return out, err
	}
	if l == nil {
		return out, hub
	}
	size, err := in.Size()
	if err != nil {
		return out, err
	}
	if in.Types != nil || in.Filter != nil {
		l.Types, l.Filter = in.Types, in.Filter
	}
	reader, err := k.reader(ctx, l, in.Since, size)
	if err != nil {
		return out, err
	}
	if out, err = event.ReadPage(ctx, reader); err != nil {
		return out, err
	}
	if in.Advances() && out.Cursor > l.Cursor {
		if err := k.owe(ctx, c, l, out.Cursor); err != nil {
			return verb.PollResult{}, err
		}
	}
	place := l.ConsumerPlace
	place.Offline = true
	out.Consumer = &place
	return out, nil
}

// reader returns a reader of the replica from a lease's cursor on, which may be
// ahead of it: the hub answered before.
func (k *consumers) reader(ctx context.Context, l *lease, since *artifact.Seq, size int) (event.Reader, error) {
	f, err := event.NewFilter(l.Types, l.Filter)
	if err != nil {
		return nil, err
	}
	after := l.Cursor
	if since != nil {
		after = *since
	}
	if after < k.node.applied() {
		return k.node.Read(ctx, &after, f, size)
	}
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if k.node.held.load() == nil {
		return nil, k.node.bootstrapping()
	}
	sub := k.node.Follow(after, f)
	sub.PageSize, sub.scopes = size, c.VisibleScopes()
	return &eventReader{Subscription: sub}, nil
}

// owe keeps a cursor until the hub is back.
func (k *consumers) owe(ctx context.Context, c *verb.Caller, l *lease, to artifact.Seq) error {
	if err := k.leases.advance(ctx, c.Actor.ID, l.ConsumerID, l.Generation, to); err != nil {
		return err
	}
	l.Cursor = max(l.Cursor, to)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.owed == nil {
		k.owed = make(map[[2]string]*verb.Caller)
	}
	k.owed[[2]string{c.Actor.ID, l.ConsumerID}] = c
	return nil
}

func (k *consumers) settle(agent, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.owed, [2]string{agent, id})
}

// bring tells the hub of a cursor that was kept while it was away. What fails is
// tried again: a cursor only moves forward.
func (k *consumers) bring(ctx context.Context, c *verb.Caller, id string) {
	l, err := k.leases.find(ctx, c.Actor.ID, id)
	if err != nil || l == nil || !l.pending {
		return
	}
	_, _ = k.advance(ctx, verb.ConsumersAdvanceRequest{ConsumerID: id, Generation: l.Generation, Epoch: l.Epoch, EventID: l.Cursor})
}

// bringEvery is how often a node tries to bring what it keeps for its consumers.
const bringEvery = 500 * time.Millisecond

// keep brings cursors to the hub as soon as it is back, with the token of who moved
// them. After a restart that waits until they come again.
func (k *consumers) keep(ctx context.Context) {
	tick := time.NewTicker(bringEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		k.mu.Lock()
		owed := make(map[[2]string]*verb.Caller, len(k.owed))
		maps.Copy(owed, k.owed)
		k.mu.Unlock()
		if !k.node.status.Load().Connected {
			continue
		}
		for key, c := range owed {
			if c.Valid() != nil {
				k.settle(key[0], key[1]) // with the next token
				continue
			}
			k.bring(verb.WithCaller(ctx, c), c, key[1])
		}
	}
}

// advance answers consumers/advance.
func (k *consumers) advance(ctx context.Context, in verb.ConsumersAdvanceRequest) (out verb.ConsumerResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	out, err = verb.ConsumersAdvance.Call(ctx, k.node.hub, in)
	if err == nil {
		k.settle(c.Actor.ID, in.ConsumerID)
		return out, k.leases.hold(ctx, c.Actor.ID, placeOf(&out.Consumer))
	}
	if !away(err) {
		return out, k.lost(ctx, c, in.ConsumerID, err)
	}
	l, found := k.leases.find(ctx, c.Actor.ID, in.ConsumerID)
	if found != nil {
		return out, found
	}
	if l == nil || l.Generation != in.Generation || in.EventID > max(l.Cursor, k.node.freshness().head) {
		return out, err // not the node's to say
	}
	if err := k.owe(ctx, c, l, in.EventID); err != nil {
		return out, err
	}
	out.Pending = true
	out.Consumer = verb.Consumer{
		ConsumerID: l.ConsumerID, Types: l.Types, Filter: l.Filter, Epoch: l.Epoch, Generation: l.Generation, Cursor: l.Cursor,
		Behind: max(0, k.node.applied()-l.Cursor),
	}
	return out, nil
}

// placeOf returns where a consumer is.
func placeOf(c *verb.Consumer) verb.ConsumerPlace {
	return verb.ConsumerPlace{
		ConsumerID: c.ConsumerID, Epoch: c.Epoch, Generation: c.Generation, Cursor: c.Cursor, Types: c.Types, Filter: c.Filter,
	}
}

// rewind answers consumers/rewind.
func (k *consumers) rewind(ctx context.Context, in verb.ConsumersRewindRequest) (out verb.ConsumerResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if out, err = verb.ConsumersRewind.Call(ctx, k.node.hub, in); err != nil {
		return out, k.lost(ctx, c, in.ConsumerID, err)
	}
	k.settle(c.Actor.ID, in.ConsumerID)
	return out, k.leases.hold(ctx, c.Actor.ID, placeOf(&out.Consumer))
}

// remove answers consumers/delete.
func (k *consumers) remove(ctx context.Context, in verb.ConsumersDeleteRequest) (out verb.ConsumersDeleteResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if out, err = verb.ConsumersDelete.Call(ctx, k.node.hub, in); err != nil {
		return out, k.lost(ctx, c, in.ConsumerID, err)
	}
	k.settle(c.Actor.ID, in.ConsumerID)
	return out, k.leases.drop(ctx, c.Actor.ID, in.ConsumerID)
}

// elsewhere reports whether events are asked for that no replica holds.
func (n *Node) elsewhere(ctx context.Context, types []string, private bool) bool {
	c, err := verb.CallerFrom(ctx)
	if err != nil || c.Anonymous {
		return false
	}
	store := n.held.load()
	for _, name := range types {
		entity, _, _ := strings.Cut(name, ".")
		private = private || entity == "system" || entity == "candidate" || store != nil && store.elsewhere(ctx, entity)
	}
	return private
}

// ready waits until what an event tells of can be read here, or some time has
// passed.
func (n *Node) ready(ctx context.Context, seq artifact.Seq) {
	ctx, cancel := context.WithTimeout(ctx, n.config.WriteWait)
	defer cancel()
	_ = n.WaitApplied(ctx, seq) // late is better than never
}

// errHubLost is what a stream of the hub's ends with when the hub falls silent.
var errHubLost = &artifact.Error{
	Code: artifact.CodeUnavailable, Reason: artifact.ReasonHubUnreachable, Retryable: true, RetryAfterMS: 1000,
	Message: "the hub, whose events these are, does not answer; subscribe again",
}

// errHubBack is what a consumer's stream from the replica ends with.
var errHubBack = &artifact.Error{
	Code: artifact.CodeUnavailable, Reason: artifact.ReasonBusy, Retryable: true, RetryAfterMS: 100,
	Message: "the hub is back, and with it the consumer: subscribe again",
}

// pass serves the streams of consumers, and of what no replica holds, as the hub
// does.
func (k *consumers) pass(done <-chan struct{}) func(http.ResponseWriter, *http.Request, verb.SubscribeRequest) (bool, error) {
	return func(w http.ResponseWriter, req *http.Request, in verb.SubscribeRequest) (bool, error) {
		n, ctx := k.node, req.Context()
		if !in.Durable && !n.elsewhere(ctx, in.Types, in.IncludePrivate) {
			return false, nil
		}
		c, err := verb.CallerFrom(ctx)
		if err != nil {
			return false, err
		}
		if in.Durable {
			k.bring(ctx, c, in.ConsumerID)
		}
		from, err := n.hub.Stream(ctx, in, n.config.HTTP)
		switch {
		case err == nil:
		case in.Durable && away(err):
			l, found := k.leases.find(ctx, c.Actor.ID, in.ConsumerID)
			if found != nil || l == nil {
				return false, errors.Join(found, err)
			}
			return false, nil // streamOffline
		case in.Durable:
			return false, k.lost(ctx, c, in.ConsumerID, err)
		default:
			return false, err
		}
		defer from.Close()
		(&event.Relay{
			Lost: errHubLost, Done: done, Ready: n.ready,
			Began: func(p verb.ConsumerPlace) {
				if err := k.leases.hold(ctx, c.Actor.ID, p); err != nil {
					n.log.WarnContext(ctx, "a consumer's place could not be kept: without its hub it cannot go on here", "err", err)
				}
			},
		}).Serve(ctx, w, from)
		return true, nil
	}
}

// streamOffline begins the stream of a consumer whose hub is away, which ends when
// it is back.
func (k *consumers) streamOffline(ctx context.Context, in verb.SubscribeRequest) (*event.Session, error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return nil, err
	}
	l, err := k.leases.find(ctx, c.Actor.ID, in.ConsumerID)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, errHubLost
	}
	if in.Types != nil || in.Filter != nil {
		l.Types, l.Filter = in.Types, in.Filter
	}
	reader, err := k.reader(ctx, l, in.Since, event.StreamPage)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	back, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		if k.node.waitForHub(ctx) == nil {
			close(back)
		}
	}()
	place := l.ConsumerPlace
	place.Offline = true
	return &event.Session{
		Reader: reader, Place: place, Ended: back,
		Why: func() error { return errHubBack },
		Close: func() {
			cancel()
			<-over
		},
	}, nil
}

// waitForHub returns once the hub is followed again.
func (n *Node) waitForHub(ctx context.Context) error {
	tick := time.NewTicker(bringEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if f := n.freshness(); f.connected && !f.stale {
				return nil
			}
		}
	}
}
