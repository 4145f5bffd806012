-- rw_read_release: give a read hold back, wholly or down to a count; or undo an
-- acquisition that may have left one, or a place.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_void:{lock}
-- KEYS[3]  redlatch_rw_leases:{lock}
-- KEYS[4]  {lock}:<field>:rwlock_timeout:1
-- KEYS[5]  redlatch_rw_marks:{lock}
-- KEYS[6]  redlatch_rw_readers:{lock}, only to undo
-- KEYS[7]  redlatch_rw_turn:{lock}, only to undo
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[8] is '1'
-- ARGV[1]  field of the acquisition
-- ARGV[2]  the absolute count to reach; 0 = not held any more
-- ARGV[3]  count > 0: the remaining lease that is needed, ms (that of the latest-ending live hold)
-- ARGV[4]  channel
-- ARGV[5]  PUBLISH or SPUBLISH
-- ARGV[6]  '0', or how long (ms) a late command of this acquisition must be refused
-- ARGV[7]  what the names of all timeout keys begin with: {lock}, or the lock's name with a tag
-- ARGV[8]  '1' = the acquisition left its trace
-- ARGV[9]  '1' = undo
-- ARGV[10] count > 0, optional: when the hold's lease ends, as an answer of 3 has told: lower that one
--
-- Beside KEYS it reads <ARGV[7]>:<field>:rwlock_timeout:<i> of readers that are
-- not redlatch's: only when there are any and the leaver was the last to end.
--
-- RETURN   1           done
--          0           not held by this acquisition
--          {2, error}  done, but the server refused the message
--          {3, ends}   done, but the lease ends later than is needed: in ms of the server's clock
--
-- Twice: the second run finds the field gone, or the count reached; it can't
-- touch another acquisition, not even one of the same owner. A lease is lowered
-- only while it ends when the caller was told that it does, as in release. Works when the
-- server is out of memory.
if ARGV[6] ~= '0' then
  redis.pcall('SADD', KEYS[2], ARGV[1])
  redis.pcall('PEXPIRE', KEYS[2], ARGV[6])
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local message

if ARGV[9] == '1' then
  local was = redis.call('ZREM', KEYS[7], ARGV[1])
  redis.call('ZREM', KEYS[6], ARGV[1])
  -- it was the last whose turn the writers stand back for
  if was == 1 and redis.call('EXISTS', KEYS[7], KEYS[1]) == 0 then message = '0' end
end

-- how long the readers of other libraries need the lock; -2: not at all
local function foreign(ttl)
  local longest = -2
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local n = tonumber(all[i + 1])
    if n and n > 1000 then
      longest = math.max(longest, ttl) -- nobody nests so deep, and the scan must end
    elseif n and not redis.call('ZSCORE', KEYS[3], all[i]) then
      for k = n, 1, -1 do
        longest = math.max(longest, redis.call('PTTL', ARGV[7] .. ':' .. all[i] .. ':rwlock_timeout:' .. k))
      end
    end
  end
  return longest
end

-- makes the lock last as long as the latest-ending hold; true: there is none
local function settle()
  if redis.call('HGET', KEYS[1], 'mode') == 'write' then
    -- the leaver reads under its own write lock, whose end must be known
    for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
      if string.sub(f, -6) == ':write' and not redis.call('ZSCORE', KEYS[3], f) then return false end
    end
  end
  for _, f in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)) do
    redis.call('ZREM', KEYS[3], f)
    redis.call('HDEL', KEYS[1], f)
    if string.sub(f, -6) == ':write' then redis.call('HSET', KEYS[1], 'mode', 'read') end
  end
  local ttl, need = redis.call('PTTL', KEYS[1]), -2
  local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
  if last[1] then
    need = last[2] - now
    redis.call('PEXPIRE', KEYS[3], need)
  end
  if redis.call('HLEN', KEYS[1]) - 1 > redis.call('ZCARD', KEYS[3]) then need = math.max(need, foreign(ttl)) end
  if need <= 0 then
    redis.call('DEL', KEYS[1], KEYS[3])
    return true
  end
  redis.call('PEXPIRE', KEYS[1], need)
  -- A writer that waits was told a time that is far too long now.
  if need * 2 < ttl and redis.call('EXISTS', KEYS[5]) == 1 then message = '0' end
  return false
end

-- whether nothing outlasts a lease that ended, or was set, at the given time;
-- a few ms for the rounding of two clocks
local function longest(ends) return ends + 5 >= now + redis.call('PTTL', KEYS[1]) end

local ends = tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or 0)
local done = 1
local held = redis.pcall(ARGV[2] ~= '0' and 'HGET' or 'HDEL', KEYS[1], ARGV[1]) or 0
if type(held) == 'table' then
  -- another type at this key: somebody replaced the lock
  if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
  held = 0
end
if ARGV[2] ~= '0' then
  if held == 0 or ends > 0 and ends <= now then
    -- a write, though it changes nothing: a demoted master must not say "gone"
    local w = redis.pcall('HDEL', KEYS[1], '')
    return type(w) == 'table' and not string.find(w.err, 'WRONGTYPE', 1, true) and w or 0
  end
  if tonumber(held) > tonumber(ARGV[2]) then redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2]) end
  if ends > now + ARGV[3] and ends ~= tonumber(ARGV[10]) then return {3, ends} end
  if type(redis.pcall('ZADD', KEYS[3], now + ARGV[3], ARGV[1])) == 'table' then return 1 end
  redis.pcall('SET', KEYS[4], '1', 'PX', ARGV[3])
  if ends == 0 or longest(ends) or longest(now + ARGV[3]) then settle() end
elseif held == 0 then
  redis.call('DEL', KEYS[4])
  done = 0
else
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('DEL', KEYS[4])
  if ARGV[8] == '1' then
    local left = redis.pcall('GET', KEYS[#KEYS])
    if type(left) == 'string' and string.sub(left, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' then redis.pcall('DEL', KEYS[#KEYS]) end
  end
  if redis.call('HLEN', KEYS[1]) == 1 then
    redis.call('DEL', KEYS[1], KEYS[3])
    message = '0'
  elseif ends == 0 or longest(ends) then
    if settle() then message = '0' end
  end
  if ends > 0 and ends <= now then done = 0 end
end
if not message then return done end
local sent = redis.pcall(ARGV[5], ARGV[4], message)
if done == 1 and type(sent) == 'table' and sent.err then return {2, sent.err} end
return done
