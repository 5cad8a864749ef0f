package hub_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

// getError gets a URL and returns the error that it answers.
func getError(t *testing.T, url, token string) (int, artifact.Error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var e artifact.Error
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatalf("GET %s = %s: %s is no error: %v", url, resp.Status, raw, err)
	}
	return resp.StatusCode, e
}
