package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// A process is a program that can be killed and started again. What it prints goes
// to a file in the run's directory.
type process struct {
	name string
	log  string
	argv []string
	env  []string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

func (p *process) start() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.cmd = exec.Command(p.argv[0], p.argv[1:]...) //nolint:gosec,noctx // our own programs; they outlive no run
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), p.env...), out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	cmd, done := p.cmd, make(chan struct{})
	p.done = done
	go func() {
		_ = cmd.Wait() // it is killed on purpose
		_ = out.Close()
		close(done)
	}()
	return nil
}

// signal sends a signal; a process that has ended gets none.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once and returns when it has ended.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// ensure starts a process that does not run.
func (p *process) ensure() error {
	if p.running() {
		return nil
	}
	return p.start()
}

// output runs a program of the product to its end.
func (c *cluster) output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.bin, args...) //nolint:gosec // our own program
	cmd.Env = append(os.Environ(), "SCIDEX_LOG_LEVEL=error")
	said := new(bytes.Buffer)
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("scidex %v: %w: %.2000s", args, err, said)
	}
	return string(out), nil
}
