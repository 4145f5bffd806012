-- group_acquire: take several plain locks of one slot, all or none.
--
-- KEYS     for each member what acquire.lua takes: the lock, redlatch_void:{lock},
--          the fencing counter and redlatch_trace:{lock} if asked for; the lock
--          alone for a member that its owner holds already
-- ARGV[1]  lease, ms
-- then for each member five:
--   1      how many of the KEYS are its own
--   2      field of the acquisition
--   3      '0' = take it; else it is held: the absolute count to reach
--   4      '' = not fenced; else the counter's TTL in ms, '-1' = no TTL
--   5      '' = no trace; '-' = read the holder's only; else the traceparent to leave
--
-- RETURN   {1, token, ...}   all are held now, a token per member (0 = none)
--          {2, token, ...}   the same, and some were held by this very
--                            acquisition: a retry; the leases were set again
--          {0, i, pttl, holder, trace}  member i (from 1) is busy; pttl in ms, -1 = no TTL
--          {-1}              this acquisition was given up before
--          {-2, i}           member i is no longer held: nothing to re-enter
--          Nothing was written unless the first is 1 or 2.
--
-- Twice: the fields name the acquisition and the counts are absolute; a second
-- run finds its own fields and changes nothing but leases. A run that comes after
-- the acquisition was given up finds its field in a void set.
local lease = ARGV[1]
local members, k, again = {}, 1, false
for a = 2, #ARGV, 5 do
  local m = {
    i = #members + 1, lock = KEYS[k], void = KEYS[k + 1], last = KEYS[k + ARGV[a] - 1], counter = KEYS[k + 2],
    field = ARGV[a + 1], count = ARGV[a + 2], fence = ARGV[a + 3], trace = ARGV[a + 4],
  }
  k = k + ARGV[a]
  members[m.i] = m
  local held = redis.pcall('HEXISTS', m.lock, m.field)
  local replaced = type(held) == 'table' and string.find(held.err, 'WRONGTYPE', 1, true)
  if type(held) == 'table' and not (replaced and m.count ~= '0') then return held end
  m.mine = held == 1
  if m.count ~= '0' then
    if not m.mine then
      -- a write, though it changes nothing: a demoted master must not say "gone"
      local w = redis.pcall('HDEL', m.lock, m.field)
      if type(w) == 'table' and not replaced then return w end
      return {-2, m.i}
    end
  elseif m.mine then
    again = true
  elseif redis.call('EXISTS', m.lock) == 1 then
    local trace = ''
    if m.trace ~= '' then trace = redis.pcall('GET', m.last) end
    if type(trace) ~= 'string' then trace = '' end
    return {0, m.i, redis.call('PTTL', m.lock), redis.call('HKEYS', m.lock)[1], trace}
  elseif redis.call('SISMEMBER', m.void, m.field) == 1 then
    return {-1}
  end
end

-- Nothing has been written so far. If the server refuses a write (no memory, an
-- ACL), what was taken is given back: half a group must not stay.
local function undo(upto, err)
  for j = 1, upto do
    local m = members[j]
    if m.count == '0' and not m.mine then redis.pcall('HDEL', m.lock, m.field) end
  end
  return err
end
local function token(m)
  if m.fence == '' then return 0 end
  local n = tonumber(redis.call('GET', m.counter) or '0')
  if not m.mine or n == 0 then
    local now = redis.call('TIME')
    local us = now[1] * 1000000 + now[2]
    n = n + 1
    if us > n then n = us end
    local set
    if m.fence == '-1' then
      set = redis.pcall('SET', m.counter, string.format('%.0f', n))
    else
      set = redis.pcall('SET', m.counter, string.format('%.0f', n), 'PX', m.fence)
    end
    if type(set) == 'table' and set.err then return set end
  end
  return n
end
local out = {again and 2 or 1}
for i, m in ipairs(members) do
  out[i + 1] = 0
  if m.count == '0' then
    local n = token(m)
    if type(n) == 'table' then return undo(i - 1, n) end
    out[i + 1] = n
    if not m.mine then
      local set = redis.pcall('HSET', m.lock, m.field, 1)
      if type(set) == 'table' then return undo(i - 1, set) end
    end
  else
    local set = redis.pcall('HSET', m.lock, m.field, m.count)
    if type(set) == 'table' then return undo(i - 1, set) end
  end
  local left = redis.call('PTTL', m.lock)
  -- For a retry it is written in any case: a WAIT behind it counts the writes of
  -- its own connection.
  if m.mine or left < tonumber(lease) then
    local set = redis.pcall('PEXPIRE', m.lock, math.max(left, tonumber(lease)))
    if type(set) == 'table' then return undo(i, set) end
  end
  if m.count == '0' and not m.mine and m.trace ~= '' and m.trace ~= '-' then
    redis.pcall('SET', m.last, m.field .. ' ' .. m.trace, 'PX', lease)
  end
end
return out
