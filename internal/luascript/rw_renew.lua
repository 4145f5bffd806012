-- rw_renew: keep or check any number of read and write holds of one slot.
--
-- KEYS[3i-2]  a lock
-- KEYS[3i-1]  its redlatch_rw_leases:{lock}
-- KEYS[3i]    {lock}:<field>:rwlock_timeout:1; for a write hold KEYS[3i-2] again
--             (or all three are one key that lives as long as a hold: its trace)
-- ARGV[2i-1]  the hold's field in the hash (a writer's with ':write'); '' = only set the TTL
-- ARGV[2i]    lease, ms: the hold's remaining lease becomes at least this; 0 = check only
--
-- RETURN   one integer per hold:
--          1  held; its keys last as long as its lease again, whoever lowered them
--          0  not held by this acquisition, or its lease has ended; nothing was created
--         -1  the server refused; try again
--
-- Twice: a lease is only ever raised to a value. One bad key does not stop the
-- others. Only the hold's own lease is touched, never another reader's.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function refused(r) return type(r) == 'table' and r.err end

local function renew(lock, leases, own, field, ms)
  if field == '' then
    if redis.call('PTTL', lock) < ms then redis.pcall('PEXPIRE', lock, ms) end
    return 1
  end
  local held = redis.pcall('HEXISTS', lock, field)
  if refused(held) then
    -- another type at this key: somebody replaced the lock
    return string.find(held.err, 'WRONGTYPE', 1, true) and 0 or -1
  end
  if held == 0 then
    -- a write, though it changes nothing: a demoted master must not say "gone"
    if refused(redis.pcall('HDEL', lock, field)) then return -1 end
    if own ~= lock then redis.pcall('DEL', own) end
    return 0
  end
  local ends = tonumber(redis.call('ZSCORE', leases, field) or now + redis.call('PTTL', own))
  if ends <= now then
    -- so may a master say that was demoted before it heard of the last renewal
    return refused(redis.pcall('HDEL', lock, '')) and -1 or 0
  end
  local to = math.max(ends, now + ms)
  if to > ends or redis.call('ZSCORE', leases, field) == false then
    if refused(redis.pcall('ZADD', leases, to, field)) then return -1 end
  end
  for _, key in ipairs({lock, leases, own}) do
    if redis.call('PTTL', key) < to - now then
      local set = redis.pcall('PEXPIRE', key, to - now)
      if refused(set) then return -1 end
      if set == 0 and key == own then
        set = redis.pcall('SET', own, '1', 'PX', to - now)
        if refused(set) then return -1 end
      end
    end
  end
  return 1
end

local out = {}
for i = 1, #KEYS / 3 do
  out[i] = renew(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return out
