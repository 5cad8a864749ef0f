package transport

import (
	"context"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// An operation runs on a connection under an id that its client chose.
type operation struct {
	id      string
	cancel  context.CancelFunc
	stopped atomic.Bool // by its client: what is queued of it is not sent
	failure atomic.Pointer[error]
}

type operationKey struct{}

// maxID bounds an id, which every message of its operation repeats.
const maxID = 256

// Fail ends the subscription of ctx, a resolver's, with err in an error message
// instead of complete. The resolver then closes its channel. The last call counts;
// outside a websocket's operation it does nothing.
func Fail(ctx context.Context, err error) {
	if op, ok := ctx.Value(operationKey{}).(*operation); ok && err != nil {
		op.failure.Store(&err)
	}
}

// start runs the operation that m describes for caller.
func (c *connection) start(caller context.Context, m message) {
	params, err := decodeRequest(m.Payload)
	switch {
	case m.ID == "" || len(m.ID) > maxID || err != nil:
		c.end(CloseInvalidMessage, "invalid message")
		return
	case caller == nil:
		c.end(CloseUnauthorized, "unauthorized")
		return
	}
	params.Headers = c.request.Header
	op := &operation{id: m.ID}
	ctx, cancel := context.WithCancel(context.WithValue(caller, operationKey{}, op))
	op.cancel = cancel

	c.mu.Lock()
	_, duplicate := c.operations[m.ID]
	// A stopped operation may still be ending: its client may start another at once,
	// but cannot pile them up.
	full := len(c.operations) >= c.MaxOperations || c.running >= 2*c.MaxOperations
	if !duplicate && !full {
		c.operations[m.ID] = op
		c.running++
	}
	c.mu.Unlock()

	switch {
	case duplicate:
		cancel()
		c.end(CloseDuplicateID, "subscriber already exists")
	case full:
		cancel()
		if text, err := c.protocol.errorMessage(m.ID, gqlerror.List{coded("limit_exceeded", "too many operations")}); err == nil {
			c.say(text)
		}
	default:
		c.all.Go(func() { c.run(ctx, op, params) })
	}
}

// stop cancels the operation for its client; an unknown id has ended already.
func (c *connection) stop(id string) {
	c.mu.Lock()
	op := c.operations[id]
	delete(c.operations, id)
	c.mu.Unlock()
	if op != nil {
		op.stopped.Store(true)
		op.cancel()
	}
}

// release frees the operation's id, which its client may have given to another.
func (c *connection) release(op *operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.operations[op.id] == op {
		delete(c.operations, op.id)
	}
}

// run executes the operation and queues its messages, waiting while there is no room.
func (c *connection) run(ctx context.Context, op *operation, params *graphql.RawParams) {
	defer func() {
		op.cancel()
		c.release(op)
		c.mu.Lock()
		c.running--
		c.mu.Unlock()
	}()
	defer func() {
		if v := recover(); v != nil {
			c.fail(ctx, op, presented(ctx, c.exec, v))
		}
	}()
	errs := c.respond(graphql.StartOperationTrace(ctx), op, params)
	switch {
	case ctx.Err() != nil:
	case len(errs) > 0:
		c.fail(ctx, op, errs)
	default:
		c.release(op) // before the client can learn that it is free
		_ = c.queue.push(ctx, frame{op, completeMessage(op.id)})
	}
}

// respond queues each response. It returns what ended the operation in an error.
func (c *connection) respond(ctx context.Context, op *operation, params *graphql.RawParams) gqlerror.List {
	oc, errs := c.exec.CreateOperationContext(ctx, params)
	if errs != nil {
		return c.exec.DispatchError(graphql.WithOperationContext(ctx, oc), errs).Errors
	}
	responses, ctx := c.exec.DispatchOperation(ctx, oc)
	for more := true; more; {
		resp := responses(ctx)
		if resp == nil || ctx.Err() != nil {
			break
		}
		if requestFailed(resp) {
			return resp.Errors
		}
		text, err := appendResponse(operationHead(len(resp.Data)+16, op.id, c.protocol.next), resp)
		if err != nil {
			panic(err)
		}
		if c.queue.push(ctx, frame{op, append(text, '}')}) != nil {
			break
		}
		more = oc.Operation.Operation == ast.Subscription || resp.HasNext != nil && *resp.HasNext
	}
	if err := op.failure.Load(); err != nil {
		return c.exec.DispatchError(ctx, gqlerror.List{gqlerror.WrapIfUnwrapped(*err)}).Errors
	}
	return nil
}

func (c *connection) fail(ctx context.Context, op *operation, errs gqlerror.List) {
	text, err := c.protocol.errorMessage(op.id, errs)
	if err != nil {
		text, _ = c.protocol.errorMessage(op.id, gqlerror.List{coded("internal_error", "internal error")})
	}
	c.release(op)
	_ = c.queue.push(ctx, frame{op, text})
}
