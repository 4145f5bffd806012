-- fair_refresh: keep the places of a client's waiters alive, and see to it that
-- a free lock has a taker.
--
-- KEYS, ARGV[1..3]  as in fair_keys
-- ARGV[2+2i]  the waiter i = 1…
-- ARGV[3+2i]  its skip time, ms
--
-- RETURN   three integers per waiter:
--          1  it waits; 2  it holds the lock already; 0  it has no place, or the key is no lock
--          any more: it must try again
--          the first waiter's only: after how many ms to look again without a message, 0 = not known
--          the number of its place, 0 = none
--
-- Bound: as in fair_queue; a waiter that is put back looks at 64 places at most, while the budget
-- lasts, else the next refresh puts it back. Of up to 10,000 scores, read by one command, up to
-- 1,000 of Redisson's are lifted; where there are more none is. Up to 1,000 wants of the dead go.
--
-- Twice: it sets points in time, puts a waiter that Redisson dropped back where
-- it was, and gives away a lock only while it is free. It makes no places, so
-- one that comes late can't bring back a waiter that has left.
local holder, no = whose(LOCK, '')
if no and no.err then return no end

-- Puts a waiter back that Redisson took for stale: it was the first then, so it
-- belongs before all but those who were so, too, and had come earlier.
local function restore(field, mine)
  local after
  for _, f in ipairs(call('LRANGE', QUEUE, 0, 63)) do
    budget = budget - 1
    local other = ours(f) and call('HGET', WANTS, f)
    local alive, place = 0, nil
    if other then alive, place = alive_until(other) end
    if alive == 0 or place > mine then break end
    after = f
  end
  if after then call('LINSERT', QUEUE, 'AFTER', after, field) else call('LPUSH', QUEUE, field) end
end

-- Redisson's scores rise along the queue, and it relies on that: a waiter of it
-- that queues up anew behind a last entry in the past sleeps until it is called,
-- or for ever. Ours in front of its own are lifted at every refresh; so when those
-- have fallen behind a living first one of ours, all of them are lifted by as much
-- as the lowest lacks. Their distances stay, since Redisson takes them off again.
-- Behind a first one of Redisson, which is not lifted, they are above it.
local function lift()
  local head, its = first_waiter()
  if not its then return end
  local top = score_of(head)
  if not top or call('ZCARD', SCORES) > 10 * MOST then return end
  -- Half a skip time below it are none of ours that live, and few others.
  local below = top - its[5] / 2
  local lowest
  local low = call('ZRANGEBYSCORE', SCORES, '(100000000000', string.format('(%.0f', below), 'LIMIT', 0, 256)
  for _, f in ipairs(low) do
    if not ours(f) then
      lowest = f
      break
    end
  end
  if not lowest then return end
  local by = top - score_of(lowest)
  local all, them = call('ZRANGEBYSCORE', SCORES, '-inf', '+inf', 'WITHSCORES'), {}
  for i = 1, #all, 2 do
    if not ours(all[i]) then them[#them + 1] = i end
  end
  if #them > MOST then return end
  for _, i in ipairs(them) do call('ZADD', SCORES, bounded(all[i + 1]) + by, all[i]) end
end

-- The last entry may be one of ours that has died: kept above the present, too.
local function lift_last(skip)
  local last = call('LINDEX', QUEUE, -1)
  local score = last and (score_of(last) or 0)
  if score and score < now + skip / 2 then call('ZADD', SCORES, now + skip, last) end
end

-- Redisson drops the places of the dead, not their wants, which would count as places
-- (see foreign) for as long as anybody waits. Looked for so seldom that it costs a
-- refresh one want on the average.
local function sweep()
  local wants = call('HLEN', WANTS)
  if wants > MOST or clock[2] % math.max(16, wants) ~= 0 then return end
  local all = call('HGETALL', WANTS)
  for i = 1, #all, 2 do
    if alive_until(all[i + 1]) <= now and not call('ZSCORE', SCORES, all[i]) then call('HDEL', WANTS, all[i]) end
  end
end

mend()
sweep()
local out, longest = {}, 0
for i = 4, #ARGV, 2 do
  local field, skip = ARGV[i], tonumber(ARGV[i + 1])
  local state, place = 0, 0
  if holder and string.sub(holder .. '.', 1, #field + 1) == field .. '.' then
    state = 2
  elseif not no then -- else the key is no lock any more: its own try tells it
    local want = call('HGET', WANTS, field)
    local before, came = 0, nil
    if want then before, came = alive_until(want) end
    if before > 0 then
      local alive = now + skip
      state, place = 1, came
      call('HSET', WANTS, field, string.format('%.0f', alive) .. string.sub(want, 14))
      local score = score_of(field)
      if score then
        -- Raised by the time that has passed, so that it still holds what
        -- Redisson's waiters in front will take off.
        score = score + math.max(alive - before, 0)
      elseif budget > MOST / 2 then
        restore(field, place)
        score = 0
      end
      if score then call('ZADD', SCORES, math.max(score, alive), field) end
      longest = math.max(longest, skip)
    end
  end
  out[#out + 1] = state
  out[#out + 1] = 0
  out[#out + 1] = place
end
if longest > 0 then
  if foreign(call('ZCARD', SCORES), call('HLEN', WANTS)) then lift() end
  lift_last(longest)
  keep(longest)
end

local ttl = call('PTTL', LOCK)
if ttl == -2 then
  local _
  _, out[2] = hand_over()
elseif ttl >= 0 then
  out[2] = ttl + 1
end
return out
