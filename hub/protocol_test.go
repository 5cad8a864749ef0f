package hub_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

const protocolFile = "../docs/PROTOCOL.md"

// TestProtocolSession replays the session that docs/PROTOCOL.md tells of on a hub:
// what each block of commands brings is what the block after it says.
func TestProtocolSession(t *testing.T) {
	raw, err := os.ReadFile(protocolFile)
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t)
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```\n\n```json\n(.*?)^```\n")
	asked := 0
	got := blocks.ReplaceAllStringFunc(string(raw), func(found string) string {
		asked++
		commands := blocks.FindStringSubmatch(found)[1]
		var out strings.Builder
		for command := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSpace(commands), "\\\n", ""), "\n") {
			out.WriteString(s.run(command))
		}
		return "```sh\n" + commands + "```\n\n```json\n" + out.String() + "```\n"
	})
	if asked < 10 {
		t.Errorf("the session has %d steps", asked)
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(protocolFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != string(raw) {
		t.Errorf("%s is stale: run make generate\n%s", protocolFile, firstDifference(raw, []byte(got)))
	}
}

// sessionStart is the head of the log when the session begins.
const sessionStart = 200

// A session runs commands on a hub. What differs from run to run it writes as a
// number: the n-th id or hash that came. In a command that number means the same.
type session struct {
	*fixture
	t       *testing.T
	metrics *prometheus.Registry
	vars    *strings.Replacer
	names   map[string]string // of ids and hashes
	real    map[string]string // by these names
	came    map[string]int    // how many ids and hashes
}

// newSession has a hub whose log ends at sessionStart, its beginning trimmed.
func newSession(t *testing.T) *session {
	t.Helper()
	metrics := prometheus.NewRegistry()
	f := newHubWith(t, hub.Config{DB: pgtest.New(t, initSmall), PartitionRows: smallPartition, Metrics: metrics})
	f.scope(t, "lab-a")
	f.grant(t, "lab-a", "ada", verb.Contributor)
	f.grant(t, "lab-a", "root", verb.Contributor, verb.Admin)
	for _, who := range []string{"ada", "root"} { // who is known then
		for _, scope := range []string{artifact.Commons, "lab-a"} {
			known := hypothesis(who, "x")
			known.Scope = scope
			callOK(t, verb.Create, f.member(t.Context(), who, verb.Contributor, verb.Admin), f.verbs, known)
		}
	}
	const floor = sessionStart/smallPartition*smallPartition - 1
	if n := floor - 1 - int(f.head(t)); n > 0 {
		appendRows(t, f.db, n, "internal", artifact.Commons, "test:fill")
	}
	for f.head(t) < sessionStart-2 {
		appendRows(t, f.db, 1, "internal", artifact.Commons, "test:fill")
	}
	appendRows(t, f.db, 1, "public", artifact.Commons, "test:fill")
	appendRows(t, f.db, 1, "public", "lab-a", "test:fill")
	s := &session{fixture: f, t: t, metrics: metrics, names: map[string]string{}, real: map[string]string{}, came: map[string]int{}}
	if s.caughtUp(); f.head(t) != sessionStart {
		t.Fatalf("the log begins with %d rows, more than the session leaves room for", f.head(t))
	}
	f.trim(t, hub.Retention{Age: time.Nanosecond, Lease: time.Nanosecond}, false)
	bearer := func(sub string, permission verb.Permission) string {
		return "Authorization: Bearer " + f.token(t, sub, permission)
	}
	s.vars = strings.NewReplacer(
		"$HUB", f.serve(t), "$ADA", bearer("ada", verb.Contributor), "$VIC", bearer("vic", verb.Viewer), "$ROOT", bearer("root", verb.Admin),
	)
	return s
}

// caughtUp waits until the hub would send all that is written.
func (s *session) caughtUp() {
	head := s.head(s.t)
	eventually(s.t, "the hub has read its log", func() bool { return gauge(s.t, s.metrics, "scidex_hub_log_head") == float64(head) })
}

// run runs a command as a shell would and returns what it prints.
func (s *session) run(command string) string {
	s.t.Helper()
	for name, value := range s.real {
		command = strings.ReplaceAll(command, "<"+name+">", value)
	}
	var words []string
	for _, m := range aWord.FindAllStringSubmatch(s.vars.Replace(command), -1) {
		words = append(words, m[1]+m[2]+m[3])
	}
	if len(words) == 0 || words[0] != "curl" {
		s.t.Fatalf("no command: %s", command)
	}
	var url, body, status string
	lines, last, quiet, head := -1, 0, false, http.Header{}
	for i := 1; i < len(words); i++ {
		next := func() string {
			if i++; i == len(words) {
				s.t.Fatalf("the command ends early: %s", command)
			}
			return words[i]
		}
		switch w := words[i]; {
		case w == "-s" || w == "-sN":
		case w == "-H":
			name, value, _ := strings.Cut(next(), ": ")
			head.Set(name, value)
		case w == "-d":
			body = next()
		case w == "-w":
			status = next()
		case w == "-o":
			quiet = next() == "/dev/null"
		case w == "|":
			which := next()
			n, err := strconv.Atoi(strings.TrimPrefix(next(), "-"))
			if err != nil {
				s.t.Fatal(err)
			}
			if which == "tail" {
				last = n
			} else {
				lines = n
			}
		case strings.HasPrefix(w, "http"):
			url = w
		default:
			s.t.Fatalf("%s: what is %q?", command, w)
		}
	}
	got, code := s.fetch(url, head, body, lines)
	var out strings.Builder
	if !quiet {
		all := bytes.SplitAfter(bytes.TrimSuffix(got, []byte("\n")), []byte("\n"))
		if last > 0 {
			all = all[max(0, len(all)-last):]
		}
		for _, line := range all {
			out.WriteString(fold(s.t, s.same(string(line))))
		}
	}
	if status != "" {
		out.WriteString(strings.NewReplacer("%{http_code}", strconv.Itoa(code), `\n`, "\n").Replace(status))
	}
	return out.String()
}

// fetch asks for a URL and reads some lines of the answer, or all.
func (s *session) fetch(url string, head http.Header, body string, lines int) (got []byte, status int) {
	s.t.Helper()
	s.caughtUp()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
		head.Set("Content-Type", "application/json")
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = head
	resp, err := (&http.Client{Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if lines < 0 {
		if got, err = io.ReadAll(resp.Body); err != nil {
			s.t.Fatal(err)
		}
		return got, resp.StatusCode
	}
	one := make([]byte, 1)
	for n := 0; n < lines; {
		if _, err := io.ReadFull(resp.Body, one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			s.t.Fatalf("%s: after %s: %v", url, got, err)
		}
		if got = append(got, one[0]); one[0] == '\n' {
			n++
		}
	}
	return got, resp.StatusCode
}

var (
	aWord       = regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`)
	aHash       = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
	anyEstimate = regexp.MustCompile(`"estimate":\{[^}]*\}`)
)

// same takes out of an answer what differs from run to run.
func (s *session) same(text string) string {
	numbered := func(kind string) func(string) string {
		return func(found string) string {
			name, ok := s.names[found]
			if !ok {
				s.came[kind]++
				name = fmt.Sprint(kind, " ", s.came[kind])
				s.names[found], s.real[name] = name, found
			}
			return "<" + name + ">"
		}
	}
	text = aHash.ReplaceAllStringFunc(text, numbered("hash"))
	text = anyUUID.ReplaceAllStringFunc(text, numbered("id"))
	text = anyTime.ReplaceAllString(text, "2026-01-15T09:30:00.000Z")
	return anyEstimate.ReplaceAllStringFunc(text, func(found string) string { // it is the planner's guess
		return regexp.MustCompile(`\d+`).ReplaceAllString(found, "10")
	})
}

const foldWidth = 110 // columns

// fold breaks a line of JSON where it is too long to read. Nothing else changes.
func fold(t *testing.T, line string) string {
	t.Helper()
	var out strings.Builder
	column := 0
	put := func(s string) {
		out.WriteString(s)
		column += utf8.RuneCountInString(s)
	}
	var write func(raw json.RawMessage, indent string)
	write = func(raw json.RawMessage, indent string) {
		if column+len(raw) <= foldWidth || raw[0] != '{' && raw[0] != '[' {
			put(string(raw))
			return
		}
		put(string(raw[:1]))
		inner := indent + " "
		for i, m := range members(t, raw) {
			if i > 0 {
				put(",")
				if column+len(m.key)+len(m.value) > foldWidth {
					out.WriteString("\n")
					column = 0
					put(inner)
				}
			}
			put(m.key)
			write(m.value, inner)
		}
		put(string(raw[len(raw)-1:]))
	}
	write(json.RawMessage(strings.TrimSpace(line)), "")
	return out.String() + "\n"
}

type member struct {
	key   string // with its colon; "" in an array
	value json.RawMessage
}

// members returns what stands in an object or array, in order.
func members(t *testing.T, raw json.RawMessage) (all []member) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		var m member
		if raw[0] == '{' {
			key, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			m.key = fmt.Sprintf("%q:", key)
		}
		if err := d.Decode(&m.value); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}
