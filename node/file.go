package node

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"os"
	"sync"
	"sync/atomic"

	"github.com/mattn/go-sqlite3"
)

// A sqliteFile is where a store lies. It may be moved while connections read it:
// those that are opened later look for it where it is then.
type sqliteFile struct {
	mu   sync.RWMutex // guards path
	path string
}

// pool returns a pool of connections to the file with these settings.
func (f *sqliteFile) pool(settings url.Values) *sql.DB {
	return sql.OpenDB(connector{f, settings})
}

// move renames the file with its WAL. Nobody may be writing. What failed midway goes
// on when it is called again.
func (f *sqliteFile) move(to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == to {
		return nil
	}
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(f.path+suffix, to+suffix); err != nil && (suffix == "" || !os.IsNotExist(err)) {
			return err
		}
	}
	f.path = to
	return nil
}

type connector struct {
	file     *sqliteFile
	settings url.Values
}

// Connect implements [driver.Connector].
func (c connector) Connect(context.Context) (driver.Conn, error) {
	c.file.mu.RLock()
	defer c.file.mu.RUnlock()
	return c.Driver().Open(dsn(c.file.path, c.settings))
}

// Driver implements [driver.Connector].
func (connector) Driver() driver.Driver { return &sqlite3.SQLiteDriver{} }

// dsn returns the URI of a file, whatever characters its path has.
func dsn(path string, q url.Values) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// uses counts who uses a thing, so that it ends after the last of them.
type uses struct {
	n     *atomic.Int64
	ended *atomic.Bool
	idle  chan struct{}
}

func newUses() uses {
	return uses{new(atomic.Int64), new(atomic.Bool), make(chan struct{}, 1)}
}

// begin reports whether the thing may be used; then done must follow.
func (u uses) begin() bool {
	u.n.Add(1)
	if !u.ended.Load() {
		return true
	}
	u.done()
	return false
}

func (u uses) done() {
	if u.n.Add(-1) == 0 && u.ended.Load() {
		select {
		case u.idle <- struct{}{}:
		default:
		}
	}
}

// end waits until nobody uses the thing, which nobody can begin to any more.
func (u uses) end() {
	u.ended.Store(true)
	for u.n.Load() > 0 {
		<-u.idle
	}
}
