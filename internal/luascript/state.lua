-- state: look at a plain lock.
--
-- KEYS[1]  the lock
-- KEYS[2]  the fencing counter, if ARGV[1] is '1'
-- ARGV[1]  '1' = also read the fencing counter
--
-- RETURN   {0, 0, token}                            free
--          {1, pttl, token, field, count}           held; pttl in ms, -1 = no TTL
--          {-1}                                     the key is no lock
--
-- Twice: it reads only.
local token = 0
if ARGV[1] == '1' then
  local last = call('GET', KEYS[2]) or '0'
  token = #last < 32 and tonumber(last) or 0
end
if call('EXISTS', KEYS[1]) == 0 then return {0, 0, token} end
local field, count = only_hold(KEYS[1])
if not field then return {-1} end
return {1, call('PTTL', KEYS[1]), token, field, count}
