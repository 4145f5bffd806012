-- fair_life: how long the keys of a fair lock's queue last; it is put in front of the scripts
-- that add to the queue or take out of its middle, behind fair_keys.
--
-- KEYS     as in fair_keys

-- Whether waiters of Redisson are in the queue, of which each place that is no want of
-- ours and not marked is one.
local function foreign(places, wants)
  local others = places - wants
  return others > 0 and others > call('ZCOUNT', SCORES, '-inf', '(100000000000')
end

-- The queue outlives the last sign of life by the skip time and ten minutes: the longest
-- skip time, since its waiters refresh most seldom.
local function lasting(skip) return math.max(skip + 600000, call('PTTL', WANTS)) end

-- new: the queue has begun with this waiter.
local function keep(skip, new)
  local ms = new and skip + 600000 or lasting(skip)
  call('PEXPIRE', WANTS, ms)
  if not new and foreign(call('ZCARD', SCORES), call('HLEN', WANTS)) then ms = math.max(ms, SHARED) end
  call('PEXPIRE', QUEUE, ms)
  call('PEXPIRE', SCORES, ms)
end
