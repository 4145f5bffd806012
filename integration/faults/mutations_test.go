package faults

// mutations is the table. A new one needs the text that it replaces, the profile whose
// faults bring it out, and a part of the violation as which it shows; run it with
// make mutations ONLY=name, and set the bound to several times what that takes.
var mutations = []mutation{
	{
		name:    "owner check removed from the release",
		file:    "internal/luascript/release.lua",
		old:     "if ARGV[2] == '0' then gone = redis.pcall('HDEL', KEYS[1], ARGV[1]) end",
		new:     "if ARGV[2] == '0' then gone = redis.pcall('DEL', KEYS[1]) end",
		profile: "twice", finds: "two inside", bound: 30_000,
	},
	{
		name:    "lease not set",
		file:    "internal/luascript/enter.lua",
		old:     "if type(set) ~= 'table' then set = pcall('PEXPIRE', lock, ms) end",
		new:     "",
		profile: "calm", finds: "has no lease", bound: 30_000,
	},
	{
		name:    "token not increased",
		file:    "internal/luascript/token.lua",
		old:     "n = math.max(n + 1, t[1] * 1000000 + t[2])",
		new:     "n = t[1] * 1000000 + t[2]\n  n = n - n % 200000",
		profile: "calm", finds: "no order of the", bound: 30_000,
	},
	{
		name:    "void set ignored",
		file:    "internal/luascript/whose.lua",
		old:     "if not holder and not no and call('SISMEMBER', void, field) == 1 then no = {-1} end",
		new:     "",
		profile: "late", finds: "lay free", bound: 30_000,
	},
	{
		name:    "no wake-up after a reconnect",
		file:    "internal/pubsub/channel.go",
		old:     "if t.confirmed() {\n\t\tt.missedLocked()\n\t}",
		new:     "_ = t.confirmed()",
		profile: "wake-up", finds: "lay free", bound: 30_000,
	},
	{
		name:    "place in the queue not removed",
		file:    "internal/luascript/fair_release.lua",
		old:     "local done = held == 1 and 1 or ARGV[6] == '1' and leave() or 0",
		new:     "local done = held == 1 and 1 or 0",
		profile: "wake-up", finds: "lay free", bound: 30_000,
	},
	{
		name:    "group releases its first member only",
		file:    "internal/luascript/group_release.lua",
		old:     "done = pcall('HDEL', lock, field)\n    if replaced(done)",
		new:     "done = i > 1 and 1 or pcall('HDEL', lock, field)\n    if replaced(done)",
		profile: "wake-up", finds: "lay free", bound: 30_000,
	},
	{
		name:    "writer enters beside readers",
		file:    "internal/luascript/rw_write.lua",
		old:     "if not none then return refuse(ms) end",
		new:     "",
		profile: "calm", finds: "two inside", bound: 30_000,
	},
	{
		name:    "renewal answered, not made",
		file:    "internal/luascript/renew.lua",
		old:     "elseif held == 1 and ms > 0 and call('PTTL', KEYS[i]) < ms then",
		new:     "elseif false then",
		profile: "calm", finds: "two inside", bound: 30_000,
	},
	{
		name:    "last to come is served first",
		file:    "internal/luascript/fair_acquire.lua",
		old:     "call('RPUSH', QUEUE, field)",
		new:     "call('LPUSH', QUEUE, field)",
		profile: "calm", finds: "not served in the order", bound: 30_000,
	},
	{
		name:    "grant taken without its deadline",
		file:    "fairlock/kind.go",
		old:     "Granted: w.seen, Lease:",
		new:     "Granted: time.Now(), Lease:",
		profile: "calm", finds: "the deadline lies", bound: 40_000,
	},
	{
		name:    "local deadline ignored",
		file:    "internal/held/session.go",
		old:     "func Passed(now, at time.Time) bool {",
		new:     "func Passed(now, at time.Time) bool {\n\tat = at.Add(time.Minute)",
		profile: "half-open", finds: "after its deadline", bound: 20_000,
	},
	{
		name:    "quorum counts a restarted node",
		file:    "multilock/quorum.go",
		old:     "a.Server.Uptime, q.quarantine(core))",
		new:     "a.Server.Uptime, 0*q.quarantine(core))",
		profile: "quorum", finds: "two inside {quorum}", bound: 30_000,
	},
}
