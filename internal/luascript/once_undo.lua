-- once_undo: give a claimed period back.
--
-- KEYS[1]  redlatch_once:{lock}, see once
-- KEYS[2]  redlatch_void:{lock}, if ARGV[3] is not '0'
-- ARGV[1]  id of the claim
-- ARGV[2]  period, ms
-- ARGV[3]  '0', or how long (ms) a late command of this claim must be refused
--
-- RETURN   1  given back
--          0  there is no such claim
--
-- Twice: the second run finds the claim gone. It can't touch another one's claim. Works when the
-- server is out of memory: the first write takes none.
if ARGV[3] ~= '0' then
  redis.call('SADD', KEYS[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
local last = redis.call('GET', KEYS[1])
if not last then return 0 end
if #last > 1024 then return 0 end
local id, before = string.match(last, '^%d+ (%S*) (%d+)$')
if id ~= ARGV[1] then return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local left = math.min(before + ARGV[2] - now, tonumber(ARGV[2]))
if left > 0 then
  redis.call('SET', KEYS[1], before .. ' - 0', 'PX', string.format('%.0f', left))
else
  redis.call('DEL', KEYS[1])
end
return 1
