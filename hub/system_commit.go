package hub

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// systemCommit runs f in a transaction of the system's own, which ends with what f
// queues and its rows in the log, in one message. It returns the last of them;
// without rows it writes nothing and returns 0.
func systemCommit(ctx context.Context, db *pgxpool.Pool, what string, f func(tx querier, rows *changeRows, b *pgx.Batch) error) (last artifact.Seq, err error) {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	committed := false
	defer func() {
		if !committed {
			rollback(ctx, conn)
		}
	}()
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return 0, err
	}
	rows, b := new(changeRows), new(pgx.Batch)
	if err := f(conn, rows, b); err != nil || len(rows.kind) == 0 {
		return 0, err
	}
	caller := &verb.Caller{Actor: system, RequestID: uuid.NewString(), Now: artifact.Now()}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	var before artifact.Seq
	queueAppend(b, []commit{{rows: rows, caller: caller, verb: what}}).QueryRow(func(row pgx.Row) error { return row.Scan(&before) })
	b.Queue("COMMIT")
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return 0, commitError(err, len(rows.kind))
	}
	committed = true
	return before + artifact.Seq(len(rows.kind)), nil
}
