package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	// elsewhere holds the clusters of data directories that the server's user
	// cannot reach.
	elsewhere = "/var/lib/scidex"
	// maxSocketDir keeps the socket's path within 103 bytes, the smallest limit
	// of the systems we run on (sockaddr_un.sun_path: macOS 104, Linux 108, each
	// with a closing zero).
	maxSocketDir = 103 - len("/.s.PGSQL."+port)
)

// resolve returns the one absolute name of an existing directory.
func resolve(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("no data directory is given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// makeDir makes a data directory where it is absent and returns its one name.
func makeDir(dir string) (string, error) {
	if dir != "" {
		// Root's lets others through, as the server's user must be; their
		// contents have modes of their own. It never changes one that exists.
		mode := os.FileMode(0o700)
		if os.Geteuid() == 0 {
			mode = 0o711
		}
		if err := os.MkdirAll(dir, mode); err != nil {
			return "", err
		}
	}
	dir, err := resolve(dir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if uid := ownerOf(info); uid != os.Geteuid() {
		return "", fmt.Errorf("data directory %s belongs to user %d, not to user %d who runs this: run it as its owner",
			dir, uid, os.Geteuid())
	}
	return dir, nil
}

func locationPath(dir string) string { return filepath.Join(dir, "postgres.location") }

// readLocation returns the cluster that Dir/postgres.location names, if it is there.
func readLocation(dir string) (cluster string, placed bool, err error) {
	b, err := os.ReadFile(locationPath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	cluster = strings.TrimSpace(string(b))
	if !filepath.IsAbs(cluster) {
		return "", false, fmt.Errorf("%s holds no absolute path", locationPath(dir))
	}
	return cluster, true, nil
}

// place decides where the cluster of a data directory is, once and for all.
func place(ctx context.Context, log *slog.Logger, dir string, as account) (string, error) {
	cluster, placed, err := readLocation(dir)
	if err != nil {
		return "", err
	}
	if !placed {
		cluster = filepath.Join(dir, "postgres")
		reached, err := as.reaches(ctx, dir)
		if err != nil || reached {
			return cluster, err
		}
		if hasCluster(cluster) {
			return "", fmt.Errorf("user postgres cannot enter %s, which holds the cluster: allow it on each directory above (chmod o+x)", dir)
		}
		cluster = filepath.Join(elsewhere, hash(dir), "postgres")
	}
	for _, d := range []string{elsewhere, filepath.Dir(cluster)} {
		if !strings.HasPrefix(cluster, elsewhere+"/") {
			break // moved by hand: its owner answers for the directories above it
		}
		if err := makeOpenDir(d); err != nil {
			return "", err
		}
	}
	if !placed {
		if err := writeFile(locationPath(dir), cluster+"\n"); err != nil {
			return "", err
		}
		log.WarnContext(ctx, "user postgres cannot enter the data directory, so the cluster is elsewhere", "dir", dir, "cluster", cluster)
	}
	return cluster, nil
}

// makeOpenDir makes a directory of root's that others may pass through.
func makeOpenDir(dir string) error {
	err := os.Mkdir(dir, 0o711) //nolint:gosec // others may pass through, not list
	if err == nil {
		return os.Chmod(dir, 0o711) //nolint:gosec // the same, whatever the umask
	}
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	return checkOwner(dir, os.Geteuid())
}

// makeSocketDir makes the private directory of the server's socket: beside the
// cluster when its path is short enough, else one in the system's temporary
// directory that is the same at each start.
func makeSocketDir(ctx context.Context, dir, cluster string, as account) (string, error) {
	short := "scidex-" + hash(dir)
	for _, path := range []string{
		filepath.Join(filepath.Dir(cluster), "postgres.socket"),
		filepath.Join(os.TempDir(), short),
		filepath.Join("/tmp", short),
	} {
		if len(path) > maxSocketDir || !filepath.IsAbs(path) {
			continue
		}
		if reached, err := as.reaches(ctx, filepath.Dir(path)); err != nil || !reached {
			continue
		}
		return path, makePrivateDir(path, as)
	}
	return "", fmt.Errorf("no directory for the server's socket: %s and %s have too long paths or let user %d not in",
		filepath.Dir(cluster), os.TempDir(), as.uid)
}

// makePrivateDir makes a directory that only the account may use. It refuses one
// that another user has put in its place, and a symbolic link.
func makePrivateDir(path string, as account) error {
	err := os.Mkdir(path, 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	// This process's own, from a start that was interrupted here, is as good.
	if checkOwner(path, os.Geteuid()) == nil {
		if err := as.own(path); err != nil {
			return err
		}
	}
	if err := checkOwner(path, as.uid); err != nil {
		return err
	}
	return os.Chmod(path, 0o700) //nolint:gosec // a directory, closed to others
}

// checkOwner tells why path is not a directory of the user's.
func checkOwner(path string, uid int) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no directory: remove it", path)
	}
	if owner := ownerOf(info); owner != uid {
		return fmt.Errorf("%s belongs to user %d, not to user %d: remove it", path, owner, uid)
	}
	return nil
}

func ownerOf(info os.FileInfo) int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(st.Uid)
}

// hash names a data directory in 16 hexadecimal digits.
func hash(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8])
}
