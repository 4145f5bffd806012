-- fair_keys: the keys of a fair lock, and how its queue is written; it is put in front of
-- all its scripts, behind common and clock.
--
-- KEYS[1]  the lock, a hash: <client>:<owner> -> count
-- KEYS[2]  redisson_lock_queue:{lock}, a list: who waits, the next one first
-- KEYS[3]  redisson_lock_timeout:{lock}, a zset: waiter -> epoch ms after which Redisson may drop it
-- KEYS[4]  redlatch_fair:{lock}, a hash: our waiters -> what they want, see below
-- KEYS[5]  the fencing counter
-- KEYS[6]  redlatch_trace:{lock}
-- KEYS[7]  redlatch_void:{lock}, a set of fields given up
-- ARGV[1]  PUBLISH or SPUBLISH
-- ARGV[2]  channel of the grants, without the client's id at its end
-- ARGV[3]  channel of Redisson's waiters, without the owner at its end
--
-- RETURN   nothing by itself
--
-- A want is one text: "<13 digits> <place> <skip> <lease> <fence> <nonce> <trace>": the
-- epoch ms until which the waiter counts as alive (server time), the number of its
-- place (the server time of its arrival in us), its skip time and its lease in
-- ms, '-' or the fencing counter's TTL in ms ('-1' = none), a random text that nobody
-- knows who can't read the want, its trace or nothing.
--
-- Bound: the parts of the fair scripts take at most 1,000 entries of the queue into their hands in a run,
-- together: budget is what is left. The rest is the next run's, which is asked for in a moment.
--
-- In long queues a waiter that gives up from the middle leaves its list entry
-- behind, marked by a score of 0: everybody drops it when it comes to the front.
--
-- Twice: see each script.
local LOCK, QUEUE, SCORES, WANTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- Redisson never touches a TTL: a queue that is also its own lasts for a week from the last
-- refresh or departure of one of ours, or its call of Redisson's first. So those of ours that
-- die behind its waiters go away, too; none of its waiters is lost unless the queue was never
-- empty for that week. (One that was empty begins anew, without a TTL.)
local SHARED = 604800000

local budget = MOST

local function ours(field) return string.find(field, ':g', 1, true) ~= nil end

-- The seven parts of a want; nothing if it can't be read.
local function parts(want)
  if #want <= LONG and string.byte(want, 14) == 32 then
    return string.match(want, '^(%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (.*)$')
  end
end
