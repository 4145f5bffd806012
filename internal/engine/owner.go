package engine

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/lock"
)

// owner is who holds locks: all acquisitions made with contexts that carry it
// are one owner's. A generated one may be used on several clients; an explicit
// one belongs to one client.
type owner struct {
	text string // as in the hash field, begins with 'g'
	live atomic.Int64

	// explicit owners are found by id, and forgotten when unused
	core *Core
	id   string
	refs int // guarded by core.mu

	mu    sync.Mutex
	slots []*slot // guarded by mu

	// The first slot, in the owner's own memory: most owners have no other.
	first slot
	list  [1]*slot
	used  bool // guarded by mu
}

// slot is one owner's relation to one lock of one client. All commands of the
// pair pass its gate, one at a time.
type slot struct {
	gate  gate
	owner *owner
	core  *Core
	key   string
	refs  int // guarded by owner.mu

	// guarded by core.mu
	sessions [modes]*session
	watchers []chan struct{} // same-owner acquisitions that wait
}

// The ways of holding a lock that have a hash field of their own.
const (
	modeLock = iota
	modeRead
	modeWrite
	modes
)

func modeIndex(m lock.Mode) int {
	switch m {
	case lock.ModeRead:
		return modeRead
	case lock.ModeWrite:
		return modeWrite
	default:
		return modeLock
	}
}

type ownerKey struct{}

// carried is what a context says about ownership.
type carried struct {
	owner    *owner // inherited from a hold; a generated one
	explicit bool
	id       string
}

var ownerSeq atomic.Uint64

func newOwner() *owner {
	buf := append(make([]byte, 0, 16), 'g')
	return &owner{text: string(strconv.AppendUint(buf, ownerSeq.Add(1), 36))}
}

// WithOwner returns a context whose acquisitions are made by the owner id.
func WithOwner(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, ownerKey{}, carried{explicit: true, id: id})
}

// NewOwner returns a context that carries no owner: each acquisition with it is
// made by a new one.
func NewOwner(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{}, carried{})
}

const maxOwnerID = 256

// owner resolves who acquires with ctx. The caller gives it back with done.
func (c *Core) owner(ctx context.Context) (*owner, error) {
	k, _ := ctx.Value(ownerKey{}).(carried)
	switch {
	case k.explicit:
		if k.id == "" || len(k.id) > maxOwnerID {
			return nil, &lock.InvalidOptionError{Option: "WithOwner", Reason: "an owner id has 1 to " + strconv.Itoa(maxOwnerID) + " bytes"}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		o := c.owners[k.id]
		if o == nil {
			o = &owner{text: "g=" + escapeOwner(k.id), core: c, id: k.id}
			c.owners[k.id] = o
		}
		o.refs++
		return o, nil
	case k.owner != nil && k.owner.live.Load() > 0:
		return k.owner, nil
	}
	return newOwner(), nil
}

func (o *owner) ref() {
	if o.core == nil {
		return
	}
	o.core.mu.Lock()
	o.refs++
	o.core.mu.Unlock()
}

func (o *owner) unref() {
	if o.core == nil {
		return
	}
	o.core.mu.Lock()
	if o.refs--; o.refs == 0 {
		delete(o.core.owners, o.id)
	}
	o.core.mu.Unlock()
}

// escapeOwner makes any id a part of a hash field: no space, no ':', and no '-',
// which divides owner and acquisition.
func escapeOwner(id string) string {
	var b strings.Builder
	for i := 0; i < len(id); i++ {
		switch ch := id[i]; {
		case ch >= 'a' && ch <= 'z', ch >= 'A' && ch <= 'Z', ch >= '0' && ch <= '9', ch == '.', ch == '_':
			b.WriteByte(ch)
		default:
			const hex = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(hex[ch>>4])
			b.WriteByte(hex[ch&15])
		}
	}
	return b.String()
}

// slot finds the owner's relation to a lock and keeps it until releaseSlot.
func (o *owner) slot(c *Core, key string) *slot {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.slots {
		if s.core == c && s.key == key {
			s.refs++
			return s
		}
	}
	s := &o.first
	if o.used {
		s = &slot{}
	} else {
		o.used, o.slots = true, o.list[:0]
	}
	s.owner, s.core, s.key, s.refs = o, c, key, 1
	o.slots = append(o.slots, s)
	return s
}

func (s *slot) retain() {
	s.owner.mu.Lock()
	s.refs++
	s.owner.mu.Unlock()
	s.owner.ref()
}

// release gives back what slot or retain kept, and the owner with it.
func (s *slot) release() {
	o := s.owner
	o.mu.Lock()
	if s.refs--; s.refs == 0 {
		for i, x := range o.slots {
			if x == s {
				o.slots = append(o.slots[:i], o.slots[i+1:]...)
				break
			}
		}
	}
	o.mu.Unlock()
	o.unref()
}

// watch registers a same-owner acquisition that waits: it can re-enter as soon
// as another one has acquired.
func (s *slot) watch() chan struct{} {
	ch := make(chan struct{}, 1)
	s.core.mu.Lock()
	s.watchers = append(s.watchers, ch)
	for _, sess := range s.sessions {
		if sess != nil {
			ch <- struct{}{} // it acquired before we were here to be told
			break
		}
	}
	s.core.mu.Unlock()
	return ch
}

func (s *slot) unwatch(ch chan struct{}) {
	s.core.mu.Lock()
	for i, w := range s.watchers {
		if w == ch {
			s.watchers = append(s.watchers[:i], s.watchers[i+1:]...)
			break
		}
	}
	s.core.mu.Unlock()
}

func (s *slot) tellWatchersLocked() {
	for _, ch := range s.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
