-- state: look at a plain lock.
--
-- KEYS[1]  the lock
-- KEYS[2]  the fencing counter, if ARGV[1] is '1'
-- ARGV[1]  '1' = also read the fencing counter
--
-- RETURN   {0, 0, token}                            free
--          {1, pttl, token, field, count, ...}      held; pttl in ms, -1 = no TTL
--          {-1}                                     the key is no lock
--
-- Twice: it reads only.
local token = 0
if ARGV[1] == '1' then token = tonumber(redis.call('GET', KEYS[2]) or '0') end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return {0, 0, token} end
if kind ~= 'hash' or redis.call('HLEN', KEYS[1]) > 64 then return {-1} end
local out = {1, redis.call('PTTL', KEYS[1]), token}
for _, v in ipairs(redis.call('HGETALL', KEYS[1])) do out[#out + 1] = v end
return out
