package inspect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/lock"
)

// namePrefix begins the names of Clients in CLIENT LIST: redlatch:<name>:<client id>.
const namePrefix = "redlatch:"

// MaxName is the longest name of a Client.
const MaxName = 128

// ConnectionName is the name of a Client's connections.
func ConnectionName(name, id string) string { return namePrefix + name + ":" + id }

// ClientID is a new id for a Client: a random UUID whose last four bytes tell of its name, so that a holder can be
// found by the name after it has died.
func ClientID(name string) string {
	id := uuid.New()
	copy(id[len(id)-nameMark:], markOf(name))
	return id.String()
}

// nameMark is how many bytes of a Client's id tell of its name.
const nameMark = 4

func markOf(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:nameMark]
}

// Named reports whether the Client of this id was given this name, as far as the id tells: of 4 billion other names one
// looks the same.
func Named(id, name string) bool {
	return strings.HasSuffix(id, hex.EncodeToString(markOf(name)))
}

// GoodName reports whether a name may stand in CLIENT LIST: the server takes printable
// ASCII without a space.
func GoodName(name string) bool {
	return name != "" && len(name) <= MaxName && !strings.ContainsFunc(name, badInName)
}

// CleanName makes a good name from any text.
func CleanName(text string) string {
	name := strings.Map(func(r rune) rune {
		if badInName(r) {
			return '-'
		}
		return r
	}, text)
	return name[:min(len(name), MaxName)]
}

func badInName(r rune) bool { return r < '!' || r > '~' }

// clients knows where Clients run, by the servers' lists of connections.
type clients struct {
	mu   sync.Mutex
	at   time.Time // guarded by mu; when it was read
	list connected // guarded by mu
}

// connected are the clients of the lists, by their ids.
type connected struct {
	byID  map[string]lock.Process
	whole bool // all masters have told
}

// The list of a busy server is long: it is read again only after this time, sooner
// when an owner is not in it.
const (
	listFresh = 10 * time.Second
	listNewer = time.Second
)

// fill writes into the inspections where their owners run, as far as is known.
func (c *clients) fill(ctx context.Context, i *Inspector, ins []lock.Inspection) {
	var wanted []party
	for n := range ins {
		for m := range ins[n].Holders {
			h := &ins[n].Holders[m]
			wanted = append(wanted, party{&h.Process, h.AskedSince})
		}
		for m := range ins[n].Queue {
			w := &ins[n].Queue[m]
			wanted = append(wanted, party{&w.Process, w.AskedSince})
		}
		for m := range ins[n].Waiting {
			w := &ins[n].Waiting[m]
			wanted = append(wanted, party{&w.Process, w.AskedSince})
		}
	}
	if len(wanted) > 0 {
		c.find(ctx, i, wanted...)
	}
}

// party is a process that is looked for. It was there since then; zero: that is not known.
type party struct {
	*lock.Process
	since time.Time
}

// find writes where processes run, as far as is known. Of one that came after the list was read, or at about that time
// by another clock, the list says nothing.
func (c *clients) find(ctx context.Context, i *Inspector, wanted ...party) {
	list, read := c.known(ctx, i, wanted)
	for _, p := range wanted {
		if found, ok := list.byID[p.ClientID]; ok {
			*p.Process = found
		} else {
			p.Unlisted = list.whole && p.ClientID != "" && (read.IsZero() || p.since.Before(read.Add(-listNewer)))
		}
	}
}

// known is the list, and when it was read; zero: just now.
func (c *clients) known(ctx context.Context, i *Inspector, wanted []party) (list connected, read time.Time) {
	c.mu.Lock()
	list, read = c.list, c.at
	c.mu.Unlock()
	age := time.Since(read)
	missing := func(p party) bool { _, ok := list.byID[p.ClientID]; return !ok }
	if list.byID != nil && age < listFresh && (age < listNewer || !slices.ContainsFunc(wanted, missing)) {
		return list, read
	}
	list = i.connections(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list, c.at = list, time.Now()
	return list, time.Time{}
}

// parseClients reads the answer of CLIENT LIST. Of a client's connections the oldest counts: the
// server turns its list round and round.
func parseClients(text string, into map[string]lock.Process) {
	for _, line := range slices.SortedStableFunc(strings.Lines(text), func(a, b string) int { return cmp.Compare(connectionID(a), connectionID(b)) }) {
		var addr, name string
		for word := range strings.FieldsSeq(line) {
			if v, ok := strings.CutPrefix(word, "addr="); ok {
				addr = v
			} else if v, ok := strings.CutPrefix(word, "name="); ok {
				name = v
			}
		}
		rest, ok := strings.CutPrefix(name, namePrefix)
		at := strings.LastIndexByte(rest, ':')
		if !ok || at < 0 {
			continue
		}
		one := lock.Process{ClientID: rest[at+1:], Client: rest[:at], Addr: addr}
		if known, ok := into[one.ClientID]; ok {
			one = disputed(known, one)
		}
		into[one.ClientID] = one
	}
}

// connectionID is the number of a connection, with which its line begins.
func connectionID(line string) int64 {
	number, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
	n, _ := strconv.ParseInt(number, 10, 64)
	return n
}

// disputed is a client of which a further connection tells: anybody may give any name to his own,
// so two names for one client are both shown. The name of a connection has no space.
func disputed(p, other lock.Process) lock.Process {
	const most = 3
	names := strings.Split(p.Client, ", ")
	if slices.Contains(names, other.Client) || len(names) > most {
		return p
	}
	p.Disputed = true
	if len(names) == most {
		other.Client, other.Addr = "…", "…"
	}
	p.Client += ", " + other.Client
	p.Addr += ", " + other.Addr
	return p
}

// connections asks all masters for their lists at once: one that is silent or refuses hides
// the names of its own only.
func (i *Inspector) connections(ctx context.Context) connected {
	list := connected{byID: map[string]lock.Process{}}
	nodes, err := i.masters(ctx)
	if err != nil {
		return list
	}
	list.whole = true
	texts := make(chan string, len(nodes))
	for _, n := range nodes {
		i.calls.Add(1) // of a call that is counted in
		go func() {    // ends with the answer, or with ctx
			defer i.calls.Done()
			text, err := asked(func() (string, error) {
				return n.client.Do(ctx, n.client.B().Arbitrary("CLIENT", "LIST", "TYPE", "NORMAL").Build()).ToString()
			})
			if err != nil {
				text = "" // not permitted, or not there
			}
			texts <- text
		}()
	}
	for range nodes {
		select {
		case text := <-texts:
			list.whole = list.whole && text != ""
			parseClients(text, list.byID)
			PaceOf(ctx).owe(time.Duration(len(text)) * perByte)
		case <-ctx.Done():
			list.whole = false
			return list
		}
	}
	return list
}

// node is a server that may have locks.
type node struct {
	addr   string
	client rueidis.Client
}

// masters are the servers that have locks, by address.
func (i *Inspector) masters(ctx context.Context) ([]node, error) {
	c := i.conn.Client()
	if !i.conn.Topology().Cluster {
		return []node{{i.cfg.Addr, c}}, nil
	}
	found, err := await(ctx, i, nil, func() (map[string]rueidis.Client, error) { return conn.Masters(ctx, c) })
	if err != nil {
		return nil, err
	}
	out := make([]node, 0, len(found))
	for _, addr := range slices.Sorted(maps.Keys(found)) {
		out = append(out, node{addr, found[addr]})
	}
	return out, nil
}
