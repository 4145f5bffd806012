-- once_last: tell of the last run.
--
-- KEYS[1]  redlatch_once:{lock}, see once
--
-- RETURN   {1, tick, left, claim, now}  tick: when its period began, in epoch ms of the server; left: how many ms later
--                       than now the next run is due, -1 = the key has no TTL; claim: the id of its claim; now in epoch ms
--          {0}          no run is known, or what stands there is no record
--
-- Twice: it reads only.
local last = redis.call('GET', KEYS[1])
local tick, id
if last and #last <= 1024 then tick, id = string.match(last, '^(%d+) (%S*) ') end
if not tick then return {0} end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
return {1, tonumber(tick), redis.call('PTTL', KEYS[1]), id, now}
