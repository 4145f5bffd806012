package desk

import "time"

// What the scripts of the plain lock do, as far as a table can see: the files of internal/luascript that
// docs/PROTOCOL.md names. TestModelIsWhatTheScriptsDo holds it against them on a real server.

// field is a session on the server. Client -1 is another library.
type field struct {
	client int
	id     uint64
}

const foreign = -1

// lostOnce is what is taken off the place of a client that was called and found the lock taken.
const lostOnce = int64(4e15)

// place is a client's entry on the list.
type place struct {
	client int
	score  int64
}

// lockState is all keys of one lock.
type lockState struct {
	holder   field
	count    int // 0: the lock's key does not exist
	ends     Time
	list     []place
	listEnds Time
	void     []field
	voidEnds Time
	counter  uint64
}

// server is a model of a Redis server. The zero value is empty.
type server struct {
	now     Time // its clock
	came    int64
	keys    map[string]*lockState
	hears   func(client int, key string, at Place) bool // a call: whether somebody is subscribed, who then gets it
	tells   func(key string) bool                       // the message for all: the same
	counts  bool                                        // receivers can be counted
	granted func(key string, f field)                   // a new hold was made
}

func (s *server) key(name string) *lockState {
	k := s.keys[name]
	if k == nil {
		k = &lockState{}
		s.keys[name] = k
	}
	if k.count > 0 && s.now >= k.ends {
		k.count = 0
	}
	if len(k.list) > 0 && s.now >= k.listEnds {
		k.list = nil
	}
	if len(k.void) > 0 && s.now >= k.voidEnds {
		k.void = nil
	}
	return k
}

func (k *lockState) heldBy(f field) bool { return k.count > 0 && k.holder == f }

func (k *lockState) raise(end Time) { k.ends = max(k.ends, end) }

func (k *lockState) off(client int) {
	for i := range k.list {
		if k.list[i].client == client {
			k.list = append(k.list[:i:i], k.list[i+1:]...)
			return
		}
	}
}

// us is the time for a place: it rises with every question.
func (s *server) us() int64 { s.came++; return s.came }

// enlist is enlist.lua.
func (s *server) enlist(k *lockState, client int, at Place) {
	if at == NoPlace {
		return
	}
	us := s.us()
	lost := at > Listed && int64(at) <= us
	if lost {
		k.off(client)
	}
	listed := false
	for _, p := range k.list {
		listed = listed || p.client == client
	}
	switch {
	case lost:
		k.list = append(k.list, place{client, int64(at) - lostOnce})
	case !listed:
		k.list = append(k.list, place{client, us})
	}
	k.listEnds = s.now + time.Minute
}

// wake is wake.lua: 0 nobody was called, 1 one was, 2 one that had lost; -1: so many were dead.
func (s *server) wake(name string, k *lockState, most int) int {
	for range most {
		if len(k.list) == 0 {
			return 0
		}
		first := k.list[0]
		for _, p := range k.list {
			if p.score < first.score || p.score == first.score && p.client < first.client {
				first = p
			}
		}
		k.off(first.client)
		at := first.score
		if at < 0 {
			at += lostOnce
		}
		if s.hears(first.client, name, Place(at)) || !s.counts {
			if first.score < 0 {
				return 2
			}
			return 1
		}
	}
	return -1
}

// run is one command of a client.
func (s *server) run(client int, c *Command) Answer {
	k, f := s.key(c.Key), field{client, c.Field}
	switch c.Verb {
	case Acquire:
		return s.acquire(client, k, f, c)
	case Reenter:
		if !k.heldBy(f) {
			return Answer{Verdict: Gone}
		}
		k.count = c.Count
		k.raise(s.now + c.Lease)
	case SetCount:
		if !k.heldBy(f) {
			return Answer{Verdict: Gone}
		}
		k.count = min(k.count, c.Count)
	case Renew:
		if !k.heldBy(f) {
			return Answer{Verdict: Gone}
		}
		if c.Lease > 0 {
			k.raise(s.now + c.Lease)
		}
	case Release:
		return s.release(client, k, f, c)
	case Leave:
		k.off(client)
		if k.count == 0 || k.holder.client == foreign {
			s.wake(c.Key, k, 512)
		}
	}
	return Answer{Verdict: Done}
}

// acquire is acquire.lua.
func (s *server) acquire(client int, k *lockState, f field, c *Command) Answer {
	switch {
	case k.heldBy(f):
		k.raise(s.now + c.Lease)
		return Answer{Verdict: Done, Token: s.token(k, c.Fenced, true)}
	case k.count > 0:
		s.enlist(k, client, c.Place)
		h := Holder{Foreign: k.holder.client == foreign}
		if k.holder.client == client {
			h.Field = k.holder.id
		}
		return Answer{Verdict: Busy, Holder: h, TTL: k.ends - s.now}
	}
	for _, v := range k.void {
		if v == f {
			return Answer{Verdict: Void}
		}
	}
	if c.Place == StandsBack {
		s.enlist(k, client, c.Place)
		return Answer{Verdict: Busy, TTL: -1, Look: 250 * time.Millisecond}
	}
	k.holder, k.count, k.ends = f, 1, s.now+c.Lease
	if c.Place != NoPlace && c.Place != NewPlace {
		k.off(client)
	}
	if s.granted != nil {
		s.granted(c.Key, f)
	}
	return Answer{Verdict: Done, Token: s.token(k, c.Fenced, false)}
}

func (s *server) token(k *lockState, fenced, again bool) uint64 {
	if fenced && (!again || k.counter == 0) {
		k.counter++
	}
	if fenced {
		return k.counter
	}
	return 0
}

// release is release.lua with count 0.
func (s *server) release(client int, k *lockState, f field, c *Command) Answer {
	had := k.heldBy(f)
	if had {
		k.count = 0
	}
	if c.Void {
		k.void, k.voidEnds = append(k.void, f), s.now+voidFor
	}
	if !had && k.count > 0 {
		return Answer{Verdict: Gone}
	}
	heard := had && s.tells(c.Key)
	if c.Listing != KeepListing {
		k.off(client)
	}
	called := s.wake(c.Key, k, 64)
	if c.Listing == PutBehind && called > 0 {
		s.enlist(k, client, NewPlace)
	}
	if !had {
		return Answer{Verdict: Gone}
	}
	return Answer{Verdict: Done, Called: called > 0, Loser: called == 2 && !heard, Heard: heard}
}

// force is force_any.lua for a plain lock: an operator's command, which wakes who waits though the lock be free.
func (s *server) force(name string) {
	k := s.key(name)
	k.count = 0
	s.tells(name)
	s.wake(name, k, 64)
}

// another library's lock and unlock: its unlock calls nobody.
func (s *server) others(name string, id uint64, lock bool, length time.Duration) bool {
	k, f := s.key(name), field{foreign, id}
	switch {
	case lock && k.count == 0:
		k.holder, k.count, k.ends = f, 1, s.now+length
		if s.granted != nil {
			s.granted(name, f)
		}
		return true
	case !lock && k.heldBy(f):
		k.count = 0
		s.tells(name)
		return true
	}
	return false
}
