package postgres

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxLog is the size in bytes past which a start sets the server's log aside.
const maxLog = 16 << 20

// logFile is the server's log, as seen by one start of it.
type logFile struct {
	path  string
	file  *os.File // open only while the server is being started
	start int64    // offset where this start's messages begin; 0 when adopted
}

func logPath(dir string) string { return filepath.Join(dir, "postgres.log") }

// openLog opens the log for appending. One that has grown large becomes
// postgres.log.1, in place of the last of that name.
func openLog(dir string) (logFile, error) {
	path := logPath(dir)
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return logFile{}, err
	}
	var size int64
	if err == nil {
		size = info.Size()
	}
	if size > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return logFile{}, err
		}
		size = 0
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return logFile{}, err
	}
	return logFile{path: path, file: f, start: size}, nil
}

// tail returns the end of what this start logged, for an error's message.
func (l logFile) tail() string {
	const most = 2000
	f, err := os.Open(l.path)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // it is only read
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := max(l.start, info.Size()-most)
	b, err := io.ReadAll(io.NewSectionReader(f, from, most))
	if err != nil || len(b) == 0 {
		return ""
	}
	return "; the end of " + l.path + ":\n" + strings.TrimSpace(string(b))
}
