-- fair_acquire: take a fair lock for a new owner, or stand in its queue.
--
-- KEYS, ARGV[1..3]  as in fair_keys
-- ARGV[4]  this acquisition among those that wait
-- ARGV[5]  lease, ms
-- ARGV[6]  '-' = not fenced; else the counter's TTL in ms, '-1' = no TTL
-- ARGV[7]  '' = no trace; '-' = read the holder's only; else the traceparent to leave
-- ARGV[8]  '0' = don't queue up; else the skip time, ms
-- ARGV[9]  the nonce of the place, without a space: the message of its grant brings it back
-- ARGV[10] field of its hold: ARGV[4], '.' and for how many ms it has waited; absent = ARGV[4]
--
-- RETURN   {1, token}  acquired (0: not fenced)
--          {2, token, field}  held by this very acquisition: a retry, or a grant, which says by itself for
--                      how long it had waited; the lease was set again
--          {0, pttl, holder, trace, place, length, look, foreign}  busy; pttl in ms, -1 = no TTL,
--                      -2 = free, but others are first; place 0 = not queued; length of the queue;
--                      look: after how many ms something may change without a message, 0 = not
--                      known or somebody else's to look; foreign 1 = Redisson's messages may come
--          {-1}        this acquisition was given up before
--          {-3}        the key is no lock; it was not touched
--
-- Bound: as in fair_queue, and up to 1,000 wants of the dead.
--
-- Twice: the field names the acquisition. A second run finds its own hold and
-- only sets the lease, or finds its own place and only keeps it alive. A run
-- that comes after the acquisition was given up finds its field in the void set.
local field, lease, fence = ARGV[4], tonumber(ARGV[5]), ARGV[6] == '-' and '' or ARGV[6]
local holder
local look_in = 0
local there = pcall('HLEN', LOCK)
if there == 1 then
  -- the most frequent case, as whose has it: somebody else holds the lock
  local one = call('HGETALL', LOCK)
  if #one == 2 and string.find(one[1], field, 1, true) ~= 1 and #one[1] < 1025 and #one[2] < 16 and
    string.byte(one[1], 37) == 58 and string.byte(one[1], 9) == 45 and tonumber(one[2]) then
    holder = one[1]
  end
end
if not holder then
  -- hold stands here
  -- whose stands here
  -- counter stands here
  -- token stands here
  -- enter stands here
  -- fair_scores stands here
  -- fair_queue stands here
  local no
  if there ~= 0 or call('EXISTS', KEYS[7]) == 1 then holder, no = look(LOCK, KEYS[7], field) end
  if no then return no end
  if holder and string.sub(holder .. '.', 1, #field + 1) == field .. '.' then
    -- The lease is written in any case: WAIT counts the writes of its connection.
    call('PEXPIRE', LOCK, math.max(lease, call('PTTL', LOCK)))
    local n = token(KEYS[5], fence, true, clock)
    return type(n) == 'table' and n or {2, n, holder}
  end
  if not holder then
    local head, want, more = first_waiter()
    if not more and (not head or head == field) then
      if head then drop_first(head) end
      local n = token(KEYS[5], fence, false, clock)
      local refused = type(n) == 'table' and n or take(LOCK, ARGV[10] or field, lease)
      if refused then return refused end
      -- Redisson may have dropped its place: a late refresh must not restore it.
      if not head then call('HDEL', WANTS, field) end
      leave_trace(KEYS[6], ARGV[10] or field, ARGV[7], lease)
      return {1, n}
    end
    local _
    if more then look_in = 1 else _, look_in = hand_over(head, want) end
    holder = whose(LOCK, field) or ''
  end
end

local pttl = call('PTTL', LOCK)
local trace = ARGV[7] ~= '' and pcall('GET', KEYS[6])
if type(trace) ~= 'string' then trace = '' end
if ARGV[8] == '0' then return {0, pttl, holder, trace, 0, 0, 0, 0} end

if call('SISMEMBER', KEYS[7], field) == 1 then return {-1} end
local skip = tonumber(ARGV[8])
-- Whoever may come to be first before its next refresh looks when the lease ends, too.
if pttl >= 0 and pttl < skip / 5 then look_in = pttl + 1 end
local alive = string.format('%.0f', now + skip)
-- fair_life stands here

-- Redisson's unlock calls the first in the queue: only one that held the lock
-- or stood in the queue when this waiter came can be the one to call it.
local function strange(places, wants)
  return ((holder ~= '' and not ours(holder)) or foreign(places, wants)) and 1 or 0
end

local want, before, place = call('HGET', WANTS, field), nil, nil
if want then before, place = parts(want) end
if (tonumber(before) or 0) > 0 then
  call('HSET', WANTS, field, alive .. string.sub(want, 14))
  -- its scores are set right by its refresh
  return {0, pttl, holder, trace, tonumber(place), 0, look_in, strange(call('ZCARD', SCORES), call('HLEN', WANTS))}
end
local tail = call('LINDEX', QUEUE, '-1')
local scored = tail and call('ZSCORE', SCORES, tail)
if not scored then
  -- fair_scores stands here
  -- fair_mend stands here
  mend()
  tail = call('LINDEX', QUEUE, '-1')
end
local score = alive
local behind, dead = 0, not tail and call('HLEN', WANTS) or 0
if tail then
  -- Behind a waiter of Redisson: when that one acquires, its wait is taken off
  -- all scores; what it has waited so far must not be missing then.
  local last = math.min(tonumber(scored or '0') or 0, now + CENTURY)
  if not ours(tail) then
    last = last + 60000
    behind = 1 -- known for sure: foreign() miscounts while the dead ones that Redisson dropped have wants
  end
  if last > now + skip then score = last end
elseif dead > MOST then
  call('DEL', WANTS) -- nobody waits
elseif dead > 0 then
  -- Nobody waits: wants of waiters that died and that Redisson dropped.
  -- fair_scores stands here
  local wants = call('HGETALL', WANTS)
  for i = 1, #wants, 2 do
    if alive_until(wants[i + 1]) <= now then call('HDEL', WANTS, wants[i]) end
  end
end
place = clock[1] * 1000000 + clock[2]
local trail = ARGV[7] == '-' and '' or ARGV[7]
-- Its entry stands already if only the wants were lost.
local length
if call('ZADD', SCORES, score, field) == 1 then
  length = pcall('RPUSH', QUEUE, field)
  if type(length) == 'table' then
    call('ZREM', SCORES, field)
    return length
  end
else
  length = call('LLEN', QUEUE)
end
call('HSET', WANTS, field, alive .. ' ' .. string.format('%.0f', place) .. ' ' .. ARGV[8] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6] .. ' ' ..
  ARGV[9] .. ' ' .. trail)
local wants = call('HLEN', WANTS)
if not tail or skip > 600000 then
  keep(skip, not tail and dead == 0)
  if not tail and pttl >= 0 then look_in = pttl + 1 end
elseif wants == 1 and call('PTTL', WANTS) < 0 then
  -- the first want of a queue that stood already: if its waiter dies now no refresh comes
  call('PEXPIRE', WANTS, lasting(skip))
end
return {0, pttl, holder, trace, place, length, look_in, math.max(behind, strange(length, wants))}
