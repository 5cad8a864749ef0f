package node_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/verb"
)

// open counts the process's files and goroutines.
func open(t *testing.T) (files, goroutines int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries), runtime.NumGoroutine()
}

// TestStreamsLeakNothing connects and drops 10,000 streams of a node, each fifth a
// durable one: in the end there are as many goroutines and files as before.
func TestStreamsLeakNothing(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 500
	}
	l := newLabs(t)
	host := strings.TrimPrefix(l.a.url, "http://")
	token := l.token(t, "ada")
	connect := func(i int) {
		query := "types=hypothesis.*"
		if i%5 == 0 {
			query += fmt.Sprintf("&durable=true&consumer_id=c%d", i%50)
		}
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "GET %s?%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", verb.SubscribePath, query, token)
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		line, err := bufio.NewReader(conn).ReadString('\n')
		// Consumers that several want at once may be refused.
		if err != nil || !strings.Contains(line, " 200 ") && i%5 != 0 {
			t.Errorf("stream %d: %q %v", i, line, err)
		}
	}
	run := func(n int) {
		var wait sync.WaitGroup
		slots := make(chan struct{}, 32)
		for i := range n {
			slots <- struct{}{}
			wait.Go(func() {
				connect(i)
				<-slots
			})
		}
		wait.Wait()
		http.DefaultClient.CloseIdleConnections()
	}
	run(100) // what is made once
	settled := func() (int, int) {
		files, goroutines := open(t)
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			f, g := open(t)
			if f == files && g == goroutines {
				break
			}
			files, goroutines = f, g
		}
		return files, goroutines
	}
	files, goroutines := settled()
	run(n)
	eventually(t, 60*time.Second, "files and goroutines are as many as before", func() bool {
		f, g := open(t)
		return f <= files+8 && g <= goroutines+16 // an idle connection of the hub's, and who reads it
	})
	f, g := open(t)
	t.Logf("before %d files and %d goroutines, after %d streams %d and %d", files, goroutines, n, f, g)
}

// TestSlowSubscriber stops reading for a while amid many large events, and goes on:
// it misses nothing, and others get theirs meanwhile.
func TestSlowSubscriber(t *testing.T) {
	l := newLabs(t)
	token := l.token(t, "ada")
	begun := artifact.Seq(0)
	var slow, quick []artifact.Seq
	stopped, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const events = 1000
	follow := func(into *[]artifact.Seq, each func(n int)) chan error {
		ended := make(chan error, 1)
		go func() {
			dial := func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				if tcp, ok := conn.(*net.TCPConn); ok && into == &slow {
					_ = tcp.SetReadBuffer(32 << 10)
				}
				return conn, err
			}
			client := &event.Client{URL: l.a.url, Token: token, HTTP: &http.Client{Transport: &http.Transport{DialContext: dial}}}
			ended <- client.Follow(ctx, verb.SubscribeRequest{Types: []string{"hypothesis.created"}, Since: &begun}, func(e verb.Event) error {
				*into = append(*into, e.ID)
				if each(len(*into)); len(*into) == events {
					return io.EOF
				}
				return nil
			})
		}()
		return ended
	}
	slowly := follow(&slow, func(n int) {
		if n == 5 {
			close(stopped)
			<-release
		}
	})
	quickly := follow(&quick, func(int) {})
	ada := l.as(t, "ada")
	for i := range events / 1000 {
		var in verb.BatchRequest
		for j := range 1000 {
			it := statement("", fmt.Sprintf("h%d-%d-%s", i, j, strings.Repeat("x", 180)), "x")
			in.Items = append(in.Items, verb.BatchItem{Create: &it})
		}
		must(t, verb.Batch, ada, in)
	}
	if err := <-quickly; err != io.EOF { //nolint:errorlint // it is returned as it is
		t.Fatalf("the other ends with %v", err)
	}
	<-stopped
	select {
	case err := <-slowly:
		t.Fatalf("the slow one is done: %v", err)
	default:
	}
	close(release)
	if err := <-slowly; err != io.EOF { //nolint:errorlint // it is returned as it is
		t.Fatalf("the slow one ends with %v", err)
	}
	if fmt.Sprint(slow) != fmt.Sprint(quick) {
		t.Errorf("the slow one saw %v, the other %v", slow, quick)
	}
}
