-- rw_read: take the read lock for a new hold of an owner (0 -> 1).
--
-- KEYS[1]  the lock, a hash: mode, <client>:<owner> -> reads, <client>:<owner>:write -> writes
-- KEYS[2]  redlatch_void:{lock}
-- KEYS[3]  redlatch_rw_leases:{lock}
-- KEYS[4]  {lock}:<field>:rwlock_timeout:1
-- KEYS[5]  redlatch_rw_writers:{lock}
-- KEYS[6]  redlatch_rw_marks:{lock}
-- KEYS[7]  redlatch_rw_readers:{lock}
-- KEYS[8]  redlatch_rw_turn:{lock}
-- KEYS[9]  the fencing counter, if ARGV[7] is not ''
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[8] is not ''
-- ARGV[1]  field of this acquisition
-- ARGV[2]  lease, ms
-- ARGV[3]  when this acquisition was refused first, µs of the server; '' = never
-- ARGV[4]  field of the owner's write hold, with ':write'; '' = none
-- ARGV[5]  '1' = enter although writers wait
-- ARGV[6]  how long a place among the waiting readers lives, ms; '0' = leave none
-- ARGV[7]  '' = not fenced; else the counter's TTL in ms, '-1' = no TTL
-- ARGV[8]  '' = no trace; '-' = read the holder's only; else the traceparent to leave
--
-- RETURN   {1, token}  acquired; token is the last writer's, 0 = there was none
--          {2, token}  held by this very acquisition: a retry; the lease was set again
--          {0, pttl, holder, trace, look, now}  not now; pttl in ms, -1 = no TTL, -2 = nobody
--                      holds it; look: for how many ms it can't be admitted at least without a
--                      message, 0 = as pttl says; now in µs, for ARGV[3]
--          {-1}        this acquisition was given up before
--          1 and 2 come as a bare integer when it is not fenced
--
-- Twice: the field names the acquisition, so a second run finds its own field
-- and sets nothing but the lease. A run that comes after the acquisition was
-- given up finds its field in the void set. A place is a member of a set.
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return {-1} end
local t = redis.call('TIME')
local us = t[1] * 1000000 + t[2]
local now = math.floor(us / 1000)
local lease = tonumber(ARGV[2])
local head = redis.call('HMGET', KEYS[1], 'mode', ARGV[1])
local mode, mine = head[1], head[2]

local function raise(key, ms)
  if redis.call('PTTL', key) < ms then return redis.pcall('PEXPIRE', key, ms) end
end

local function enter(code)
  if mine then
    redis.call('SET', KEYS[4], '1', 'PX', ARGV[2])
    raise(KEYS[1], lease)
  elseif mode then
    -- The set of leases belongs to this life of the hash only if any one of its
    -- members is in it: they were all added during one life (see rwlock/doc.go).
    local one = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if one and redis.call('HEXISTS', KEYS[1], one) == 0 then redis.call('DEL', KEYS[3]) end
    redis.call('SET', KEYS[4], '1', 'PX', ARGV[2])
    redis.call('HSET', KEYS[1], ARGV[1], 1)
    raise(KEYS[1], lease)
  else
    redis.call('SET', KEYS[4], '1', 'PX', ARGV[2])
    redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], 1)
    local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
    if type(set) == 'table' then
      -- refused (an ACL that forgot it): a lock without a lease must not stay
      redis.call('DEL', KEYS[1], KEYS[4])
      return set
    end
    redis.call('DEL', KEYS[3])
  end
  redis.call('ZADD', KEYS[3], now + lease, ARGV[1])
  raise(KEYS[3], lease)
  -- also without ARGV[3]: the answer that refused it may have been lost
  if redis.call('EXISTS', KEYS[7], KEYS[8]) > 0 then
    redis.call('ZREM', KEYS[7], ARGV[1])
    redis.call('ZREM', KEYS[8], ARGV[1])
  end
  if ARGV[8] ~= '' and ARGV[8] ~= '-' then
    redis.pcall('SET', KEYS[#KEYS], ARGV[1] .. ' ' .. ARGV[8], 'PX', ARGV[2])
  end
  if ARGV[7] == '' then return code end
  local n = tonumber(redis.call('GET', KEYS[9]) or '0')
  if n > 0 and ARGV[7] ~= '-1' then redis.call('PEXPIRE', KEYS[9], ARGV[7]) end
  return {code, n}
end

local function refuse(look, holder)
  if ARGV[6] ~= '0' then
    local at = KEYS[7]
    if redis.call('ZSCORE', KEYS[8], ARGV[1]) then at = KEYS[8] end
    redis.call('ZREMRANGEBYSCORE', at, '-inf', now)
    local set = redis.pcall('ZADD', at, now + ARGV[6], ARGV[1])
    if type(set) ~= 'table' then raise(at, tonumber(ARGV[6])) end
  end
  if not holder then holder = redis.call('ZRANGE', KEYS[3], -1, -1)[1] end
  local trace = ''
  if ARGV[8] ~= '' then trace = redis.pcall('GET', KEYS[#KEYS]) end
  if type(trace) ~= 'string' then trace = '' end
  return {0, redis.call('PTTL', KEYS[1]), holder or '', trace, look, us}
end

if mine then return enter(2) end
if mode == 'write' then
  if ARGV[4] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[4]) == 1 then return enter(1) end
  local writer
  for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do -- one owner's: three at most
    if string.sub(f, -6) == ':write' then writer = f end
  end
  local ends = writer and redis.call('ZSCORE', KEYS[3], writer)
  if not ends then return refuse(0, writer and string.sub(writer, 1, -7)) end
  if tonumber(ends) > now then return refuse(ends - now, string.sub(writer, 1, -7)) end
  -- its lease has ended, and only a read hold of its owner keeps the hash
  redis.call('HDEL', KEYS[1], writer)
  redis.call('ZREM', KEYS[3], writer)
  redis.call('HSET', KEYS[1], 'mode', 'read')
  mode = 'read'
end
-- a hash without a mode is a lock of another kind
if not mode and redis.call('EXISTS', KEYS[1]) == 1 then return refuse(0) end

if ARGV[5] ~= '1' and redis.call('EXISTS', KEYS[5]) == 1 and not redis.call('ZSCORE', KEYS[8], ARGV[1]) then
  local came = us
  if ARGV[3] ~= '' then came = tonumber(ARGV[3]) end
  while true do
    local first = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
    if not first[1] or tonumber(first[2]) >= came then break end
    local alive = tonumber(redis.call('ZSCORE', KEYS[6], first[1]) or '0')
    if alive > now then return refuse(alive - now) end
    redis.call('ZREM', KEYS[5], first[1])
    redis.call('ZREM', KEYS[6], first[1])
  end
end
return enter(1)
