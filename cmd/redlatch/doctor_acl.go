package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"
)

// feature is what a part of the SDK needs, as docs/ACL.md lists it.
type feature struct {
	name     string
	commands []string // as they are tried; KEY stands for the probe's key
	keys     []string // the pattern's shape, NAME stands for the lock's name
	channels []string
}

var features = []feature{
	{
		"rlock",
		[]string{
			"EXISTS KEY", "HSET KEY f 1", "PEXPIRE KEY 100", "HEXISTS KEY f", "HGET KEY f", "PTTL KEY", "HKEYS KEY", "HDEL KEY f",
			"SISMEMBER KEY f", "SADD KEY f", "TIME", "ZADD KEY XX 1 a", "ZPOPMIN KEY", "ZREM KEY a",
		},
		[]string{"NAME", "redisson_lock_token:{NAME}", "redlatch_void:{NAME}", "redlatch_trace:{NAME}", "redlatch_wait:{NAME}"},
		[]string{"redisson_lock__channel:{NAME}", "redlatch_wake:{NAME}:c"},
	},
	{"fenced", []string{"GET KEY", "SET KEY 1 PX 100", "TIME"}, nil, nil},
	{"links", []string{"GET KEY", "SET KEY 1 PX 100", "DEL KEY"}, nil, nil},
	{
		"fair",
		[]string{
			"HGET KEY f", "HGETALL KEY", "HLEN KEY", "LINDEX KEY 0", "LINSERT KEY BEFORE a b", "LLEN KEY", "LPOP KEY", "LPOS KEY a",
			"LPUSH KEY a", "LRANGE KEY 0 1", "LREM KEY 1 a", "PERSIST KEY", "RPOP KEY", "RPUSH KEY a", "ZADD KEY XX 1 a", "ZCARD KEY",
			"ZCOUNT KEY 0 1", "ZRANGEBYSCORE KEY 0 1", "ZREM KEY a", "ZREMRANGEBYSCORE KEY 0 1", "ZSCORE KEY a", "DEL KEY", "TIME",
		},
		[]string{"redisson_lock_queue:{NAME}", "redisson_lock_timeout:{NAME}", "redlatch_fair:{NAME}"},
		[]string{"redlatch_grant:{NAME}:c"},
	},
	{
		"read-write",
		[]string{
			"HGET KEY f", "HMGET KEY f", "HGETALL KEY", "HLEN KEY", "HSCAN KEY 0", "DEL KEY", "RENAME KEY KEY", "SET KEY 1 PX 100",
			"ZADD KEY XX 1 a", "ZCARD KEY", "ZCOUNT KEY 0 1", "ZRANGE KEY 0 1", "ZRANGEBYSCORE KEY 0 1", "ZREM KEY a", "ZREMRANGEBYSCORE KEY 0 1", "ZSCORE KEY a", "TIME",
		},
		[]string{"{NAME}:f:rwlock_timeout:1", "redlatch_rw_leases:{NAME}"},
		[]string{"redisson_rwlock:{NAME}"},
	},
	{"acks", []string{}, nil, nil},
	{
		"operators",
		[]string{
			"TYPE KEY", "HLEN KEY", "HGETALL KEY", "HSCAN KEY 0", "HGET KEY f", "LLEN KEY", "LRANGE KEY 0 1", "ZSCORE KEY a", "ZCOUNT KEY 0 1",
			"ZRANGE KEY 0 1", "ZRANGEBYSCORE KEY 0 1", "DEL KEY", "GET KEY", "TIME", "PUBSUB NUMSUB c",
		},
		[]string{"redisson_lock_queue:{NAME}", "redisson_lock_timeout:{NAME}", "redlatch_fair:{NAME}", "redlatch_rw_leases:{NAME}"},
		nil,
	},
}

// direct are commands that no script runs.
var direct = []struct {
	need string
	word []string
	rule string
}{
	{"operators", []string{"SCAN", "0", "COUNT", "1"}, "+scan"},
	{"operators", []string{"CLIENT", "LIST", "TYPE", "PUBSUB"}, "+client|list"},
	{"acks", []string{"WAIT", "0", "1"}, "+wait"},
	{"quorum", []string{"INFO", "server"}, "+info"},
}

func featureNames() []string {
	names := make([]string, 0, len(features)+1)
	for _, f := range features {
		names = append(names, f.name)
	}
	return names
}

// tryScript runs one command and takes away what it may have left.
const tryScript = `local words = {}
for i, w in ipairs(ARGV) do words[i] = w == 'KEY' and KEYS[1] or w end
local r = redis.pcall(unpack(words))
local err = type(r) == 'table' and r.err or ''
redis.pcall('DEL', KEYS[1])
redis.pcall('PEXPIRE', KEYS[1], 100)
return err`

// permissions tries every command, key and channel.
func (e *examination) permissions(ctx context.Context) {
	name := e.prefix + "redlatch-doctor:" + uuid.NewString()
	if err := e.eval(ctx, "return 1", name); err != nil {
		e.add("permissions", "", problem, "scripts can't be run on the keys of locks: "+err.Error(), "ACL SETUSER … +eval +evalsha ~"+e.prefix+"*")
		return
	}
	missing := map[string][]string{}
	for _, f := range features {
		for _, c := range f.commands {
			if e.refuses(ctx, name, strings.Fields(c)) {
				rule := strings.ToLower(strings.Fields(c)[0])
				if rule == "pubsub" {
					rule = "pubsub|numsub"
				}
				missing[f.name] = append(missing[f.name], "+"+rule)
			}
		}
		for _, k := range f.keys {
			if err := e.eval(ctx, "return 1", strings.ReplaceAll(k, "NAME", name)); isDenied(err) {
				missing[f.name] = append(missing[f.name], "~"+pattern(k, e.prefix))
			}
		}
		for _, c := range f.channels {
			channel := strings.ReplaceAll(c, "NAME", name)
			if e.refusesChannel(ctx, channel, name) {
				missing[f.name] = append(missing[f.name], "&"+pattern(c, e.prefix))
			}
		}
	}
	if rule := e.subscribes(ctx, "redisson_lock__channel:{"+name+"}"); rule != "" {
		missing["rlock"] = append(missing["rlock"], rule)
	}
	for _, d := range direct {
		if err := e.client.Do(ctx, e.client.B().Arbitrary(d.word...).Build()).Error(); isDenied(err) {
			missing[d.need] = append(missing[d.need], d.rule)
		}
	}
	for _, f := range append(featureNames(), "quorum") {
		rules := missing[f]
		slices.Sort(rules)
		rules = slices.Compact(rules)
		switch {
		case len(rules) == 0 && (e.needed(f) || f == "rlock"):
			e.add("permissions "+f, "", fine, "all there", "")
		case len(rules) == 0:
		case e.needed(f):
			e.add("permissions "+f, "", problem, "missing: "+strings.Join(rules, " "), "ACL SETUSER … "+strings.Join(rules, " "))
		default:
			e.add("permissions "+f, "", note, "missing, and needed only by those who use it: "+strings.Join(rules, " "), "")
		}
	}
}

// pattern is the rule for a key or channel of that shape.
func pattern(shape, prefix string) string {
	i := strings.Index(shape, "NAME")
	return shape[:i] + prefix + "*"
}

func (e *examination) eval(ctx context.Context, script, key string, args ...string) error {
	_, err := e.evalText(ctx, script, key, args...)
	return err
}

func (e *examination) evalText(ctx context.Context, script, key string, args ...string) (string, error) {
	m, err := e.client.Do(ctx, e.client.B().Eval().Script(script).Numkeys(1).Key(key).Arg(args...).Build()).ToMessage()
	if err != nil {
		return "", err
	}
	text, _ := m.ToString() // a number is no text, and no error
	return text, nil
}

// refuses reports whether a command is not permitted inside scripts.
func (e *examination) refuses(ctx context.Context, key string, words []string) bool {
	text, err := e.evalText(ctx, tryScript, key, words...)
	return isDenied(err) || denied(text)
}

func (e *examination) refusesChannel(ctx context.Context, channel, key string) bool {
	command := "PUBLISH"
	if e.sharded() {
		command = "SPUBLISH"
	}
	return e.refuses(ctx, key, []string{command, channel, "0"})
}

func (e *examination) sharded() bool { return e.client.Mode() == rueidis.ClientModeCluster }

// subscribes returns the rule that a subscription lacks, or "".
func (e *examination) subscribes(ctx context.Context, channel string) string {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	cmd, rule := e.client.B().Subscribe().Channel(channel).Build(), "+subscribe"
	if e.sharded() {
		cmd, rule = e.client.B().Ssubscribe().Channel(channel).Build(), "+ssubscribe"
	}
	err := e.client.Receive(ctx, cmd, func(rueidis.PubSubMessage) {})
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !isDenied(err) {
		return ""
	}
	if strings.Contains(err.Error(), "channel") {
		return "&" + pattern("redisson_lock__channel:{NAME}", e.prefix)
	}
	return fmt.Sprint(rule)
}
