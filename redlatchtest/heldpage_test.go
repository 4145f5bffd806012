package redlatchtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/redlatchtest"
)

func page(client *redlatch.Client, method, accept string) (int, string) {
	r := httptest.NewRequest(method, "/", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	client.HeldHandler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// What HeldHandler shows prints, whatever names and owners are, has a bound, and can't be posted to.
func TestHeldPageIsSafe(t *testing.T) {
	client := redlatchtest.New(t)
	const hostile = "a\n\x1b[31m<b>\u202e\xff"
	mustLock(t, redlatch.WithOwner(t.Context(), hostile), client.RLock(hostile))
	for i := range 1100 {
		mustLock(t, redlatch.WithOwner(t.Context(), "many"), client.RLock(fmt.Sprint("l", i)))
	}
	status, text := page(client, "GET", "text/html, */*")
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !strings.Contains(text, `a\n\x1b[31m`) {
		t.Errorf("what does not print: %.300q", text)
	}
	if lines := strings.Count(text, "\n"); status != 200 || lines != 1+2+1000 || strings.Contains(text, "l999\n") {
		t.Errorf("status %d, %d lines", status, lines)
	}
	var shown struct {
		Client    string
		HeldCount int                             `json:"held_count"`
		Held      []struct{ Name, Owner string }  `json:"held"`
		Waiting   []struct{ Name, Holder string } `json:"waiting"`
	}
	if _, text := page(client, "GET", "application/json"); json.Unmarshal([]byte(text), &shown) != nil {
		t.Fatalf("no JSON: %.300s", text)
	}
	if shown.HeldCount != 1101 || len(shown.Held) != 1000 || shown.Held[0].Name != `a\n\x1b[31m<b>\u202e\xff` || shown.Held[999].Name != "l998" {
		t.Errorf("%d holds, %d shown: %.300q … %q", shown.HeldCount, len(shown.Held), shown.Held[0], shown.Held[len(shown.Held)-1])
	}
	if strings.ContainsFunc(shown.Client+shown.Held[0].Owner, func(r rune) bool { return !unicode.IsPrint(r) }) || shown.Waiting == nil {
		t.Errorf("%+v", shown.Held[0])
	}
	status, _ = page(client, http.MethodPost, "")
	testbed.Equal(t, status, http.StatusMethodNotAllowed, "the status of a POST")
}
