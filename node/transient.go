package node

import (
	"errors"

	"github.com/mattn/go-sqlite3"

	"github.com/scidex-ai/substrate/replicate"
)

// transient marks failures of the disk or of memory, which pass: space is freed, a
// volume comes back. Nothing of the commit was kept, so it can be applied again.
func transient(err error) error {
	failed, ok := errors.AsType[sqlite3.Error](err)
	if !ok {
		return err
	}
	switch failed.Code {
	case sqlite3.ErrFull, sqlite3.ErrIoErr, sqlite3.ErrNomem, sqlite3.ErrCantOpen, sqlite3.ErrReadonly, sqlite3.ErrBusy, sqlite3.ErrLocked:
		return &replicate.TransientError{Err: err, Next: "is the disk full, or the data directory not to be written? it goes on by itself once it can"}
	}
	return err
}
