package promises

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/broken"
)

// breaks is the table of faults that a promise's test must find. A new one needs the text that it
// replaces, the test (and case) that goes red, and a part of what that says; try it with
// make breaks ONLY=name.
var breaks = []struct {
	name           string
	file, old, new string // see broken.Break
	test, says     string
}{
	{
		"a release takes whatever is there", "internal/luascript/release.lua",
		"if ARGV[2] == '0' then gone = redis.pcall('HDEL', KEYS[1], ARGV[1]) end",
		"if ARGV[2] == '0' then gone = redis.pcall('DEL', KEYS[1]) end",
		"TestALostCommandChangesNothing/plain/lock_and_unlock", "the next one's hold",
	},
	{
		"a fair release takes whatever is there", "internal/luascript/fair_release.lua",
		"local held = pcall('HDEL', LOCK, field)", "local held = pcall('DEL', LOCK)",
		"TestALostCommandChangesNothing/fair/lock_and_unlock", "the next one's hold",
	},
	{
		"no lease is set", "internal/luascript/acquire.lua",
		"local set = redis.pcall('PEXPIRE', LOCK, lease)", "local set = 1",
		"TestALeaseThatEndsIsTold/plain/its_servers_are_out_of_reach", "does not return",
	},
	{
		"the void set is ignored", "internal/luascript/whose.lua",
		"call('SISMEMBER', void, field) == 1 then no = {-1} end", "false then no = {-1} end",
		"TestALostCommandChangesNothing/plain/lock_and_unlock/the_request_comes_when_the_lock_is_free", "does not return",
	},
	{
		"the void set of a write lock is ignored", "internal/luascript/rw_write.lua",
		"if found > 3 and call('SISMEMBER', KEYS[2], own) == 1 then return {-1} end", "",
		"TestALostCommandChangesNothing/write/wait_and_give_up/the_request_comes_when_the_lock_is_free", "does not return",
	},
	{
		"a group gives its first member back", "internal/luascript/group_release.lua",
		"done = pcall('HDEL', lock, field)\n    if replaced(done)", "done = i > 1 and 1 or pcall('HDEL', lock, field)\n    if replaced(done)",
		"TestTheContextIsTheOwner/group/another_owner_is_kept_out", "does not return",
	},
	{
		"a writer enters beside readers", "internal/luascript/rw_write.lua",
		"elseif mode or holder then", "elseif mode == 'write' or holder then",
		"TestTheContextIsTheOwner/read/nested_holds_are_unlocked_in_any_order", "a second holder came in",
	},
	{
		"a renewal is answered and not made", "internal/luascript/renew.lua",
		"elseif held == 1 and ms > 0 and call('PTTL', KEYS[i]) < ms then", "elseif false then",
		"TestLeases/plain/the_watchdog_renews", "",
	},
	{
		"a wait counts as held", "internal/engine/identity.go",
		"if !a.waited || a.leftover.lost > 0 {", "if true {",
		"TestHeldIsSinceTheGrant/plain/after_a_wait", "is held since",
	},
	{
		"a wait counts as held where a lock is handed over", "internal/luascript/fair_queue.lua",
		"local as = waited ~= '0' and head .. '.' .. waited or head", "local as = head",
		"TestHeldIsSinceTheGrant/fair/after_a_wait", "",
	},
	{
		"a field changes while a command has no answer", "internal/engine/identity.go",
		"if !a.waited || a.leftover.lost > 0 {", "if !a.waited {",
		"TestALostCommandChangesNothing/plain/lock_and_unlock/the_reply_is_lost/command_1", "does not return",
	},
	{
		"a grant whose field is not known is kept", "internal/luascript/fair_release.lua",
		"if held == 0 and call('HLEN', LOCK) == 1 then", "if false then",
		"TestALostCommandChangesNothing/fair/wait_and_give_up/the_reply_is_lost/command_1", "does not return",
	},
	{
		"an inner unlock frees the lock", "internal/held/release.go",
		"p.count, p.until = s.countLocked(h), h.deadlineLocked()", "p.count, p.until = 0, h.deadlineLocked()",
		"TestTheContextIsTheOwner/plain/nested_holds_are_unlocked_in_any_order", "Extend: redlatch: lock not held",
	},
	{
		"the watchdog tells no loss", "internal/held/renewal.go",
		"if !s.releaseSent && !s.over { // else it is our own release that was found", "if false {",
		"TestALostLockIsTold/plain/it_is_deleted,_and_is_renewed_or_fixed", "the hold's context does not end",
	},
	{
		"a local deadline passes a minute late", "internal/lease/deadline.go",
		"func Passed(now, at time.Time) bool {", "func Passed(now, at time.Time) bool {\n\tat = at.Add(time.Minute)",
		"TestALeaseThatEndsIsTold/plain/its_servers_are_out_of_reach", "two are inside with live contexts",
	},
	{
		"a lease of a millisecond is one on the server, too", "internal/kind/values.go",
		"FormatInt(max(2, int64(", "FormatInt(max(1, int64(",
		"TestTheShortestLease/read", "another one is inside",
	},
	{
		"no drift is taken off a lease", "internal/lease/deadline.go",
		"return sent.Add(length - Drift(length))", "return sent.Add(length + length/4)",
		"TestALeaseThatEndsIsTold/plain/its_servers_are_out_of_reach", "two are inside with live contexts",
	},
	{
		"a second unlock is as good as the first", "internal/held/unlocked.go",
		"\treturn lock.ErrNotHeld\n}", "\treturn nil\n}",
		"TestTheContextIsTheOwner/plain/a_second_unlock", "the second Unlock returned",
	},
	{
		"a loss is told once, and not by Unlock", "internal/held/unlocked.go",
		"return &unlockResult{h.lost}", "return &unlockResult{nil}",
		"TestALostLockIsTold/plain/it_is_forced_open", "Unlock of a lost hold",
	},
	{
		"Close ends no hold", "internal/held/registry.go",
		"\t\th.finish(\"closed\")\n", "\t\th.claim.Release()\n",
		"TestTheEndOfAClient/plain/Close_beside_a_hold", "the hold's context does not end",
	},
	{
		"a draining client lets in", "internal/held/registry.go",
		"\tr.drains = true\n\tr.drainSharesLocked()", "\tr.drainSharesLocked()",
		"TestTheEndOfAClient/plain/Shutdown_beside_a_hold", "nobody is let in",
	},
	{
		"Shutdown waits for nobody", "internal/held/registry.go",
		"if held == 0 || closed {", "if held >= 0 || closed {",
		"TestTheEndOfAClient/plain/Shutdown_beside_a_hold", "Shutdown: <nil>",
	},
	{
		"every negative wait is none", "internal/engine/lock.go",
		"\tif wait < 0 {\n\t\treturn nil, l.refused(", "\tif wait < -time.Hour {\n\t\treturn nil, l.refused(",
		"TestLeases/plain/what_can't_be_meant", "TryLock(-1ns, 0s)",
	},
	{
		"a lease below a millisecond is taken", "internal/lease/deadline.go",
		"case length > 0 && length < time.Millisecond:", "case false:",
		"TestLeases/plain/what_can't_be_meant", "TryLock(0s, 1ns)",
	},
	{
		"a lease is not raised by a re-entry", "internal/luascript/reenter.lua",
		"if call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then call('PEXPIRE', KEYS[1], ARGV[3]) end", "",
		"TestLeases/plain/nested_holds", "are left, want 5m0s",
	},
	{
		"a re-entry finds what is gone", "internal/luascript/reenter.lua", "== 0 then return 0 end", "== 0 then return 1 end",
		"TestALostLockIsTold/plain/it_is_gone_with_all_there,_and_Extend_finds_it", "Extend: <nil>",
	},
	{
		"a section's error hides a loss", "lock/lock.go", "err = Join(err, uerr)", "if err == nil {\n\t\t\t\terr = uerr\n\t\t\t}",
		"TestSections/plain/function:_a_loss", "Do: boom",
	},
	{
		"who gives up leaves his place", "internal/engine/acquire.go", "\tif !a.leftover.any() {\n\t\treturn", "\tif true {\n\t\treturn",
		"TestCallsThatEndAtRandomMomentsLeaveNothing/fair", "no key left",
	},
	{
		"a server that can't be reached is busy", "lock/errors.go",
		"return target == ErrNotAcquired && !errors.Is(e.Err, ErrUnavailable)", "return target == ErrNotAcquired",
		"TestErrorsSayWhatIs/plain/its_servers_can't_be_reached", "one attempt",
	},
	{
		"everybody is one owner", "internal/held/owner.go",
		"func newOwner() *Owner { return &Owner{seq: ownerSeq.Add(1)} }", "func newOwner() *Owner { return one }\n\nvar one = &Owner{seq: ownerSeq.Add(1)}",
		"TestTheContextIsTheOwner/plain/another_owner_is_kept_out", "",
	},
	{
		"a hold's context carries no owner", "internal/held/hold.go",
		"if _, ok := key.(ownerKey); ok {", "if _, ok := key.(ownerKey); ok && false {",
		"TestTheContextIsTheOwner/plain/nested_holds_are_unlocked_in_any_order", "does not return",
	},
	{
		"the caller's context does not end the hold's", "internal/held/hold.go",
		"context.WithCancel(h.parent)", "context.WithCancel(context.WithoutCancel(h.parent))",
		"TestLeases/plain/the_watchdog_renews", "the hold's context does not end",
	},
	{
		"a place of a lost hold's late command stays", "internal/luascript/fair_release.lua",
		"(ARGV[6] == '1' or ARGV[5] ~= '0')", "ARGV[6] == '1'",
		"TestALateCommandOfALostHoldKeepsNoPlace/fair", "no key left",
	},
	{
		"a reader's turn of a lost hold's late command stays", "rwlock/readkind.go",
		"k.free(f, void, void > 0)", "k.free(f, void, false)",
		"TestALateCommandOfALostHoldKeepsNoPlace/read", "is kept for nobody",
	},
	{
		"a partial release sets its own lease", "internal/luascript/shrink.lua",
		"    if type(set) == 'table' then return set end\n", "    if type(set) == 'table' then return set end\n    pcall('PEXPIRE', lock, 20000)\n",
		"TestNestedHolds/plain/a_release_of_an_inner_one_that_comes_late", "has cut the lease",
	},
	{
		"what was asked for beyond a hold is left to its lease", "internal/held/session.go",
		"if s.mayArrive > 0 || !forsook && s.leaseStaysLocked(own) {", "if s.mayArrive > 0 {",
		"TestNestedHolds/plain/what_was_asked_for_beyond_the_holds_is_given_back:_by_an_inner_hold", "does not return",
	},
	{
		"a second unlock does not wait for the first", "internal/held/unlocked.go",
		"		return nil // another Unlock is at it: wait behind it\n", "		return &unlockResult{lock.ErrNotHeld}\n",
		"TestAHoldIsUnlockedOnce/plain/a_second_unlock", "while the servers were silent",
	},
	{
		"a draining client lets nobody re-enter", "internal/engine/try.go",
		"	drains := false\n	for i := range a.members {", "	drains := a.core.isDraining()\n	for i := range a.members {",
		"TestTheEndOfAClient/plain/a_re-entry_whose_answer_is_lost", "client closed",
	},
	{
		"the longest lease is rounded up", "internal/kind/values.go",
		"	if d > math.MaxInt64-time.Millisecond {", "	if d > math.MaxInt64-1 && d < 0 {",
		"TestTheLongestWaitsAndLeases/plain", "",
	},
	{
		"NewOwner is nobody's start", "internal/held/owner.go",
		"	return context.WithValue(ctx, ownerKey{}, carried{})", "	return ctx",
		"TestTheInnermostOwnerDecides/plain", "a second holder came in",
	},
	{
		"a held lock is taken", "internal/luascript/acquire.lua",
		"if busy then\n  if place", "if false then\n  if place",
		"TestTheContextIsTheOwner/plain/another_owner_is_kept_out", "a second holder came in",
	},
	{
		"a group takes what others hold", "internal/luascript/group_acquire.lua",
		"if holder and holder ~= field then", "if false then",
		"TestTheContextIsTheOwner/group/another_owner_is_kept_out", "a second holder came in",
	},
	{
		"a reader enters beside a writer", "internal/luascript/rw_read.lua",
		"if mode == 'write' then\n  if ARGV[4]", "if false then\n  if ARGV[4]",
		"TestTheContextIsTheOwner/read/a_second_unlock", "a second holder came in",
	},
	{
		"a write release takes whatever is there", "internal/luascript/rw_write_release.lua",
		"local done = pcall('HDEL', LOCK, field)", "local done = pcall('DEL', LOCK)",
		"TestALostCommandChangesNothing/write/lock_and_unlock", "the next one's hold",
	},
	{
		"a read release takes whatever is there", "internal/luascript/rw_read_release.lua",
		"local done = pcall('HDEL', LOCK, field)", "local done = pcall('DEL', LOCK)",
		"TestALostCommandChangesNothing/read/lock_and_unlock", "one holder",
	},
	{
		"no lease is set for a fair lock", "internal/luascript/enter.lua",
		"set = pcall('PEXPIRE', lock, ms) end", "set = 1 end",
		"TestALeaseThatEndsIsTold/fair/its_servers_are_out_of_reach", "does not return",
	},
	{
		"no lease is set for a write lock", "internal/luascript/rw_write.lua",
		"local set = pcall('PEXPIRE', LOCK, ARGV[2])", "local set = 1",
		"TestALeaseThatEndsIsTold/write/its_servers_are_out_of_reach", "does not return",
	},
	{
		"a renewal of a read lock is answered and not made", "internal/luascript/rw_renew.lua",
		"if call('PTTL', key) < to - now then", "if false then",
		"TestLeases/read/the_watchdog_renews", "",
	},
	{
		"a renewal takes any lock for its own", "internal/luascript/renew.lua",
		"held = pcall('HEXISTS', KEYS[i], field) end", "held = 1 end",
		"TestALostLockIsTold/plain/it_is_deleted,_and_is_renewed_or_fixed", "",
	},
	{
		"a fixed lease is renewed", "internal/held/session.go",
		"\tif fixed > 0 {\n\t\ts.fixedHolds++", "\tif fixed < 0 {\n\t\ts.fixedHolds++",
		"TestALeaseThatEndsIsTold/plain/its_fixed_lease_ends", "",
	},
	{
		"a late grant is kept", "internal/engine/try.go",
		"\tif !stays && left.any() {", "\tif !stays && left.any() && !granted {",
		"TestAnEndedCallLeavesNothing/plain/free/the_reply_is_on_its_way/ctx_ends", "left behind on",
	},
	{
		"a wait is cut short", "internal/engine/acquire.go",
		"a.until = time.Now().Add(wait)", "a.until = time.Now().Add(wait / 2)",
		"TestErrorsSayWhatIs/plain/the_lock_is_busy", "a wait of",
	},
	{
		"an owner of one's own is a new one each time", "internal/held/owner.go",
		"\t\to := r.owners[k.id]\n", "\t\tvar o *Owner\n",
		"TestTheContextIsTheOwner/plain/an_owner_of_one's_own_enters_again", "does not return",
	},
	{
		"a Shutdown without time says nothing", "internal/held/registry.go",
		"\t\t\treturn ctx.Err()\n", "\t\t\treturn nil\n",
		"TestTheEndOfAClient/plain/Shutdown_that_has_no_time", "Shutdown: <nil>",
	},
	{
		"a MultiLock outlives a member", "multilock/end.go",
		"over := h.alive < h.need", "over := h.alive < 1-h.need",
		"TestALostLockIsTold/multi/it_is_deleted,_and_is_renewed_or_fixed", "the hold's context does not end",
	},
	{
		"one of three is a majority", "multilock/quorum.go",
		"{ return n/2 + 1 }", "{ return n / 2 }",
		"TestOneIsInside/quorum/all_stay", "the counter says",
	},
	{
		"late commands of a released hold are not refused", "internal/held/unlocked.go",
		"p.count, s.releaseSent = 0, true\n\tif s.mayArrive > 0 {", "p.count, s.releaseSent = 0, true\n\tif false {",
		"TestALostCommandChangesNothing/plain/lock_and_unlock/the_request_comes_when_the_lock_is_free", "does not return",
	},
	{
		"a retry of an acquisition is another one", "internal/engine/acquire.go",
		"\ta.lastErr = err\n", "\ta.lastErr = err\n\ta.newID()\n",
		"TestALostCommandChangesNothing/plain/lock_and_unlock/the_reply_is_lost", "does not return",
	},
	{
		"a release whose reply was lost is taken for a loss", "internal/held/give.go",
		"\tcase code == kind.ReleaseGone && (!p.ambiguous || p.count > 0):\n\t\t// An earlier", "\tcase code == kind.ReleaseGone:\n\t\t// An earlier",
		"TestALostCommandChangesNothing/plain/lock_and_unlock/the_reply_is_lost", "Unlock: ",
	},
	{
		"Extend may shorten a lease", "internal/held/extend.go",
		"\tif until.After(h.until) {", "\tif h.lease > 0 {",
		"TestLeases/plain/Extend_lengthens", "shortened by",
	},
	{
		"an eviction ends whoever holds it", "internal/luascript/force_any.lua",
		"if in_mode and (not only or only[f] or (writes and only[string.sub(f, 1, -7)])) then", "if in_mode then",
		"TestOperatorsTakeALockAway/plain/an_eviction", "another owner: true",
	},
	{
		"the object of another kind takes a lock away", "internal/luascript/force_any.lua",
		"if want ~= '' and (kind == RW) ~= (want ~= 'lock') then", "if false then",
		"TestOperatorsTakeALockAway/read/the_object_of_another_kind", "true, <nil>",
	},
	{
		"nobody is woken at a free lock", "internal/luascript/force_any.lua",
		"send(ARGV[5], '1') end\n    tell('1')\n", "send(ARGV[5], '1') end\n",
		"TestOperatorsTakeALockAway/plain/of_a_lock_that_somebody_deleted", "it is inside after",
	},
	{
		"a client that takes its own lock away does not look", "internal/held/pass.go",
		"\t\tif ours {\n", "\t\tif ours && !answered {\n",
		"TestOperatorsTakeALockAway/sharing/by_the_lock", "does not",
	},
	{
		"a grant of what was taken away meanwhile is not checked", "internal/held/session.go",
		"\tif r.doubtedLocked(s.Lock.Key, sent) {\n", "\tif false {\n",
		"TestOperatorsTakeALockAway/plain/from_a_holder", "does not end",
	},
	{
		"who waits is woken before the other readers are checked", "internal/held/losses.go",
		"return l.Kind.Traits().Mode != lock.ModeLock && r.Suspect(l.Key, lock.ModeNone, ManyHeld)", "return false",
		"TestADeletedLockIsLostForAllOfTheProcess/read", "counts on the lock beside",
	},
	{
		"who gets what its client still holds says nothing", "internal/engine/answer.go",
		"\t\ta.suspectHolder()\n", "",
		"TestADeletedLockIsLostForAllOfTheProcess/fair", "the hold's context does not end",
	},
	{
		"who reads what its client still writes says nothing", "internal/engine/answer.go",
		"\ta.core.reg.Suspect(l.Key, but, fewHeld)\n", "\tif but == lock.ModeNone {\n\t\ta.core.reg.Suspect(l.Key, but, fewHeld)\n\t}\n",
		"TestADeletedLockIsLostForAllOfTheProcess/write", "the hold's context does not end",
	},
	{
		"State halves what is left", "internal/luascript/state.lua",
		"return {1, call('PTTL', KEYS[1]), token", "return {1, math.floor(call('PTTL', KEYS[1]) / 2), token",
		"TestTheContextIsTheOwner/plain/nested_holds_are_unlocked_in_any_order", "state {",
	},
	{
		"a reader makes a token", "internal/luascript/rw_read.lua",
		"    n = counter(KEYS[9])\n", "    n = math.max(counter(KEYS[9]), 1)\n",
		"TestTokensIncreaseOverAllWaysToLock", "want the same as before, 0",
	},
	{
		"an unfenced write lock has a token", "rwlock/kind.go", "\tif set.Fenced {\n", "\tif true {\n",
		"TestTokensIncreaseOverAllWaysToLock/not_asked_for", "WriteLock: token",
	},
	{
		"a mapped name may be empty", "config.go", "\t\t\tif key == \"\" {", "\t\t\tif false {",
		"TestEverythingNamesTheLockAsItsCallerDid/plain", "a name that the mapper makes nothing of: <nil>",
	},
	{
		"a waiter whose place is gone is not told", "fairlock/kind.go",
		"return vals[0].Int != 1, lookAfter", "return false, lookAfter",
		"TestAWaiterIsWoken/fair/it_is_gone_with_servers_that_start_again", "does not return",
	},
	{
		"places are looked after too seldom", "fairlock/kind.go",
		"{ return k.skip / kind.PlaceLives }", "{ return k.skip * 8 / 10 }",
		"TestOperatorsTakeALockAway/fair/by_hand", "it is inside after",
	},
	{
		"a reader is refused beside a reader", "internal/luascript/rw_read.lua",
		"if mine then return enter(2) end\n", "if mine then return enter(2) end\nif mode == 'read' then return refuse(0) end\n",
		"TestOperatorsTakeALockAway/read/by_the_lock", "does not return",
	},
}

// varBreaks asks for the breaks: all, or those with this in their names. Each takes a build.
const varBreaks = "REDLATCH_BREAKS"

// What a break replaces stands in the code, once.
func TestBreaksApply(t *testing.T) {
	t.Parallel()
	for _, b := range breaks {
		if err := (broken.Break{File: b.file, Old: b.old, New: b.new}).Fits(); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
	}
}

// A bug of one line turns the test red that names the promise, for the right reason.
func TestBreaks(t *testing.T) {
	want := os.Getenv(varBreaks)
	if want == "" {
		t.Skipf("set %s to all, or to a part of a name (make breaks does)", varBreaks)
	}
	ran := 0
	for _, b := range breaks {
		if want != "all" && !strings.Contains(b.name, want) {
			continue
		}
		ran++
		t.Run(b.name, func(t *testing.T) {
			program, folder, err := broken.Break{File: b.file, Old: b.old, New: b.new}.Build(t.TempDir(), "promises", "bed", "broken")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			cmd := exec.CommandContext(t.Context(), program, "-test.timeout", "2m", "-test.run", pattern(b.test))
			cmd.Dir, cmd.Env = folder, append(os.Environ(), varBreaks+"=")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), b.says) || !strings.Contains(string(out), "--- FAIL") {
				t.Errorf("%s does not find it (want %q): %v\n%.3000s", b.test, b.says, err, out)
			}
			t.Logf("%s: red after %v", b.test, time.Since(began).Round(10*time.Millisecond))
		})
	}
	if ran == 0 {
		t.Fatalf("%s=%q is in no break's name: nothing ran", varBreaks, want)
	}
	t.Logf("%d of %d breaks ran", ran, len(breaks))
}

// pattern makes an exact pattern for -test.run of a case's name, in which .* stands for anything.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + part
		if i < 2 {
			parts[i] += "$"
		}
	}
	return strings.Join(parts, "/")
}
