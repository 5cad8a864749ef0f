package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// readersArg makes this program read streams for another that measures: what
// reading costs is then none of its own.
const readersArg = "read-streams"

// Readers are connections of another process, which read what they are sent and
// throw it away.
type readers struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// kinds is how many kinds of readers there are.
const kinds = 200

// startReaders connects n readers to an address. Each sends a request, in which
// {n} stands for its number and {kind} for that of its kind, if that is not empty.
func startReaders(ctx context.Context, address string, n int, request string) (*readers, error) {
	r := &readers{cmd: exec.CommandContext(ctx, os.Args[0], readersArg, address, strconv.Itoa(n), request)} //nolint:gosec // this program
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewScanner(out)
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return r, r.cmd.Start()
}

// bytes returns how many bytes the readers have got: the fewest of one, and all.
func (r *readers) bytes() (fewest, all int64, err error) {
	if _, err := fmt.Fprintln(r.in); err != nil {
		return 0, 0, err
	}
	if !r.out.Scan() {
		return 0, 0, errors.New("the readers' process ended")
	}
	_, err = fmt.Sscan(r.out.Text(), &fewest, &all)
	return fewest, all, err
}

// settle waits until the readers have got something each and no more comes.
func (r *readers) settle() (all int64, err error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		fewest, now, err := r.bytes()
		if err != nil {
			return 0, err
		}
		if fewest > 0 && now == all {
			return all, nil
		}
		all = now
		<-time.After(200 * time.Millisecond)
	}
	return 0, errors.New("the readers do not come to rest")
}

func (r *readers) stop() {
	_ = r.in.Close()
	_ = r.cmd.Wait() // what matters was measured
}

// readStreams is the readers' process.
func readStreams(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("want an address, a number and a request")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	got := make([]atomic.Int64, n)
	var group sync.WaitGroup
	for i := range n {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", args[0])
		if err != nil {
			return err
		}
		defer conn.Close() // all of them at the end
		if args[2] != "" {
			if _, err := io.WriteString(conn, strings.NewReplacer("{n}", strconv.Itoa(i), "{kind}", strconv.Itoa(i%kinds)).Replace(args[2])); err != nil {
				return err
			}
		}
		group.Go(func() {
			buf := make([]byte, 16<<10)
			for {
				k, err := conn.Read(buf)
				got[i].Add(int64(k))
				if err != nil {
					return
				}
			}
		})
	}
	for asked := bufio.NewScanner(in); asked.Scan(); {
		fewest, all := got[0].Load(), int64(0)
		for i := range got {
			fewest, all = min(fewest, got[i].Load()), all+got[i].Load()
		}
		if _, err := fmt.Fprintln(out, fewest, all); err != nil {
			return err
		}
	}
	return nil
}
