package faults

// mutations is the table. A new one needs the text that it replaces, the profile whose
// faults bring it out, and a part of the violation as which it shows; run it with
// make mutations ONLY=name, and set the bound to several times what that takes.
var mutations = []mutation{
	{
		"owner check removed from the release", "twice", "two inside", 30_000, "internal/luascript/release.lua",
		"if ARGV[2] == '0' then gone = redis.pcall('HDEL', KEYS[1], ARGV[1]) end",
		"if ARGV[2] == '0' then gone = redis.pcall('DEL', KEYS[1]) end",
	},
	{
		"lease not set", "calm", "has no lease", 30_000, "internal/luascript/enter.lua",
		"if type(set) ~= 'table' then set = pcall('PEXPIRE', lock, ms) end", "",
	},
	{
		"token not increased", "calm", "no order of the", 30_000, "internal/luascript/token.lua",
		"n = math.max(n + 1, t[1] * 1000000 + t[2])", "n = t[1] * 1000000 + t[2]\n  n = n - n % 200000",
	},
	{
		"void set ignored", "late", "lay free", 30_000, "internal/luascript/whose.lua",
		"if not holder and not no and call('SISMEMBER', void, field) == 1 then no = {-1} end", "",
	},
	{
		"not subscribed again after a reconnect", "wake-up", "lay free", 30_000, "internal/pubsub/channel.go",
		"func (n *node) resetLocked() {", "func (n *node) resetLocked() {\n\tn = &node{}",
	},
	{
		"place in the queue not removed", "wake-up", "lay free", 30_000, "internal/luascript/fair_release.lua",
		"  local left = leave(entry)\n", "  local left = 1\n",
	},
	{
		"group releases its first member only", "wake-up", "lay free", 30_000, "internal/luascript/group_release.lua",
		"done = pcall('HDEL', lock, field)\n    if replaced(done)",
		"done = i > 1 and 1 or pcall('HDEL', lock, field)\n    if replaced(done)",
	},
	{
		"writer enters beside readers", "calm", "two inside", 30_000, "internal/luascript/rw_write.lua",
		"elseif mode or holder then", "elseif mode == 'write' or holder then",
	},
	{
		"renewal answered, not made", "calm", "two inside", 30_000, "internal/luascript/renew.lua",
		"elseif held == 1 and ms > 0 and call('PTTL', KEYS[i]) < ms then", "elseif false then",
	},
	{
		"last to come is served first", "calm", "not served in the order", 30_000, "internal/luascript/fair_acquire.lua",
		"call('RPUSH', QUEUE, field)", "call('LPUSH', QUEUE, field)",
	},
	{
		"grant taken without its deadline", "calm", "the deadline lies", 40_000, "fairlock/kind.go",
		"Granted: w.seen, Lease:", "Granted: time.Now(), Lease:",
	},
	{
		"local deadline ignored", "half-open", "after its deadline", 20_000, "internal/lease/deadline.go",
		"func Passed(now, at time.Time) bool {",
		"func Passed(now, at time.Time) bool {\n\tat = at.Add(time.Minute)",
	},
	{
		"quorum counts a restarted node", "quorum", "two inside {quorum}", 30_000, "multilock/state.go",
		"if old = age >= s.quarantine(); old {", "if old = age >= 0*s.quarantine(); old {",
	},
	{
		"a restart does not show in the run_id", "quorum's clocks", "two inside {quorum}", 30_000,
		"internal/luascript/server.lua",
		"'run_id:(%x+)'", "'tcp_port:(%d+)'",
	},
	{
		"a copy is asked for the whole of a long lease", "quorum, long leases", "two inside {quorum}", 30_000,
		"internal/engine/copies.go",
		"return min(lease, c.cfg.LeaseTime)", "return lease",
	},
	{
		"what is left of a lost hold is kept", "lost members", "forgotten for", 20_000, "multilock/end.go",
		"	_, holds := h.members()\n	for _, m := range holds {\n		switch m := m.(type) {\n		case *held.Hold:\n			m.Forsake()",
		"	_, holds := h.members()\n	for _, m := range holds[:0] {\n		switch m := m.(type) {\n		case *held.Hold:\n			m.Forsake()",
	},
	{
		"lease lowered by a re-entry", "calm", "the deadline lies", 30_000, "internal/luascript/reenter.lua",
		"if call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then call('PEXPIRE', KEYS[1], ARGV[3]) end",
		"call('PEXPIRE', KEYS[1], ARGV[3])",
	},
	{
		"partial release frees the lock", "calm", "two inside", 30_000, "internal/held/release.go",
		"p.count, p.until = s.countLocked(h), h.deadlineLocked()", "p.count, p.until = 0, h.deadlineLocked()",
	},
	{
		"refused release called done", "refused releases", "lay free", 60_000, "internal/held/give.go",
		"if failed == nil && code == kind.ReleaseRefused {\n\t\t\tfailed = conn.RefusalOf(commandOf(parts), text)\n\t\t}",
		"if failed == nil && code == kind.ReleaseRefused || failed != nil && conn.Classify(failed) == conn.Refused {\n" +
			"\t\t\tfailed, code = nil, kind.ReleaseDone\n\t\t}",
	},
	{
		"renewal only if the gate is free", "calm", "lost without a cause", 60_000, "internal/held/watchdog.go",
		"if !s.renewing { // else it has been without an answer for an interval",
		"if !s.renewing && s.claim.Gate.TryEnter() {\n\t\t\ts.claim.Gate.Leave()",
	},
	{
		"loss found by the watchdog not told", "forced", "told of lock taken away", 30_000, "internal/held/renewal.go",
		"if !s.releaseSent && !s.over { // else it is our own release that was found", "if false {",
	},
	{
		"passed on with a deadline of its own", "passing", "the deadline lies", 30_000, "internal/held/pass.go",
		"s.addLocked(to.Ctx, h, to.Claim, 0, g.now, to.Count)",
		"s.addLocked(to.Ctx, h, to.Claim, 0, g.now, to.Count)\n\ts.until = lease.Later(s.until, lease.LocalDeadline(g.now, 3*r.cfg.LeaseTime))",
	},
	{
		"passed on, and not renewed", "passing", "lost without a cause", 60_000, "internal/held/pass.go",
		"s.addLocked(to.Ctx, h, to.Claim, 0, g.now, to.Count)",
		"s.addLocked(to.Ctx, h, to.Claim, s.until.Sub(g.now), g.now, to.Count)",
	},
	{
		"passed on beside a re-entry", "passing", "two inside", 30_000, "internal/held/pass.go",
		"len(s.holds) != 1 || h.lease > 0", "h.lease > 0",
	},
	{
		"tenure ignored", "taking turns", "of another process had it while one waited", 30_000, "internal/held/pass.go",
		"case lease.Passed(now, s.answeredAt.Add(tenure)), now.Sub(r.epoch)-s.tenure >= tenure:", "case false:",
	},
	{
		"lock taken away, next one not told", "forced", "lay free", 30_000, "internal/luascript/force_any.lua",
		"tell(mode == 'write' and '1' or '0') -- also when others stay", "-- also when others stay",
	},
	{
		"crowd: a release calls nobody", "crowd", "lay free", 3_000, "internal/luascript/wake.lua",
		"local n = redis.pcall(publish, channel .. client, text)",
		"local n = 1",
	},
	{
		"crowd: a dead client is taken for called", "crowd", "lay free", 3_000, "internal/luascript/wake.lua",
		"if n > 0 or heeds == '0' then", "if n >= 0 then",
	},
	{
		"crowd: refused, and not on the list", "crowd", "lay free", 3_000, "internal/luascript/enlist.lua",
		"if place == '' then return end", "if place then return end",
	},
	{
		"crowd: who leaves calls nobody", "crowd", "lay free", 3_000, "internal/luascript/wait_leave.lua",
		"redis.pcall('ZREM', KEYS[2], ARGV[1])",
		"redis.pcall('ZREM', KEYS[2], ARGV[1])\nif KEYS[1] then return 0 end",
	},
	{
		"crowd: nobody looks", "crowd, not called", "lay free", 1_500, "internal/pubsub/calls.go",
		"lookEvery = time.Second", "lookEvery = time.Hour",
	},
	{
		"watchdog not stopped", "closing", "unexpected goroutines", 30_000, "internal/held/registry.go",
		"	r.dog.stop()\n	return true", "	return true",
	},
}
