-- wait_leave: a client waits for a plain lock no more: it leaves the list, and what it may have
-- been called for goes to the next.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_wait:{lock}
-- ARGV[1]  the client
-- ARGV[2]  what the names of the channels begin with on which clients are called
-- ARGV[3]  PUBLISH or SPUBLISH
-- ARGV[4]  '1' = the receivers of a message can be counted
--
-- RETURN   0  nobody was called: the lock is held by a client of ours, whose release calls, or nobody
--             waits; 1, 2 the first was; -1 512 of the list were dead
--
-- The next is also called while another library holds the lock: somebody must listen for its release.
--
-- Twice: one more client asks, in vain at worst.
redis.pcall('ZREM', KEYS[2], ARGV[1])
local fields = redis.pcall('HLEN', KEYS[1])
if fields == 1 then
  local holder = redis.call('HGETALL', KEYS[1])[1]
  if holder and string.sub(holder, 37, 38) == ':g' then return 0 end
elseif fields ~= 0 then
  return 0
end
local called = wake(KEYS[2], redis.pcall('ZPOPMIN', KEYS[2]), ARGV[2], ARGV[3], ARGV[4], 512)
return type(called) == 'table' and 0 or called
