package hostile

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What a neighbour may write: anything to any key, what has the key's own type, or anything to
// those keys that are not the hold itself. In each case it publishes, too.
const (
	anything = iota
	rightType
	sideKeys
	allRights
)

// key is one key of a lock with the type that it has there; hold: it says who holds the lock.
type key struct {
	name string
	of   string
	hold bool
}

// keysOf are all keys of a lock but the timeout keys of its readers.
func keysOf(l string, rw bool) []key {
	return []key{
		{l, "hash", true},
		{luascript.RWLeasesKey(l), "zset", rw},
		{luascript.VoidKey(l), "set", false},
		{luascript.TokenKey(l), "string", false},
		{luascript.TraceKey(l), "string", false},
		{luascript.OnceKey(l), "string", false},
		{luascript.FairQueueKey(l), "list", false},
		{luascript.FairTimeoutKey(l), "zset", false},
		{luascript.FairWantsKey(l), "hash", false},
		{luascript.RWWritersKey(l), "zset", false},
		{luascript.RWMarksKey(l), "zset", false},
		{luascript.RWReadersKey(l), "zset", false},
		{luascript.RWTurnKey(l), "zset", false},
		{luascript.Derive("redlatch_wait", l), "zset", false},
	}
}

// neighbour writes what its dice say.
type neighbour struct {
	s      *testbed.Server
	dice   *rand.Rand
	rights int
	keys   []key
	words  []string // what it has seen at the keys, and what it makes up
}

func (n *neighbour) pick(of int) int { return n.dice.IntN(of) }

func (n *neighbour) word() string { return n.words[n.pick(len(n.words))] }

// madeUp are the words that it knows.
func madeUp() []string {
	return append([]string{
		"0", "1", "-1", "mode", "read", "write", "inf", "-inf", "nan", "1e300", "9007199254740992", "9223372036854775807",
		"99999999999999999999999999999999", java + "1", java + "g1-zzzzzzzz.1", java + "g1-zzzzzzzz.1:write", java + "g=x-1.1",
		"9999999999999 1 5000 30000 - nonce ", "1000000000000 1 1 1 - nonce ", "9999999999999 300000000000000000 5000 30000 -1 nonce x",
		"1 x 0", "4000000000000 x 0", "zzzzzzzz.1 1 1", java + strings.Repeat("x", 2000), strings.Repeat("9", 500),
	}, testbed.Hostile[:31]...)
}

// look learns the words that stand at the keys: fields, members, counts.
func (n *neighbour) look() {
	for _, k := range n.keys {
		for _, command := range [][]string{{"HGETALL", k.name}, {"ZRANGE", k.name, "0", "10"}, {"LRANGE", k.name, "0", "10"}} {
			msg, err := n.s.Try(command...)
			if err != nil {
				continue
			}
			some, _ := msg.AsStrSlice()
			if m, err := msg.AsStrMap(); err == nil {
				for f, v := range m {
					some = append(some, f, v)
				}
			}
			n.words = append(n.words, some[:min(len(some), 8)]...)
		}
	}
}

// step does one thing.
func (n *neighbour) step() {
	k := n.keys[n.pick(len(n.keys))]
	if n.rights == sideKeys && k.hold {
		k = key{luascript.RWTimeoutKey("l", n.word()), "string", false}
		if strings.HasPrefix(k.name, "{l}:"+java) { // of nobody who is here
			n.do("SET", k.name, n.word())
		}
		return
	}
	of := k.of
	if n.rights != rightType {
		of = []string{"hash", "zset", "set", "string", "list"}[n.pick(5)]
	}
	switch n.pick(8) {
	case 0:
		n.do("DEL", k.name)
	case 1:
		n.do("PERSIST", k.name)
	case 2:
		n.do("PEXPIRE", k.name, []string{"1", "50", "100000000000"}[n.pick(3)])
	case 3:
		n.publish()
		return
	case 4:
		n.look()
		return
	default:
		if n.pick(3) == 0 {
			n.do("DEL", k.name)
		}
	}
	for range 1 + n.pick(4) {
		switch of {
		case "hash":
			n.do("HSET", k.name, n.word(), n.word())
		case "zset":
			n.do("ZADD", k.name, n.word(), n.word())
		case "set":
			n.do("SADD", k.name, n.word())
		case "list":
			n.do([]string{"RPUSH", "LPUSH"}[n.pick(2)], k.name, n.word())
		default:
			n.do("SET", k.name, n.word())
		}
	}
}

func (n *neighbour) publish() {
	if n.pick(2) == 0 {
		n.forge()
		return
	}
	client, _, _ := strings.Cut(n.word(), ":")
	channels := []string{
		luascript.LockChannel("l"), luascript.RWChannel("l"), luascript.GrantChannel("l") + client, luascript.LockChannel("l") + ":" + n.word(),
		luascript.Derive("redlatch_wake", "l") + ":" + client, luascript.Derive("redlatch_wake", "l") + ":" + client + ":write",
	}
	n.do("PUBLISH", channels[n.pick(len(channels))], n.word())
}

// forge publishes the grant of a waiter's place, as somebody who may not read the queue guesses it:
// ids and places are times and counters.
func (n *neighbour) forge() {
	msg, err := n.s.Try("HGETALL", luascript.FairWantsKey("l"))
	if err != nil {
		return
	}
	wants, _ := msg.AsStrMap()
	for field, want := range wants {
		client, rest, _ := strings.Cut(field, ":")
		place := strings.Fields(want + " x x")[1]
		n.do("PUBLISH", luascript.GrantChannel("l")+client, rest[strings.LastIndexByte(rest, '-')+1:]+" "+place+" "+strconv.Itoa(1+n.pick(9)))
	}
}

// do ignores what the server refuses: a score that is no number.
func (n *neighbour) do(args ...string) { _, _ = n.s.Try(args...) }
