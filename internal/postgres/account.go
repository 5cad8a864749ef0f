package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is the operating system's user as whom the server runs.
type account struct {
	uid, gid int
	home     string
	other    *syscall.Credential // nil when it is the user of this process
}

// serverAccount is the user of this process, or "postgres" in place of root.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		home, err := os.UserHomeDir()
		if err != nil {
			home = "/"
		}
		return account{uid: os.Geteuid(), gid: os.Getegid(), home: home}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return account{}, fmt.Errorf("PostgreSQL refuses to run as root, and there is no user to run it as (%w): "+
			"make it with \"useradd --system postgres\", or run scidex as a user who is not root", err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return account{}, fmt.Errorf("look up the groups of user postgres: %w", err)
	}
	uid, err := id(u.Uid)
	if err != nil {
		return account{}, err
	}
	gid, err := id(u.Gid)
	if err != nil {
		return account{}, err
	}
	as := account{uid: int(uid), gid: int(gid), home: u.HomeDir, other: &syscall.Credential{Uid: uid, Gid: gid}}
	for _, g := range groups {
		n, err := id(g)
		if err != nil {
			return account{}, err
		}
		as.other.Groups = append(as.other.Groups, n)
	}
	return as, nil
}

func id(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("read the ids of user postgres: %w", err)
	}
	return uint32(n), nil
}

// command prepares a program that runs as the account, in dir, in a process group
// of its own, and without the PG* variables of this process, which would steer it.
func (a account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // callers name programs of the server's or the system's
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: a.other}
	cmd.Env = []string{"HOME=" + a.home, "LC_ALL=C"}
	for _, name := range []string{"PATH", "TMPDIR", "LD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// reaches tells whether the account may enter dir. It tries, so that access lists
// count as much as permission bits do.
func (a account) reaches(ctx context.Context, dir string) (bool, error) {
	err := a.command(ctx, dir, "/bin/sh", "-c", "exit 0").Run()
	if errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EPERM) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("enter %s as user %d: %w", dir, a.uid, err)
	}
	return true, nil
}

// own gives a file that this process made to the account.
func (a account) own(path string) error {
	if a.other == nil {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}
