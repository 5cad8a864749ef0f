package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// InUseError reports a data directory whose lock another process holds.
type InUseError struct {
	Dir string
	PID int // 0 when it is not known
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("data directory %s is in use by another scidex (pid %d)", e.Dir, e.PID)
}

// Lock takes the data directory for this process, until release or the process's
// end, however that comes. It creates dir when it is absent. When another process
// has it, the error is an *InUseError. Attach needs no lock.
func Lock(dir string) (release func(), err error) {
	if dir, err = makeDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	// Close-on-exec, as every file of package os: no child inherits the lock.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		defer f.Close() //nolint:errcheck // nothing was written
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return nil, &InUseError{Dir: dir, PID: numberIn(string(b))}
	}
	// The file is never removed: another process could be about to lock it.
	if err := f.Truncate(0); err != nil {
		_ = f.Close() // err says why
		return nil, err
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		_ = f.Close() // err says why
		return nil, err
	}
	return func() { _ = f.Close() }, nil // it ends the lock, whatever it returns
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
