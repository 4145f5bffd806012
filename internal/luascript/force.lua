-- force: take a plain lock away from whoever holds it.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_trace:{lock}
-- ARGV[1]  unlock channel
-- ARGV[2]  PUBLISH or SPUBLISH
--
-- RETURN   1  it was held and is free now
--          0  it was free
--         -1  the key is no lock and was not touched
--
-- Twice: the second run finds the lock free, or frees its next holder: an
-- operator's command, and it says so.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return 0 end
if kind ~= 'hash' or redis.call('HLEN', KEYS[1]) ~= 1 then return -1 end
local entry = redis.call('HGETALL', KEYS[1])
if not string.match(entry[1], '^%x+%-%x+%-%x+%-%x+%-%x+:[^ ]+$')
   or not string.match(entry[2], '^%d+$') then return -1 end
redis.call('DEL', KEYS[1])
redis.pcall('DEL', KEYS[2])
redis.pcall(ARGV[2], ARGV[1], '0')
return 1
