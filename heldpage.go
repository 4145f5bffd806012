package redlatch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch/internal/quote"
)

// The bounds of what HeldHandler shows, and of the waiters that it looks at.
const (
	mostRows    = 1000
	mostWaiting = 10000
)

// heldPage is what HeldHandler shows, as JSON. Times are UTC, durations are in seconds.
type heldPage struct {
	Client       string       `json:"client"`
	ClientID     string       `json:"client_id"`
	At           time.Time    `json:"at"`
	HeldCount    int          `json:"held_count"`
	Held         []heldRow    `json:"held"`
	WaitingCount int          `json:"waiting_count"`
	Waiting      []waitingRow `json:"waiting"`
	Servers      []serverRow  `json:"servers"`
}

type heldRow struct {
	Name      string    `json:"name"`
	Type      string    `json:"type"`
	Owner     string    `json:"owner"`
	Count     int       `json:"count"`
	HeldSince time.Time `json:"held_since"`
	Held      float64   `json:"held_seconds"`
	LeaseLeft float64   `json:"remaining_seconds"` // until the local deadline
	Renewed   bool      `json:"renewed"`
}

type waitingRow struct {
	Name       string    `json:"name"`
	Type       string    `json:"type"`
	Owner      string    `json:"owner,omitempty"`
	AskedSince time.Time `json:"asked_since"`
	Waiting    float64   `json:"waiting_seconds"`
	Holder     string    `json:"holder,omitempty"`
}

type serverRow struct {
	Server     string `json:"server"`
	Unanswered int    `json:"unanswered"` // commands
	Problem    string `json:"problem"`
}

// HeldHandler serves what this Client holds and waits for, as text, or as JSON if the request accepts application/json
// or has ?format=json:
//   - each lock that is held, by which owner, since when it was granted, and what is left of its lease until the local
//     deadline;
//   - each call that waits, since when, and for whom, if that is known; of several calls for one QuorumLock the first;
//   - the servers that fail or are silent, with the number of commands without an answer. A call whose first command has
//     no answer is only counted here.
//
// The longest-held and the longest-waiting come first, 1,000 of each at most. Times are UTC, lengths are in seconds.
// What does not print is shown as in a Go string.
//
// It has no access control, and shows names of locks and the ids of [WithOwner]: serve it on a debug port that only
// operators reach. It changes nothing, sends no command and shows no credentials. It answers at once, also while the
// servers are silent, and looks at all holds: 100,000 take about ten milliseconds, in which locks of this Client wait.
// It is safe for concurrent use.
func (c *Client) HeldHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		write, show, kind := writeText, quote.Text, "text/plain; charset=utf-8"
		if r.URL.Query().Get("format") == "json" || strings.Contains(r.Header.Get("Accept"), "application/json") {
			write, show, kind = writeJSON, quote.Exact, "application/json"
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_ = write(w, c.heldPage(show)) // an error: the reader has gone
	})
}

// heldPage has texts of others as show makes them.
func (c *Client) heldPage(show func(string) string) *heldPage {
	now := time.Now()
	p := &heldPage{
		Client: show(c.name), ClientID: c.ID(), At: now.UTC(), Held: []heldRow{}, Waiting: []waitingRow{}, Servers: []serverRow{},
	}
	held, all := c.core.Oldest(mostRows)
	p.HeldCount = all
	for _, h := range held {
		p.Held = append(p.Held, heldRow{
			Name: show(h.Name), Type: h.Type, Owner: show(h.Owner), Count: h.Count, HeldSince: h.HeldSince.UTC(),
			Held: seconds(now.Sub(h.HeldSince)), LeaseLeft: seconds(h.ValidUntil.Sub(now)), Renewed: !h.Fixed,
		})
	}
	waiting := c.core.Waiting(mostWaiting)
	p.WaitingCount = len(waiting)
	for _, w := range waiting[:min(len(waiting), mostRows)] {
		p.Waiting = append(p.Waiting, waitingRow{
			Name: show(w.Name), Type: w.Type, Owner: show(w.Owner), AskedSince: w.Since.UTC(),
			Waiting: seconds(now.Sub(w.Since)), Holder: show(w.Holder),
		})
	}
	for _, t := range c.core.Troubled() {
		p.Servers = append(p.Servers, serverRow{Server: show(t.Node), Unanswered: t.Unanswered, Problem: quote.Line(t.Err.Error())})
	}
	return p
}

// seconds is a length in seconds, to the millisecond.
func seconds(d time.Duration) float64 { return max(d, 0).Round(time.Millisecond).Seconds() }

func writeJSON(to io.Writer, p *heldPage) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return e.Encode(p)
}

func writeText(to io.Writer, p *heldPage) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s %s: %d held, %d waiting at %s\n", p.Client, p.ClientID, p.HeldCount, p.WaitingCount, p.At.Format(time.RFC3339))
	for _, s := range p.Servers {
		fmt.Fprintf(w, "server %s: %s, %d commands without an answer\n", s.Server, s.Problem, s.Unanswered)
	}
	if len(p.Held) > 0 {
		fmt.Fprintf(w, "\nHELD\tLEASE LEFT\tTYPE\tCOUNT\tNAME\tOWNER\n")
	}
	for _, h := range p.Held {
		fmt.Fprintf(w, "%.1fs\t%.1fs\t%s\t%d\t%s\t%s\n", h.Held, h.LeaseLeft, h.Type, h.Count, h.Name, h.Owner)
	}
	if len(p.Waiting) > 0 {
		fmt.Fprintf(w, "\nWAITING\tTYPE\tNAME\tOWNER\tHOLDER\n")
	}
	for _, l := range p.Waiting {
		fmt.Fprintf(w, "%.1fs\t%s\t%s\t%s\t%s\n", l.Waiting, l.Type, l.Name, cmp.Or(l.Owner, "?"), cmp.Or(l.Holder, "?"))
	}
	return w.Flush()
}
