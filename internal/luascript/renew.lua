-- renew: keep or check any number of held locks of one slot.
--
-- KEYS[i]      a lock, or a key that lives as long as one (its trace)
-- ARGV[2i-1]   field of the acquisition; '' = KEYS[i] is no lock, only raise its TTL
-- ARGV[2i]     lease, ms: the remaining lease becomes at least this; 0 = check only
--
-- RETURN   one integer per key:
--          1  held
--          0  not held by this acquisition; nothing was changed, nothing created
--         -1  the server refused this one; try again
--
-- Twice: a lease is only ever raised to a value. One bad key does not stop the
-- others.
local out = {}
for i = 1, #KEYS do
  local field, ms = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local held = 1
  if field ~= '' then held = pcall('HEXISTS', KEYS[i], field) end
  if type(held) == 'table' then
    held = replaced(held) and 0 or -1
  elseif held == 1 and ms > 0 and call('PTTL', KEYS[i]) < ms then
    if type(pcall('PEXPIRE', KEYS[i], ms)) == 'table' then held = -1 end
  end
  out[i] = held
end
return out
