package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// attachGrace is how long Attach waits for a server that is starting.
const attachGrace = 10 * time.Second

// Attach returns the connection string of the server that another process runs in
// the data directory dir, as Server.URL does. It starts, owns and changes nothing.
// Without a server, running is false and url is empty.
func Attach(ctx context.Context, dir string) (url string, running bool, err error) {
	url, err = attach(ctx, dir)
	if err != nil {
		return "", false, fmt.Errorf("attach to postgres in %s: %w", dir, err)
	}
	return url, url != "", nil
}

func attach(ctx context.Context, dir string) (string, error) {
	dir, err := resolve(dir)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	cluster, placed, err := readLocation(dir)
	if err != nil {
		return "", err
	}
	if !placed {
		cluster = filepath.Join(dir, "postgres")
	}
	ctx, cancel := context.WithTimeout(ctx, attachGrace)
	defer cancel()
	for {
		pm, running, err := findPostmaster(ctx, cluster)
		if err != nil || !running {
			return "", err
		}
		password, err := readPassword(dir)
		if err != nil {
			return "", err
		}
		a := access{socketDir: pm.socketDir, password: password}
		err = errors.New("it does not listen yet")
		if pm.socketDir != "" {
			// Role and database may be missing for a moment in a new cluster,
			// so no answer is final before the time is up.
			if err = a.ping(ctx, a.url()); err == nil {
				return a.url(), nil
			}
		}
		if pause(ctx) != nil {
			return "", fmt.Errorf("pid %d: %w", pm.pid, err)
		}
	}
}
