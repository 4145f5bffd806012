-- first: how a script for a holder begins; it is put in front of them.
--
-- KEYS[1]  a lock
--
-- RETURN   an error of the server that refuses writes: it is a demoted master, it has too few
--          replicas, it can't save
--
-- A write that changes nothing and takes no memory, made in any case. A server that
-- refuses it says so, whatever it knows of the lock; and a script whose first write was
-- taken is not refused the rest, though the server be out of memory.
local first = pcall('HDEL', KEYS[1], '') -- 0; else an error: of another type
if type(first) == 'table' and not replaced(first) then return first end
