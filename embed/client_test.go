package embed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/internal/embedtest"
)

func newClient(t *testing.T, e embed.Endpoint) *embed.Client {
	t.Helper()
	if e.Model == "" {
		e.Model = "grams"
	}
	c, err := embed.NewClient(e)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEndpoint(t *testing.T) {
	for name, e := range map[string]embed.Endpoint{
		"no URL":          {Model: "m"},
		"no host":         {URL: "http://", Model: "m"},
		"a file":          {URL: "file:///etc/passwd", Model: "m"},
		"a password":      {URL: "http://u:p@host", Model: "m"},
		"a query":         {URL: "http://host/v1?key=secret", Model: "m"},
		"a model with \n": {URL: "http://host", Model: "a\nb"},
	} {
		_, err := embed.NewClient(e)
		if _, also := embed.NewReranker(e); err == nil || also == nil {
			t.Errorf("%s is taken", name)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s is told of: %v", name, err)
		}
	}
}

func TestRerankerNeedsAModel(t *testing.T) {
	if _, err := embed.NewReranker(embed.Endpoint{URL: "http://host"}); err == nil {
		t.Error("no model is taken")
	}
}

func TestEmbed(t *testing.T) {
	s := embedtest.New(t)
	for _, url := range []string{s.URL, s.URL + "/", s.URL + "/embeddings"} {
		c := newClient(t, embed.Endpoint{URL: url})
		vectors, err := c.Embed(t.Context(), []string{"amyloid plaques in the cortex", "amyloid plaque of cortices", "budding yeast divides"})
		if err != nil {
			t.Fatal(err)
		}
		near, far := embed.Cosine(vectors[0], vectors[1]), embed.Cosine(vectors[0], vectors[2])
		if near < 0.4 || far > near/2 {
			t.Errorf("the like texts are %v apart, the unlike ones %v", near, far)
		}
	}
}

// TestQuantize checks that a byte a dimension keeps what vectors are for.
func TestQuantize(t *testing.T) {
	a, b := embedtest.Vector("m", "microglia clear the plaques of amyloid"), embedtest.Vector("m", "amyloid is cleared by microglia")
	exact := 0.0
	for i := range a {
		exact += float64(a[i]) * float64(b[i])
	}
	x, err := embed.Quantize(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := embed.Quantize(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := embed.Cosine(x, y); math.Abs(got-exact) > 0.01 {
		t.Errorf("the cosine is %v, exactly %v", got, exact)
	}
	if got := embed.Cosine(x, x); got != 1 {
		t.Errorf("of itself the cosine is %v", got)
	}
	for _, bad := range [][]float32{nil, {0, 0}, {float32(math.NaN())}, {float32(math.Inf(1))}, make([]float32, embed.MaxDims+1)} {
		if _, err := embed.Quantize(bad); err == nil {
			t.Errorf("%.40v is a vector", bad)
		}
	}
}

func TestEmbedTriesAgain(t *testing.T) {
	s := embedtest.New(t)
	var at []time.Time
	s.Fail(func(n int, w http.ResponseWriter, _ *http.Request) bool {
		at = append(at, time.Now())
		switch n {
		case 1:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "slow down", http.StatusTooManyRequests)
		case 2:
			http.Error(w, "down", http.StatusBadGateway)
		}
		return n <= 2
	})
	if _, err := newClient(t, embed.Endpoint{URL: s.URL}).Embed(t.Context(), []string{"text"}); err != nil {
		t.Fatal(err)
	}
	if len(at) != 3 || at[1].Sub(at[0]) < time.Second {
		t.Errorf("it asked %d times, the second %v after the first", len(at), at[1].Sub(at[0]))
	}
}

func TestEmbedRefused(t *testing.T) {
	s := embedtest.New(t)
	s.Require("secret-key")
	_, err := newClient(t, embed.Endpoint{URL: s.URL, Key: "wrong-key"}).Embed(t.Context(), []string{"text"})
	var no *embed.RefusedError
	if !errors.As(err, &no) || no.Status != http.StatusUnauthorized || !no.ForAll() || strings.Contains(err.Error(), "wrong-key") {
		t.Errorf("a wrong key: %v", err)
	}
	if _, err := newClient(t, embed.Endpoint{URL: s.URL, Key: "secret-key"}).Embed(t.Context(), []string{"text"}); err != nil {
		t.Errorf("the right key: %v", err)
	}
}

func TestEmbedOddAnswers(t *testing.T) {
	s := embedtest.New(t)
	c := newClient(t, embed.Endpoint{URL: s.URL})
	for name, body := range map[string]string{
		"no JSON":        `vectors`,
		"too few":        `{"data":[{"index":0,"embedding":[1]}]}`,
		"twice the same": `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`,
		"beyond":         `{"data":[{"index":0,"embedding":[1]},{"index":7,"embedding":[1]}]}`,
		"unlike lengths": `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}`,
		"nowhere":        `{"data":[{"index":0,"embedding":[0]},{"index":1,"embedding":[0]}]}`,
		"empty":          `{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}`,
	} {
		s.Fail(func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, body)
			return true
		})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if v, err := c.Embed(ctx, []string{"a", "b"}); err == nil {
			t.Errorf("%s: %v", name, v)
		}
		cancel()
	}
	s.Fail(func(_ int, w http.ResponseWriter, req *http.Request) bool {
		http.Redirect(w, req, "/elsewhere", http.StatusTemporaryRedirect)
		return true
	})
	if _, err := c.Embed(t.Context(), []string{"a"}); err == nil {
		t.Error("it follows a redirect")
	}
}

func TestQuery(t *testing.T) {
	s := embedtest.New(t)
	c := newClient(t, embed.Endpoint{URL: s.URL})
	for range 3 {
		if _, err := c.Query(t.Context(), "grams", embedtest.Dims, "tau", false); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.Texts()); n != 1 {
		t.Errorf("it asked %d times for one text", n)
	}
	if _, err := c.Query(t.Context(), "grams", embedtest.Dims+1, "tau", false); err == nil {
		t.Error("a vector of other dimensions is taken")
	}
	asked := 0
	s.Fail(func(n int, w http.ResponseWriter, _ *http.Request) bool {
		asked = n
		http.Error(w, "down", http.StatusInternalServerError)
		return true
	})
	for i := range 3 {
		if _, err := c.Query(t.Context(), "grams", embedtest.Dims, fmt.Sprint("text ", i), false); err == nil {
			t.Error("no error of an endpoint that is down")
		}
	}
	if asked != 1 {
		t.Errorf("it asked %d times though the endpoint is down", asked)
	}
	s.Fail(nil)
	if _, err := c.Query(t.Context(), "grams", embedtest.Dims, "text 9", true); err != nil {
		t.Errorf("who insists is not let through: %v", err)
	}
	if _, err := c.Query(t.Context(), "grams", embedtest.Dims, "text 10", false); err != nil {
		t.Errorf("it is taken for down still: %v", err)
	}
}

func TestOrder(t *testing.T) {
	s := embedtest.New(t)
	r, err := embed.NewReranker(embed.Endpoint{URL: s.URL, Model: "grams"})
	if err != nil {
		t.Fatal(err)
	}
	order, err := r.Order(t.Context(), "loss of dopaminergic neurons", []string{"yeast", "dopaminergic neurons are lost", "neurons"})
	if err != nil || len(order) != 3 || order[0] != 1 || order[2] != 0 {
		t.Errorf("the order is %v, %v", order, err)
	}
	for name, body := range map[string]string{
		"too few":   `{"results":[{"index":0,"relevance_score":1}]}`,
		"the same":  `{"results":[{"index":0,"relevance_score":1},{"index":0,"relevance_score":2}]}`,
		"beyond":    `{"results":[{"index":0,"relevance_score":1},{"index":2,"relevance_score":2}]}`,
		"something": `[]`,
	} {
		s.Fail(func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, body)
			return true
		})
		if order, err := r.Order(t.Context(), "q", []string{"a", "b"}); err == nil {
			t.Errorf("%s: %v", name, order)
		}
	}
}

type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestRate checks how often the endpoint is asked, and how long it is waited for.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := newClient(t, embed.Endpoint{URL: "http://model", PerMinute: 30, Timeout: time.Second, HTTP: &http.Client{Transport: answers(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})}})
		if _, err := c.Embed(t.Context(), []string{"text"}); err == nil {
			t.Error("no error of an endpoint that never answers")
		}
		if took := time.Since(start); took < 9*time.Second || took > 2*time.Minute {
			t.Errorf("five tries, one each two seconds, take %v", took)
		}
	})
}

func TestText(t *testing.T) {
	text := embed.Text([]string{"title", strings.Repeat("β", embed.MaxText), "rest"})
	if len(text) > embed.MaxText || len(text) < embed.MaxText-2 || !strings.HasPrefix(text, "title\nβ") || strings.ContainsRune(text, '\uFFFD') {
		t.Errorf("the text is %d bytes: %.20q", len(text), text)
	}
}
