-- acquire: take a plain lock for a new owner (0 -> 1).
--
-- KEYS[1]  the lock, a hash: <client>:<owner> -> count
-- KEYS[2]  redlatch_void:{lock}, a set of fields given up
-- KEYS[3]  the fencing counter, if ARGV[3] is not ''
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[4] is not ''
-- ARGV[1]  field of this acquisition
-- ARGV[2]  lease, ms
-- ARGV[3]  '' = not fenced; else the counter's TTL in ms, '-1' = no TTL
-- ARGV[4]  '' = no trace; '-' = read the holder's only; else the traceparent to leave
--
-- RETURN   {1, token}            acquired
--          {2, token}            held by this very acquisition: a retry; the lease was set again
--          {0, pttl, holder, trace}  busy; pttl in ms, -1 = the key has no TTL
--          {-1}                  this acquisition was given up before
--          1 and 2 come as a bare integer when there is no token
--
-- Twice: the field names the acquisition, so a second run finds its own field
-- and changes nothing but the lease. A run that comes after the acquisition was
-- given up finds its field in the void set.
local fenced = ARGV[3] ~= ''
local function token(fresh)
  local key = KEYS[3]
  local now = redis.call('TIME')
  local n = tonumber(redis.call('GET', key) or '0')
  if fresh or n == 0 then
    local us = now[1] * 1000000 + now[2]
    n = n + 1
    if us > n then n = us end
    if ARGV[3] == '-1' then
      redis.call('SET', key, string.format('%.0f', n))
    else
      redis.call('SET', key, string.format('%.0f', n), 'PX', ARGV[3])
    end
  end
  return n
end

if redis.call('EXISTS', KEYS[1]) == 0 then
  if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return {-1} end
  local n
  if fenced then n = token(true) end
  redis.call('HSET', KEYS[1], ARGV[1], 1)
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if type(set) == 'table' then
    -- refused (an ACL that forgot it): a lock without a lease must not stay
    redis.call('HDEL', KEYS[1], ARGV[1])
    return set
  end
  if ARGV[4] ~= '' and ARGV[4] ~= '-' then
    redis.pcall('SET', KEYS[#KEYS], ARGV[1] .. ' ' .. ARGV[4], 'PX', ARGV[2])
  end
  if fenced then return {1, n} end
  return 1
end

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  -- Written in any case: a WAIT behind it counts the writes of its own connection.
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
  if fenced then return {2, token(false)} end
  return 2
end

local holder = redis.call('HKEYS', KEYS[1])[1]
local trace = ''
if ARGV[4] ~= '' then trace = redis.pcall('GET', KEYS[#KEYS]) end
if type(trace) ~= 'string' then trace = '' end
return {0, redis.call('PTTL', KEYS[1]), holder, trace}
