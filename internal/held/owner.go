package held

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/lock"
)

// Owner is who holds locks: all acquisitions made with contexts that carry it
// are one owner's. A generated one may be used on several clients; an explicit
// one belongs to one client.
type Owner struct {
	seq  uint64 // of a generated one, whose text is made of it
	live atomic.Int64

	explicit *explicit // nil: a generated one

	mu     sync.Mutex
	claims []*Claim            // guarded by mu, while they are few
	many   map[claimKey]*Claim // guarded by mu, when they are not
	first  Claim               // in the owner's own memory: most owners have no other
	list   [1]*Claim
	used   bool // guarded by mu: first is taken
}

// explicit is what an owner has that was named by the user: it is found by its id, and
// forgotten when unused.
type explicit struct {
	reg  *Registry
	id   string
	refs int // guarded by reg.mu
}

type claimKey struct {
	reg *Registry
	key string
}

// fewClaims are looked through one by one.
const fewClaims = 16

// Claim is one owner's relation to one lock of one client. All its commands but
// renewals pass its gate, one at a time.
type Claim struct {
	Gate  Gate
	Owner *Owner
	reg   *Registry
	key   string
	refs  int // guarded by Owner.mu

	// guarded by reg.mu
	sessions [modes]*Session
	watchers []Watcher
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
	owner    *Owner // inherited from a hold; a generated one
	explicit bool
	id       string
}

var ownerSeq atomic.Uint64

func newOwner() *Owner { return &Owner{seq: ownerSeq.Add(1)} }

// AppendText appends the owner's part of a hash field, which begins with 'g'.
func (o *Owner) AppendText(to []byte) []byte {
	if o.explicit != nil {
		return append(append(to, "g="...), escapeOwner(o.explicit.id)...)
	}
	return strconv.AppendUint(append(to, 'g'), o.seq, 36)
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

// Owner finds out who acquires with ctx. The owner lives until Unpin, so that
// nothing that is acquired meanwhile is another one's. A fresh one is nobody's but the
// caller's, until a hold of it is: it holds nothing, and no other call acquires for it.
func (r *Registry) Owner(ctx context.Context) (o *Owner, fresh bool, err error) {
	k, _ := ctx.Value(ownerKey{}).(carried)
	if k.explicit {
		if err := checkOwner(k.id); err != nil {
			return nil, false, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		o = r.owners[k.id]
		if o == nil {
			o = &Owner{explicit: &explicit{reg: r, id: k.id}}
			r.owners[k.id] = o
		}
		o.explicit.refs++
		return o, false, nil
	}
	if k.owner.pin() {
		return k.owner, false, nil
	}
	o = newOwner()
	o.live.Store(1)
	return o, true, nil
}

// pin keeps a generated owner alive if it is: an inherited owner means something
// only while one of its holds lives.
func (o *Owner) pin() bool {
	if o == nil {
		return false
	}
	for {
		n := o.live.Load()
		if n == 0 {
			return false
		}
		if o.live.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Unpin ends what Registry.Owner began.
func (o *Owner) Unpin() {
	if o.explicit == nil {
		o.live.Add(-1)
		return
	}
	o.unref()
}

// OneOwner returns a context whose acquisitions have one owner, on every client:
// that of ctx, or else a new one; and the same of spanned, which is ctx with a
// span. done ends what keeps the owner alive while nothing is held yet.
func OneOwner(ctx, spanned context.Context) (one, oneSpanned context.Context, done func()) {
	k, _ := ctx.Value(ownerKey{}).(carried)
	if k.explicit {
		return ctx, spanned, func() {}
	}
	if k.owner.pin() {
		return ctx, spanned, k.owner.Unpin
	}
	o := newOwner()
	o.live.Store(1)
	who := carried{owner: o}
	one = context.WithValue(ctx, ownerKey{}, who)
	if oneSpanned = one; spanned != ctx {
		oneSpanned = context.WithValue(spanned, ownerKey{}, who)
	}
	return one, oneSpanned, o.Unpin
}

// OwnerOf is who acquires with a context that [OneOwner] returned, as a value to compare
// with others: two are equal if their acquisitions on one client are one owner's.
func OwnerOf(ctx context.Context) (any, error) {
	k, _ := ctx.Value(ownerKey{}).(carried)
	if !k.explicit {
		return k.owner, nil
	}
	return k.id, checkOwner(k.id)
}

func checkOwner(id string) error {
	if id == "" || len(id) > maxOwnerID {
		return &lock.InvalidOptionError{Option: "WithOwner", Reason: "an owner id has 1 to " + strconv.Itoa(maxOwnerID) + " bytes"}
	}
	return nil
}

func (o *Owner) ref() {
	if o.explicit == nil {
		return
	}
	x := o.explicit
	x.reg.mu.Lock()
	x.refs++
	x.reg.mu.Unlock()
}

func (o *Owner) unref() {
	if o.explicit == nil {
		return
	}
	x := o.explicit
	x.reg.mu.Lock()
	if x.refs--; x.refs == 0 {
		delete(x.reg.owners, x.id)
	}
	x.reg.mu.Unlock()
}

// carries is what the contexts of the owner's holds say.
func (o *Owner) carries() carried {
	if o.explicit != nil {
		return carried{explicit: true, id: o.explicit.id}
	}
	return carried{owner: o}
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

// Claim finds the owner's relation to a lock and keeps it until Release.
func (o *Owner) Claim(r *Registry, key string) *Claim {
	o.mu.Lock()
	c := o.findLocked(r, key)
	if c != nil {
		c.refs++
		o.mu.Unlock()
		o.ref()
		return c
	}
	c = &o.first
	if o.used {
		c = &Claim{}
	} else {
		o.used, o.claims = true, o.list[:0]
	}
	c.Owner, c.reg, c.key, c.refs = o, r, key, 1
	o.addLocked(c)
	o.mu.Unlock()
	o.ref()
	return c
}

func (o *Owner) findLocked(r *Registry, key string) *Claim {
	if o.many != nil {
		return o.many[claimKey{r, key}]
	}
	for _, c := range o.claims {
		if c.reg == r && c.key == key {
			return c
		}
	}
	return nil
}

func (o *Owner) addLocked(c *Claim) {
	if o.many == nil && len(o.claims) < fewClaims {
		o.claims = append(o.claims, c)
		return
	}
	if o.many == nil {
		o.many = make(map[claimKey]*Claim, 2*fewClaims)
		for _, x := range o.claims {
			o.many[claimKey{x.reg, x.key}] = x
		}
		o.claims = nil
	}
	o.many[claimKey{c.reg, c.key}] = c
}

func (o *Owner) dropLocked(c *Claim) {
	if o.many != nil {
		delete(o.many, claimKey{c.reg, c.key})
		return
	}
	if i := slices.Index(o.claims, c); i >= 0 {
		o.claims = slices.Delete(o.claims, i, i+1)
	}
}

// Retain keeps the claim once more.
func (c *Claim) Retain() {
	c.Owner.mu.Lock()
	c.refs++
	c.Owner.mu.Unlock()
	c.Owner.ref()
}

// retainLocked is Retain where the registry's mutex is held.
func (c *Claim) retainLocked() {
	c.Owner.mu.Lock()
	c.refs++
	c.Owner.mu.Unlock()
	if c.Owner.explicit != nil {
		c.Owner.explicit.refs++
	}
}

// Release gives back what Owner.Claim or Retain kept.
func (c *Claim) Release() {
	o := c.Owner
	o.mu.Lock()
	if c.refs--; c.refs == 0 {
		o.dropLocked(c)
	}
	o.mu.Unlock()
	o.unref()
}

// Session is the owner's session in a mode, nil if it has none, as far as this
// client knows.
func (c *Claim) Session(m lock.Mode) *Session {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	return c.sessions[modeIndex(m)]
}

// Holds is the session, in a mode, of the owner that ctx carries; nil: it has none.
func (r *Registry) Holds(ctx context.Context, key string, m lock.Mode) *Session {
	k, _ := ctx.Value(ownerKey{}).(carried)
	o := k.owner
	if k.explicit {
		r.mu.Lock()
		o = r.owners[k.id]
		r.mu.Unlock()
	}
	if o == nil {
		return nil
	}
	o.mu.Lock()
	c := o.findLocked(r, key)
	o.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Session(m)
}

// Watcher is an acquisition that waits and could re-enter.
type Watcher interface {
	// Told is called, under a mutex, when the owner got a session of the lock in
	// another call.
	Told()
}

// Watch tells w whenever the owner gets a session, and at once if it has one.
func (c *Claim) Watch(w Watcher) {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	c.watchers = append(c.watchers, w)
	for _, s := range c.sessions {
		if s != nil {
			w.Told() // it acquired before we were here to be told
			break
		}
	}
}

// Unwatch ends it.
func (c *Claim) Unwatch(w Watcher) {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	if i := slices.Index(c.watchers, w); i >= 0 {
		c.watchers = slices.Delete(c.watchers, i, i+1)
	}
}

func (c *Claim) tellWatchersLocked() {
	for _, w := range c.watchers {
		w.Told()
	}
}

// Look is what a claim's owner holds, before it asks for more.
type Look struct {
	Session *Session // in the mode that is asked for
	Reads   bool     // it has a read hold
	Writes  string   // the field of its write hold
	Drains  bool     // the client takes no new sessions
}

// Look says what the owner holds. The gate is the caller's.
func (c *Claim) Look(m lock.Mode) Look {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	l := Look{Session: c.sessions[modeIndex(m)], Reads: c.sessions[modeRead] != nil, Drains: c.reg.drains}
	if w := c.sessions[modeWrite]; w != nil {
		l.Writes = w.Name
	}
	return l
}
