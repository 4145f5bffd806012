package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/redlatch/redlatch"
	clients "github.com/redlatch/redlatch/internal/inspect"
)

// lsFlags are the flags of ls.
type lsFlags struct {
	limit                     int
	sort, process, by, output string
}

// groupings are what the parties of locks are grouped by.
var groupings = map[string]func(redlatch.Process, string) string{
	"process": who,
	"owner":   whoOwns,
	"host": func(p redlatch.Process, _ string) string {
		host, _, _ := net.SplitHostPort(p.Addr)
		return cmp.Or(host, "?")
	},
}

// party is who holds locks, and waits for some.
type party struct {
	Name  string   `json:"name"`
	Holds []string `json:"holds"` // a name for each hold
	Waits []string `json:"waits"` // a name for each waiter

	Servers map[string][]string `json:"servers"` // what each deployment has of the holds
	Asked   int                 `json:"asked"`   // of how many
}

// side is a holder, or a waiter.
type side struct {
	redlatch.Process
	owner string
	holds bool
}

// sides are the holders and waiters of a lock that --process means.
func (l lsFlags) sides(in redlatch.Inspection) (out []side) {
	for _, h := range in.Holders {
		out = append(out, side{h.Process, h.Owner, true})
	}
	for _, w := range in.Queue {
		out = append(out, side{w.Process, w.Owner, false})
	}
	for _, w := range in.Waiting {
		out = append(out, side{w.Process, "", false})
	}
	return slices.DeleteFunc(out, func(p side) bool {
		return !strings.Contains(p.Client, l.process) && !strings.HasPrefix(p.Addr, l.process) && !strings.HasPrefix(p.ClientID, l.process) &&
			!clients.Named(p.ClientID, l.process) // who was killed
	})
}

// look completes the parties of a lock, of which a list has a few, where all of them count, and reports whether the
// lock is meant.
func (l lsFlags) look(ctx context.Context, client *redlatch.Client, in *redlatch.Inspection) (bool, error) {
	if l.by+l.process == "" {
		return true, nil
	}
	if in.HolderCount > len(in.Holders) || in.QueueLength > len(in.Queue) || in.Kind == redlatch.KindReentrant && in.Processes > len(in.Waiting) {
		if whole, err := client.Inspect(ctx, in.Name); err == nil {
			*in = whole
		} else if isGone(err) {
			return false, err
		}
	}
	return len(l.sides(*in)) > 0, nil
}

// grouped are the parties of locks of so many deployments, those with the most holds and waiters first.
func (l lsFlags) grouped(locks []*watched, asked int) []*party {
	byName, out := map[string]*party{}, []*party{}
	for _, w := range locks {
		for _, p := range l.sides(w.Inspection) {
			name := groupings[l.by](p.Process, p.owner)
			key := name
			if l.by == "owner" { // a quorum has a Client for each server: only the ends of their ids, which tell of the name, are the same
				key = p.ClientID[max(len(p.ClientID)-8, 0):] + ownerName(p.owner)
			}
			g := byName[key]
			if g == nil {
				g = &party{name, []string{}, []string{}, map[string][]string{}, asked}
				byName[key], out = g, append(out, g)
			}
			if p.holds {
				g.Holds, g.Servers[w.Server] = append(g.Holds, w.Name), append(g.Servers[w.Server], w.Name)
			} else {
				g.Waits = append(g.Waits, w.Name)
			}
		}
	}
	slices.SortFunc(out, func(x, y *party) int {
		return cmp.Or(cmp.Compare(len(y.Holds)+len(y.Waits), len(x.Holds)+len(x.Waits)), strings.Compare(x.Name, y.Name))
	})
	return out
}

// parties writes what ls --by lists.
func (s screen) parties(out io.Writer, by string, parties []*party, servers string) {
	var rows [][]cell
	for _, g := range parties {
		names := strings.Join(slices.Compact(slices.Sorted(slices.Values(slices.Concat(g.Holds, g.Waits)))), ", ")
		on := fmt.Sprintf("%d of %d", len(g.Servers), g.Asked)
		if len(g.Servers) > 0 {
			on += ": " + strings.Join(slices.Sorted(maps.Keys(g.Servers)), ", ")
		}
		rows = append(rows, []cell{{g.Name, cyan}, {fmt.Sprint(len(g.Holds)), ""}, {fmt.Sprint(len(g.Waits)), ""}, {names, dim}, {on, ""}})
	}
	lines, _ := s.lines(strings.ToUpper(by)+"* HOLDS WAITS LOCKS*"+servers, rows)
	fmt.Fprintln(out, strings.Join(lines, "\n"))
}
