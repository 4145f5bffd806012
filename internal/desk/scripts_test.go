package desk

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/internal/testbed"
)

// clientIDs are those of the model's clients; the last one is another library's.
var clientIDs = []string{
	"00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002",
	"ffffffff-ffff-ffff-ffff-ffffffffffff",
}

const strangers = 3 // of another library, in clientIDs

func fieldName(client int, id uint64) string {
	if client == foreign {
		return fmt.Sprintf("%s:%d", clientIDs[strangers], id)
	}
	return fmt.Sprintf("%s:g1-%d", clientIDs[client], id)
}

// What Redisson's lock does, as in its RedissonLock and RedissonUnlock.
const (
	strangerLocks = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end
return redis.call('pttl', KEYS[1])`
	strangerUnlocks = `if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then return 0 end
redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '0') return 1`
	dump = `local l, out = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), {}
for i = 1, #l, 2 do out[#out + 1] = (tonumber(l[i + 1]) < 0 and 'lost ' or 'new ') .. string.sub(l[i], 36, 36) end
local v = redis.call('SMEMBERS', KEYS[3]) table.sort(v)
local h = redis.call('HGETALL', KEYS[1])
return {table.concat(h, ' '), redis.call('PTTL', KEYS[1]), table.concat(out, ','), redis.call('PTTL', KEYS[2]) > 0 and 1 or 0, table.concat(v, ' ')}`
)

// op is one step of a sequence: a command, or something that happens to the lock.
type op struct {
	client int
	cmd    *Command
	what   string // "": the command; else what happens
}

// sequence is a random one, of few fields and few clients, so that they meet.
func sequence(r *rng, key string) (ops []op) {
	lengths := []time.Duration{10 * time.Second, 100 * time.Second, 1000 * time.Second}
	for range 4 + r.n(7) {
		o := op{client: r.n(3)}
		c := &Command{Key: key, Field: uint64(1 + r.n(2)), Lease: lengths[r.n(3)], Count: 1 + r.n(3)}
		switch n := r.n(100); {
		case n < 38:
			c.Verb, c.Fenced = Acquire, r.luck(200)
			c.Place = []Place{NoPlace, NewPlace, NewPlace, Listed, StandsBack, Place(500 + r.n(20))}[r.n(6)]
		case n < 46:
			c.Verb = Reenter
		case n < 52:
			c.Verb = SetCount
		case n < 72:
			c.Verb, c.Void, c.Listing = Release, r.luck(400), Listing(r.n(3))
		case n < 78:
			c.Verb = Renew
			if r.luck(300) {
				c.Lease = 0
			}
		case n < 84:
			c.Verb = Leave
		case n < 90:
			o.what = "locks"
		case n < 95:
			o.what = "unlocks"
		case n < 98:
			o.what = "expires"
		default:
			o.what = "forced"
		}
		o.cmd = c
		ops = append(ops, o)
	}
	return ops
}

// script builds a step for the server, as rlock's kind and package inspect do.
func (o op) script(topo conn.Topology) (*luascript.Script, []string, []string) {
	c, key := o.cmd, o.cmd.Key
	name, length := fieldName(o.client, c.Field), strconv.FormatInt(c.Lease.Milliseconds(), 10)
	wait := luascript.WaitKey(key)
	switch c.Verb {
	case Acquire:
		places := map[Place]string{NoPlace: "", StandsBack: "s"}
		at, ok := places[c.Place]
		if !ok {
			at = strconv.FormatInt(int64(c.Place), 10)
		}
		keys, fence := []string{key, luascript.VoidKey(key)}, ""
		if c.Fenced {
			keys, fence = append(keys, luascript.TokenKey(key)), "60000"
		}
		return luascript.Acquire, append(keys, wait), []string{name, length, at, fence, ""}
	case Reenter:
		return luascript.Reenter, []string{key}, []string{name, strconv.Itoa(c.Count), length}
	case SetCount:
		return luascript.Release, []string{key}, []string{name, strconv.Itoa(c.Count)}
	case Renew:
		return luascript.Renew, []string{key}, []string{name, length}
	case Leave:
		return luascript.WaitLeave, []string{key, wait}, []string{clientIDs[o.client], luascript.CallChannel(key), "PUBLISH", topo.Counts()}
	case Release:
		keys, void := []string{key}, "0"
		if c.Void {
			keys, void = append(keys, luascript.VoidKey(key)), "5000"
		}
		listed := []string{"", "0", "1"}[c.Listing]
		return luascript.Release, append(keys, wait), []string{name, "0", luascript.LockChannel(key), "PUBLISH", listed, void, "0", topo.Counts()}
	}
	panic(c)
}

// command is a step for the server.
func (o op) command(client rueidis.Client, topo conn.Topology) rueidis.Completed {
	key := o.cmd.Key
	eval := func(text string, keys, args []string) rueidis.Completed {
		return client.B().Eval().Script(text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	}
	switch o.what {
	case "locks", "unlocks":
		text := map[string]string{"locks": strangerLocks, "unlocks": strangerUnlocks}[o.what]
		return eval(text, []string{key, luascript.LockChannel(key)}, []string{"10000", fieldName(foreign, o.cmd.Field)})
	case "expires":
		return client.B().Pexpire().Key(key).Milliseconds(0).Build()
	case "forced":
		f := inspect.ForceCommand(topo, key, inspect.Exclusive, settings.Force{})
		return eval(f.Script.Body, f.Keys, f.Args)
	}
	s, keys, args := o.script(topo)
	return client.B().Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// values are a reply's, each as a number and as a text.
func values(m rueidis.RedisMessage) (vals []int64, texts []string, err error) {
	if !m.IsArray() {
		n, err := m.AsInt64()
		return []int64{n}, []string{""}, err
	}
	all, err := m.ToArray()
	if err != nil {
		return nil, nil, err
	}
	for _, v := range all {
		n, text := int64(0), ""
		if v.IsInt64() {
			n, err = v.AsInt64()
		} else {
			text, err = v.ToString()
		}
		if err != nil {
			return nil, nil, err
		}
		vals, texts = append(vals, n), append(texts, text)
	}
	return vals, texts, nil
}

// read is the answer as the shell will read it; in what happens there is none.
func (o op) read(m rueidis.RedisMessage, again map[string]bool) (string, error) {
	if o.what != "" {
		return "", nil
	}
	vals, texts, err := values(m)
	if err != nil {
		return "", err
	}
	var a Answer
	switch code := vals[0]; o.cmd.Verb {
	case Acquire:
		switch code {
		case -1:
			a.Verdict = Void
		case 0:
			a.Verdict, a.TTL = Busy, time.Duration(vals[1])*ms
			for id := range uint64(3) {
				if texts[2] == fieldName(o.client, id) {
					a.Holder.Field = id
				}
			}
			a.Holder.Foreign = strings.HasPrefix(texts[2], clientIDs[strangers])
			if len(vals) > 4 {
				a.Look = time.Duration(vals[4]) * ms
			}
		default:
			a.Verdict = Done
			switch {
			case len(vals) > 1:
				a.Token = uint64(vals[1])
			case code > 2: // a token alone
				a.Token = uint64(code)
			}
		}
	case Release:
		a.Verdict = Done
		if code == 0 {
			a.Verdict = Gone
		} else if len(vals) > 1 {
			a.Called, a.Loser, a.Heard = vals[1] > 0, vals[1] == 2, len(vals) > 2
		}
	case Leave:
		a.Verdict = Done
	case Reenter, SetCount, Renew:
		a.Verdict = Done
		if code == 0 {
			a.Verdict = Gone
		}
	}
	return said(a, again), nil
}

// said is an answer without what differs between two clocks: a TTL in seconds of ten, a token by whether it was seen.
func said(a Answer, again map[string]bool) string {
	token := ""
	if a.Token > 0 {
		id := strconv.FormatUint(a.Token, 10)
		token = fmt.Sprintf(" token again=%t", again[id])
		again[id] = true
	}
	return fmt.Sprintf("%s %+v ttl~%d look=%v called=%t loser=%t heard=%t%s", verdicts[a.Verdict], a.Holder, (a.TTL+5*time.Second)/(10*time.Second), a.Look,
		a.Called, a.Loser, a.Heard, token)
}

// The model of a server, on which everything else here stands, answers random sequences as the scripts do on a real
// server, and leaves the same keys; with Redisson's lock among them.
func TestModelIsWhatTheScriptsDo(t *testing.T) {
	srv := testbed.Standalone(t)
	client, err := srv.Client()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*luascript.Script{luascript.Acquire, luascript.Reenter, luascript.Release, luascript.WaitLeave, luascript.Renew} {
		if sha := client.Do(t.Context(), client.B().ScriptLoad().Script(s.Body).Build()); sha.Error() != nil {
			t.Fatal(sha.Error())
		}
	}
	// Of the three clients the first one hears all calls, the second one those of half of the locks, the last one none.
	const locks = 64
	heard := func(client int, key string) bool {
		return client == 0 || client == 1 && strings.HasPrefix(key, "even")
	}
	all := func(key string) bool { return strings.HasSuffix(key, "2") }
	var keys []string
	for n := range locks {
		keys = append(keys, fmt.Sprintf("%s%d", []string{"even", "odd"}[n%2], n/2))
	}
	subscribed := subscribe(t, client, keys, heard, all)
	defer subscribed()

	total, r := number(t, "REDLATCH_DESK_SEQUENCES", 3000), rng(number(t, "REDLATCH_DESK_SEED", 1))
	topo := conn.Topology{}
	for done := 0; done < total; {
		var seqs [][]op
		var cmds rueidis.Commands
		for _, key := range keys {
			ops := sequence(&r, key)
			cmds = append(cmds, client.B().Del().Key(key, luascript.WaitKey(key), luascript.VoidKey(key), luascript.TokenKey(key)).Build())
			for _, o := range ops {
				cmds = append(cmds, o.command(client, topo),
					client.B().Eval().Script(dump).Numkeys(3).Key(key, luascript.WaitKey(key), luascript.VoidKey(key)).Build())
			}
			seqs = append(seqs, ops)
		}
		got := client.DoMulti(t.Context(), cmds...)
		for _, ops := range seqs {
			want := answersOf(ops, heard, all(ops[0].cmd.Key), topo.Counts() != "0")
			got = compare(t, ops, want, got[1:])
			done++
		}
	}
	t.Logf("%d sequences", total)
}
