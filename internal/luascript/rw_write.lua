-- rw_write: take the write lock for a new owner (0 -> 1).
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_void:{lock}
-- KEYS[3]  redlatch_rw_leases:{lock}
-- KEYS[4]  redlatch_rw_writers:{lock}
-- KEYS[5]  redlatch_rw_marks:{lock}
-- KEYS[6]  redlatch_rw_turn:{lock}
-- KEYS[7]  the fencing counter, if ARGV[4] is not ''
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[5] is not ''
-- ARGV[1]  field of this acquisition (without ':write')
-- ARGV[2]  lease, ms
-- ARGV[3]  how long its mark lives, ms; '0' = leave none
-- ARGV[4]  '' = not fenced; else the counter's TTL in ms, '-1' = no TTL
-- ARGV[5]  '' = no trace; '-' = read the holder's only; else the traceparent to leave
--
-- RETURN   {1, token}  acquired
--          {2, token}  held by this very acquisition: a retry; the lease was set again
--          {0, pttl, holder, trace, look}  busy; pttl in ms, -1 = no TTL, -2 = nobody holds it
--                      (it is the readers' turn); look: for how many ms it can't be admitted at
--                      least without a message, 0 = as pttl says
--          {-1}        this acquisition was given up before
--          1 and 2 come as a bare integer when there is no token
--
-- Twice: the field names the acquisition, so a second run finds its own field
-- and changes nothing but the lease; a mark keeps the time of its first run. A
-- run that comes after the acquisition was given up finds its field in the void set.
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return {-1} end
local t = redis.call('TIME')
local us = t[1] * 1000000 + t[2]
local now = math.floor(us / 1000)
local field = ARGV[1] .. ':write'
local fenced = ARGV[4] ~= ''

local function token(fresh)
  local n = tonumber(redis.call('GET', KEYS[7]) or '0')
  if fresh or n == 0 then
    n = n + 1
    if us > n then n = us end
    if ARGV[4] == '-1' then
      redis.call('SET', KEYS[7], string.format('%.0f', n))
    else
      redis.call('SET', KEYS[7], string.format('%.0f', n), 'PX', ARGV[4])
    end
  end
  return n
end

local function refuse(look)
  if ARGV[3] ~= '0' then
    for _, f in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', now, 'LIMIT', 0, 10)) do
      redis.call('ZREM', KEYS[4], f)
      redis.call('ZREM', KEYS[5], f)
    end
    local set = redis.pcall('ZADD', KEYS[4], 'NX', us, ARGV[1])
    if type(set) ~= 'table' then set = redis.pcall('ZADD', KEYS[5], now + ARGV[3], ARGV[1]) end
    if type(set) ~= 'table' then
      for i = 4, 5 do
        if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[3]) then redis.pcall('PEXPIRE', KEYS[i], ARGV[3]) end
      end
    end
  end
  local holder
  if redis.call('HGET', KEYS[1], 'mode') == 'write' then
    for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
      if string.sub(f, -6) == ':write' then holder = string.sub(f, 1, -7) end
    end
  else
    holder = redis.call('ZRANGE', KEYS[3], -1, -1)[1]
  end
  local trace = ''
  if ARGV[5] ~= '' then trace = redis.pcall('GET', KEYS[#KEYS]) end
  if type(trace) ~= 'string' then trace = '' end
  return {0, redis.call('PTTL', KEYS[1]), holder or '', trace, look}
end

-- Ours whose leases have ended are not in the way, whatever TTL another library
-- has given the lock meanwhile: true if nobody is left. Else when the last of ours
-- ends, if there are only ours; 0 if that is not known.
local function readers()
  for _, f in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 100)) do
    redis.call('ZREM', KEYS[3], f)
    redis.call('HDEL', KEYS[1], f)
  end
  local fields = redis.call('HLEN', KEYS[1]) - 1
  if fields == 0 then return true end
  -- as long as somebody waits who wants to know
  local ttl = redis.call('PTTL', KEYS[1])
  if ttl > redis.call('PTTL', KEYS[3]) then redis.call('PEXPIRE', KEYS[3], ttl) end
  local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
  if fields ~= redis.call('ZCARD', KEYS[3]) or redis.call('HEXISTS', KEYS[1], last[1]) == 0 then return false, 0 end
  return false, math.max(1, math.min(last[2] - now, ttl))
end

if redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('HEXISTS', KEYS[1], field) == 1 then
    redis.call('ZADD', KEYS[3], now + ARGV[2], field)
    for i = 1, 3, 2 do
      if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
    end
    if fenced then return {2, token(false)} end
    return 2
  end
  if redis.call('HGET', KEYS[1], 'mode') ~= 'read' then return refuse(0) end
  local none, look = readers()
  if not none then return refuse(look) end
  redis.call('DEL', KEYS[1])
end

-- Readers that waited at the last write unlock enter before the next writer.
local last = redis.call('ZRANGE', KEYS[6], -1, -1, 'WITHSCORES')
if last[1] then
  if tonumber(last[2]) > now then return refuse(last[2] - now) end
  redis.call('DEL', KEYS[6])
end

local n
if fenced then n = token(true) end
redis.call('HSET', KEYS[1], 'mode', 'write', field, 1)
local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if type(set) == 'table' then
  -- refused (an ACL that forgot it): a lock without a lease must not stay
  redis.call('DEL', KEYS[1])
  return set
end
redis.call('DEL', KEYS[3])
redis.call('ZADD', KEYS[3], now + ARGV[2], field)
redis.call('PEXPIRE', KEYS[3], ARGV[2])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
if ARGV[5] ~= '' and ARGV[5] ~= '-' then
  redis.pcall('SET', KEYS[#KEYS], ARGV[1] .. ' ' .. ARGV[5], 'PX', ARGV[2])
end
if fenced then return {1, n} end
return 1
