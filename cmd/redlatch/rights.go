package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"
)

// use is a way to use locks. docs/ACL.md shows this table, which a test compares, and doctor tries each right in it.
type use struct {
	need string // as doctor --need calls it; "": it is not tried
	doc  string // as the table in docs/ACL.md calls it; "": it is a block there
	// rules are the rights that it needs besides those of an RLock, as ACL SETUSER takes them, for locks whose names
	// begin with "app:".
	rules string
}

var uses = []use{
	{"rlock", "", `
  ~app:* ~redisson_lock_token:{app:* ~redlatch_void:{app:* ~redlatch_trace:{app:* ~redlatch_wait:{app:*
  &redisson_lock__channel:{app:* &redlatch_wake:{app:*
  +hello +ping +eval +evalsha +subscribe +unsubscribe +publish
  +exists +hset +pexpire +hexists +hget +hlen +hgetall +pttl +hdel +sismember +sadd
  +time +zadd +zpopmin +zrem
`},
	{"fenced", "`Fenced()`", "+get +set"},
	{"links", "links between traces (unless `Telemetry.NoLinks`)", "+get +set +del"},
	{"state", "`State`", "+type"},
	{
		"", "`ForceUnlock` of any kind, `Inspect`",
		`~redisson_lock_queue:{app:* ~redisson_lock_timeout:{app:* ~redlatch_fair:{app:* ~redlatch_rw_*:{app:*
		&redisson_rwlock:{app:* &redlatch_grant:{app:* +type +hlen +hgetall +hscan +get +time +lindex +llen +del +zpopmin`,
	},
	{"acks", "`ReplicaAcks`", "+wait"},
	{
		"fair", "`FairLock`",
		`~redisson_lock_queue:{app:* ~redisson_lock_timeout:{app:* ~redlatch_fair:{app:* &redlatch_grant:{app:*
		+hget +hgetall +hlen +lindex +linsert +llen +lpop +lpos +lpush +lrange +lrem +rpop +rpush +zadd +zcard +zcount +zrangebyscore
		+zrem +zscore +del +time`,
	},
	{
		"read-write", "`ReadWriteLock`",
		`~{app:* ~redlatch_rw_*:{app:* &redisson_rwlock:{app:* +hget +hkeys +hmget +hgetall +hlen +hscan +del +rename +set +zadd +zcard
		+zcount +zrange +zrangebyscore +zrem +zscore +time`,
	},
	{"quorum", "`QuorumLock`", "+info"},
	{"once", "`Once`", "~redlatch_once:{app:* +get +set +del +time"},
	{"operators", "", `
  ~app:* ~redisson_lock_token:{app:* ~redlatch_void:{app:* ~redlatch_trace:{app:* ~redlatch_wait:{app:*
  ~redisson_lock_queue:{app:* ~redisson_lock_timeout:{app:* ~redlatch_fair:{app:* ~redlatch_rw_*:{app:* ~{app:*
  +hello +ping
  +eval +evalsha +time +type +exists +get +hget +hlen +hgetall +hscan +pttl
  +llen +lrange +zscore +zcount +zrange +zrangebyscore
`},
	{"operators", "the number of processes that wait", "+zcard +pubsub|numsub"},
	{"operators", "names and addresses of processes", "+client|list"},
	{"operators", "`Locks`", "+scan"},
	{
		"evict", "`ForceUnlock`",
		`&redisson_lock__channel:{app:* &redisson_rwlock:{app:* &redlatch_grant:{app:* &redlatch_wake:{app:*
		+publish +del +hdel +hset +hexists +pexpire +set +rename +zrem +zadd +zpopmin +lindex +lpop`,
	},
}

// useNames are the uses that doctor knows.
func useNames() []string {
	var names []string
	for _, u := range uses {
		if u.need != "" && !slices.Contains(names, u.need) {
			names = append(names, u.need)
		}
	}
	return names
}

// direct are the commands that no script runs, as they are tried.
var direct = map[string]string{"+scan": "SCAN 0 COUNT 1", "+client|list": "CLIENT LIST TYPE PUBSUB", "+wait": "WAIT 0 1", "+info": "INFO server"}

// tryScript runs one command on the key, with as many arguments as it takes, and takes away what it may have left.
const tryScript = `local words, err = ARGV, ''
for i = 1, 5 do
	local r = redis.pcall(unpack(words))
	err = type(r) == 'table' and r.err or ''
	if not string.find(string.lower(err), 'wrong number of arg', 1, true) then break end
	words[#words + 1] = KEYS[1]
end
redis.pcall('DEL', KEYS[1])
redis.pcall('PEXPIRE', KEYS[1], 100)
return err`

// permissions tries every right.
func (e *examination) permissions(ctx context.Context) {
	name := e.prefix + "redlatch-doctor:" + uuid.NewString()
	if err := e.try(ctx, "return ''", name); err != nil {
		e.add("permissions", "", problem, "scripts can't be run on the keys of locks: "+err.Error(), "ACL SETUSER … +eval +evalsha ~"+e.prefix+"*")
		return
	}
	lacks := map[string]string{}
	for _, need := range useNames() {
		var missing []string
		for _, u := range uses {
			for _, rule := range strings.Fields(u.rules) {
				if _, tried := lacks[rule]; !tried && u.need == need {
					lacks[rule] = strings.Replace(e.lacks(ctx, rule, name), "app:", e.prefix, 1)
				}
				if u.need == need {
					missing = append(missing, lacks[rule])
				}
			}
		}
		slices.Sort(missing)
		text := strings.TrimSpace(strings.Join(slices.Compact(missing), " "))
		switch level := e.ifNeeded(need); {
		case text == "" && level == problem:
			e.add("permissions "+need, "", fine, "all there", "")
		case text != "" && level == problem:
			e.add("permissions "+need, "", problem, "missing: "+text, "ACL SETUSER … "+text)
		case text != "":
			e.add("permissions "+need, "", note, "missing, and needed only by those who use it: "+text, "")
		}
	}
}

// lacks returns the rule that is missing, if this one, or what it stands for on a cluster, can't be used; else "".
func (e *examination) lacks(ctx context.Context, rule, name string) string {
	publish, subscribe := "PUBLISH", e.client.B().Subscribe().Channel("redisson_lock__channel:{"+name+"}").Build()
	if e.client.Mode() == rueidis.ClientModeCluster {
		publish, subscribe = "SPUBLISH", e.client.B().Ssubscribe().Channel("redisson_lock__channel:{"+name+"}").Build()
	}
	what := strings.Replace(strings.Replace(rule[1:], "rw_*", "rw_leases", 1), "app:*", name, 1)
	if strings.Contains(what, "{") {
		what += "}"
	}
	var err error
	switch {
	case slices.Contains([]string{"+hello", "+ping", "+eval", "+evalsha", "+unsubscribe", "+publish"}, rule):
		return "" // used already, or with each channel
	case rule == "+subscribe":
		rule = "+" + strings.ToLower(subscribe.Commands()[0])
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if err = e.client.Receive(short, subscribe, func(rueidis.PubSubMessage) {}); ofChannel(err) {
			return "" // the channel's own rule is tried, too
		}
	case direct[rule] != "":
		err = e.client.Do(ctx, e.client.B().Arbitrary(strings.Fields(direct[rule])...).Build()).Error()
	case rule[0] == '~':
		err = e.try(ctx, "return ''", what)
	case rule[0] == '&':
		if err = e.try(ctx, tryScript, name, publish, what, "0"); !ofChannel(err) {
			rule = "+" + strings.ToLower(publish)
		}
	default:
		err = e.try(ctx, tryScript, name, strings.Split(strings.ToUpper(what), "|")...)
	}
	if !denied(err) {
		return ""
	}
	return rule
}

// try runs a script that says what was refused.
func (e *examination) try(ctx context.Context, script, key string, args ...string) error {
	said, err := e.client.Do(ctx, e.client.B().Eval().Script(script).Numkeys(1).Key(key).Arg(args...).Build()).ToString()
	if err == nil && said != "" {
		err = errors.New(said)
	}
	return err
}

// denied reports whether an error is a missing permission, in the words of servers since Redis 6.
func denied(err error) bool {
	if err == nil {
		return false
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "noperm") || strings.Contains(text, "no permissions") || strings.Contains(text, "the user executing the script can't")
}

// ofChannel reports whether a missing permission is that of a channel.
func ofChannel(err error) bool { return denied(err) && strings.Contains(err.Error(), "channel") }
