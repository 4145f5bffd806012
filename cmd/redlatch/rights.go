package main

import "slices"

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
