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
--         -1  the server refused this one; try again
--
-- Twice: a lease is only ever raised to a value. One bad key does not stop the
-- others. Only the hold's own lease is touched, never another reader's.
local function renew(lock, leases, own, field, ms)
  if field == '' then
    if call('PTTL', lock) < ms then pcall('PEXPIRE', lock, ms) end
    return 1
  end
  local held = pcall('HEXISTS', lock, field)
  if type(held) == 'table' then return replaced(held) and 0 or -1 end
  if held == 0 then
    if own ~= lock then pcall('DEL', own) end
    return 0
  end
  local ends = pcall('ZSCORE', leases, field)
  if type(ends) == 'table' then return -1 end
  local to = now + lasts(math.max(tonumber(ends or now + call('PTTL', own)) - now, ms))
  if ends and tonumber(ends) <= now or not ends and call('PTTL', own) <= 0 then return 0 end
  if not ends or to > tonumber(ends) then
    if type(pcall('ZADD', leases, to, field)) == 'table' then return -1 end
  end
  for _, key in ipairs({lock, leases, own}) do
    if call('PTTL', key) < to - now then
      local set = pcall('PEXPIRE', key, to - now)
      if set == 0 and key == own then set = pcall('SET', own, '1', 'PX', to - now) end
      if type(set) == 'table' and set.err then return -1 end
    end
  end
  return 1
end

local out = {}
for i = 1, #KEYS / 3 do
  out[i] = renew(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return out
