-- renew: keep or check any number of held locks of one slot.
--
-- KEYS[i]      a lock, or a key that lives as long as one (its trace)
-- ARGV[2i-1]   field of the acquisition; '' = KEYS[i] is no lock, only set its TTL
-- ARGV[2i]     lease, ms: the remaining lease becomes at least this; 0 = check only
--
-- RETURN   one integer per key:
--          1  held
--          0  not held by this acquisition; nothing was changed, nothing created
--         -1  the server refused; try again
--
-- Twice: a lease is only ever raised to a value. One bad key does not stop the
-- others.
local out = {}
for i = 1, #KEYS do
  local field, ms = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local held = 1
  if field ~= '' then held = redis.pcall('HEXISTS', KEYS[i], field) end
  if type(held) == 'table' then
    -- another type at this key: somebody replaced the lock
    held = string.find(held.err, 'WRONGTYPE', 1, true) and 0 or -1
  elseif held == 0 then
    -- A demoted master that is being filled anew knows of no lock. A write, though
    -- it changes nothing, makes it say that it is none to ask.
    if type(redis.pcall('HDEL', KEYS[i], field)) == 'table' then held = -1 end
  elseif held == 1 and ms > 0 and redis.call('PTTL', KEYS[i]) < ms then
    local set = redis.pcall('PEXPIRE', KEYS[i], ms)
    if type(set) == 'table' then held = -1 end
  end
  out[i] = held
end
return out
