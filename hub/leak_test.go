package hub_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestFollowersLeaveNothing: of followers who come and go by the thousand, however they
// go, neither a goroutine nor an open file is left.
func TestFollowersLeaveNothing(t *testing.T) {
	f := newHub(t)
	url, token := f.serve(t), f.token(t, "vera", "viewer")
	f.mustCreate(t, hypothesis("h", "x"))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	visit := func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		path := []string{"/feed?cursor=0", "/feed", "/feed/backfill", "/feed?cursor=1:99999999"}[i%4]
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, http.NoBody)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if i%3 == 0 { // hangs up before it is answered, or nearly
			go cancel()
		}
		resp, err := client.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if i%2 == 0 {
			_, _ = bufio.NewReader(resp.Body).ReadString('\n')
		}
	}
	const atOnce = 16
	crowd := func(n int, until time.Time) (visits int) {
		var all sync.WaitGroup
		turns := make(chan int)
		for range atOnce {
			all.Go(func() {
				for i := range turns {
					visit(i)
				}
			})
		}
		for visits = 0; visits < n && time.Now().Before(until); visits++ {
			turns <- visits
		}
		close(turns)
		all.Wait()
		return visits
	}
	// Those who come first make the pool's connections, which stay.
	crowd(20*atOnce, time.Now().Add(time.Minute))
	goroutines, files := settled(t)
	// What runs in the background may use a connection more than before, and begin with
	// its jobs.
	const poolRoom, jobsRoom = 4, 24
	visits := crowd(3000, time.Now().Add(10*time.Second))
	t.Logf("%d visits; %d goroutines and %d files before", visits, goroutines, files)
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > goroutines+jobsRoom || openFiles(t) > files+poolRoom; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines and %d files are left of %d and %d\n%s", runtime.NumGoroutine(), openFiles(t), goroutines, files, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// settled waits until the counts have not fallen for a while, and returns them.
func settled(t *testing.T) (goroutines, files int) {
	t.Helper()
	goroutines, files = runtime.NumGoroutine(), openFiles(t)
	for last := time.Now(); time.Since(last) < 500*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		if g, o := runtime.NumGoroutine(), openFiles(t); g < goroutines || o < files {
			goroutines, files, last = min(g, goroutines), min(o, files), time.Now()
		}
	}
	return goroutines, files
}

// openFiles counts the files and sockets that the process has open; 0 where the system
// does not tell.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(files)
}
