-- fair_force: take a fair lock away from whoever holds it and give it to the
-- first in the queue.
--
-- KEYS, ARGV[1..3]  as in fair_queue
--
-- RETURN   1  it was held; it is free now, or the next one's
--          0  it was free
--         -1  the key is no lock and was not touched
--
-- Twice: the second run finds the lock free, or takes it from its next holder: an
-- operator's command, and it says so.
local kind = call('TYPE', LOCK).ok
if kind == 'none' then return 0 end
if kind ~= 'hash' or call('HLEN', LOCK) ~= 1 then return -1 end
local entry = call('HGETALL', LOCK)
if not string.match(entry[1], '^%x+%-%x+%-%x+%-%x+%-%x+:[^ ]+$')
   or not string.match(entry[2], '^%d+$') then return -1 end
call('DEL', LOCK)
pcall('DEL', KEYS[6])
hand_over()
return 1
