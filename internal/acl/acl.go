// Package acl is the one table of the rights that redlatch needs. docs/ACL.md shows it (make acl), the command
// redlatch doctor tries it, and the tests in integration/acl use locks with exactly these rights.
package acl

import (
	"slices"
	"strings"
)

// Use is a way to use locks.
//
// Invariant: no right of With's stands in Rules again.
type Use struct {
	Need  string // as doctor --need calls it
	With  string // the need whose rights it needs besides; "": it stands alone, a block of its own on the page
	Row   string // what the page's table calls it; of a block the user's name
	Rules string // as ACL SETUSER takes them, for locks whose names begin with [Prefix]
}

// Prefix begins the names of the locks in Rules.
const Prefix = "app:"

// Uses is the table.
var Uses = []Use{
	{Need: "reentrant", Row: "app", Rules: `
  ~app:* ~redlatch_void:{app:* ~redlatch_trace:{app:* ~redlatch_wait:{app:*
  &redisson_lock__channel:{app:* &redlatch_wake:{app:*
  +hello +ping +eval +evalsha +subscribe +unsubscribe +publish
  +exists +hset +pexpire +hexists +hget +hlen +hgetall +pttl +hdel +sismember +sadd
  +time +zadd +zpopmin +zrem
`},
	{Need: "fenced", With: "reentrant", Row: "`Fenced()`, of any kind", Rules: "~redisson_lock_token:{app:* +get +set"},
	{Need: "links", With: "reentrant", Row: "links between traces (unless `Telemetry.NoLinks`)", Rules: "+get +set +del"},
	{Need: "state", With: "reentrant", Row: "`State`", Rules: "+type"},
	{Need: "acks", With: "reentrant", Row: "`ReplicaAcks`", Rules: "+wait"},
	{Need: "fair", With: "reentrant", Row: "`FairLock`", Rules: `
  ~redisson_lock_token:{app:* ~redisson_lock_queue:{app:* ~redisson_lock_timeout:{app:* ~redlatch_fair:{app:* &redlatch_grant:{app:*
  +lindex +linsert +llen +lpop +lpos +lpush +lrange +lrem +rpop +rpush +zcard +zcount +zrangebyscore +zscore +del`},
	{Need: "redisson", With: "fair", Row: "`FairLock`, to be called at once behind a waiter of Redisson's", Rules: "&* +psubscribe +punsubscribe"},
	{Need: "read-write", With: "reentrant", Row: "`ReadWriteLock`", Rules: `
  ~{app:* ~redlatch_rw_*:{app:* &redisson_rwlock:{app:*
  +hkeys +hmget +hscan +del +rename +set +zcard +zcount +zrange +zrangebyscore +zscore`},
	{Need: "quorum", With: "reentrant", Row: "`QuorumLock`", Rules: "+info"},
	{Need: "once", With: "reentrant", Row: "`Once`", Rules: "~redlatch_once:{app:* +get +set +del"},
	{Need: "sentinel", With: "reentrant", Row: "a master that sentinels name", Rules: "+role"},
	{Need: "sentinels", Row: "app", Rules: `
  &+sentinel &+slave &-sdown &+sdown &+switch-master &+reboot
  +hello +ping +subscribe +unsubscribe +sentinel|sentinels +sentinel|get-master-addr-by-name
`},
	{Need: "cluster", With: "reentrant", Row: "a cluster", Rules: "+cluster|slots +cluster|shards +cluster|nodes +asking +ssubscribe +sunsubscribe +spublish"},
	{Need: "operators", Row: "looks", Rules: `
  ~app:* ~redisson_lock_token:{app:* ~redlatch_void:{app:* ~redlatch_trace:{app:* ~redlatch_wait:{app:*
  ~redisson_lock_queue:{app:* ~redisson_lock_timeout:{app:* ~redlatch_fair:{app:* ~redlatch_rw_*:{app:* ~{app:*
  +hello +ping +eval +evalsha
  +time +type +exists +get +hget +hlen +hgetall +hscan +pttl +llen +lrange +zscore +zcount +zrange +zrangebyscore
`},
	{Need: "numbers", With: "operators", Row: "the number of processes that wait", Rules: "+zcard +pubsub|numsub"},
	{Need: "names", With: "operators", Row: "names and addresses of processes", Rules: "+client|list"},
	{Need: "jobs", With: "operators", Row: "`Once.Last`: when a job ran", Rules: "~redlatch_once:{app:*"},
	{Need: "list", With: "operators", Row: "`Locks`", Rules: "+scan"},
	{Need: "evict", With: "operators", Row: "`ForceUnlock`", Rules: `
  &redisson_lock__channel:{app:* &redisson_rwlock:{app:* &redlatch_grant:{app:* &redlatch_wake:{app:*
  +publish +del +hdel +hset +hexists +pexpire +set +rename +zcard +zrem +zadd +zpopmin +lindex +lpop`},
	{Need: "history", With: "operators", Row: "to read the history of evictions", Rules: "~redlatch_history:{app:* +xrevrange"},
	{Need: "record", With: "evict", Row: "to note evictions in it", Rules: "~redlatch_history:{app:* +xadd"},
	{Need: "listen", With: "list", Row: "`top --listen`", Rules: "&redisson_lock__channel:* &redisson_rwlock:* &redlatch_grant:* +psubscribe +punsubscribe"},
}

// Needs are the names of all uses.
func Needs() []string {
	var names []string
	for _, u := range Uses {
		if !slices.Contains(names, u.Need) {
			names = append(names, u.Need)
		}
	}
	return names
}

// Root is the need that stands alone to whose rights those of this one are added.
func Root(need string) string {
	for i := 0; i < len(Uses); i++ {
		if u := Uses[i]; u.Need == need && u.With != "" {
			need, i = u.With, -1
		}
	}
	return need
}

// Rules are all rights that these uses need, each once.
func Rules(needs ...string) []string {
	var rules []string
	for _, need := range needs {
		for _, u := range Uses {
			if u.Need != need {
				continue
			}
			if u.With != "" {
				rules = append(rules, Rules(u.With)...)
			}
			rules = append(rules, strings.Fields(u.Rules)...)
		}
	}
	if slices.Contains(rules, "&*") { // beside which a server takes no other
		rules = slices.DeleteFunc(rules, func(rule string) bool { return rule[0] == '&' && rule != "&*" })
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// Own are the rights that a use needs besides those of another one.
func Own(need string) []string {
	i := slices.IndexFunc(Uses, func(u Use) bool { return u.Need == need })
	return strings.Fields(Uses[i].Rules)
}

// For are the rules for locks whose names begin with another prefix.
func For(prefix string, rules []string) []string {
	out := make([]string, len(rules))
	for i, rule := range rules {
		out[i] = strings.Replace(rule, Prefix, prefix, 1)
	}
	return out
}
