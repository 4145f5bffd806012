package faults

// mutations is the table. A new one needs the text that it replaces, the profile whose
// faults bring it out, and a part of the violation as which it shows; run it with
// make mutations ONLY=name, and set the bound to several times what that takes.
var mutations = []mutation{
	{
		name:    "owner check removed from the release",
		file:    "internal/luascript/release.lua",
		old:     "local gone = redis.pcall('HDEL', KEYS[1], ARGV[1])",
		new:     "local gone = redis.pcall('DEL', KEYS[1])",
		profile: "twice", finds: "two inside", bound: 30_000,
	},
	{
		name:    "lease not set",
		file:    "internal/luascript/acquire.lua",
		old:     "local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])",
		new:     "local set = 1",
		profile: "calm", finds: "has no lease", bound: 30_000,
	},
	{
		name:    "token not increased",
		file:    "internal/luascript/acquire.lua",
		old:     "if us > n then n = us end",
		new:     "n = us - us % 200000",
		profile: "calm", finds: "no order of the", bound: 30_000,
	},
	{
		name:    "void set ignored",
		file:    "internal/luascript/acquire.lua",
		old:     "if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return {-1} end",
		new:     "",
		profile: "late", finds: "lay free", bound: 30_000,
	},
	{
		name:    "no wake-up after a reconnect",
		file:    "internal/pubsub/node.go",
		old:     "if t.confirmed() {\n\t\tt.missedLocked()\n\t}",
		new:     "_ = t.confirmed()",
		profile: "wake-up", finds: "lay free", bound: 30_000,
	},
	{
		name:    "place in the queue not removed",
		file:    "internal/luascript/fair_release.lua",
		old:     "if held == 0 and (ARGV[6] ~= '1' or leave() == 0) then return 0 end",
		new:     "if held == 0 then return 0 end",
		profile: "wake-up", finds: "lay free", bound: 30_000,
	},
	{
		name:    "group releases its first member only",
		file:    "internal/luascript/group_release.lua",
		old:     "out[i] = number(redis.pcall('HDEL', lock, field))",
		new:     "out[i] = i > 1 and 1 or number(redis.pcall('HDEL', lock, field))",
		profile: "wake-up", finds: "lay free", bound: 30_000,
	},
	{
		name:    "writer enters beside readers",
		file:    "internal/luascript/rw_write.lua",
		old:     "if not none then return refuse(look) end",
		new:     "",
		profile: "calm", finds: "two inside", bound: 30_000,
	},
	{
		name:    "renewal answered, not made",
		file:    "internal/luascript/renew.lua",
		old:     "elseif held == 1 and ms > 0 and redis.call('PTTL', KEYS[i]) < ms then",
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
		file:    "internal/engine/session.go",
		old:     "func passed(now, at time.Time) bool {",
		new:     "func passed(now, at time.Time) bool {\n\tat = at.Add(time.Minute)",
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
