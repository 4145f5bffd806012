-- rw_free: free a read-write lock of its only hold by its key alone, while a cluster
-- moves the slot and takes no command of several keys; the release follows.
--
-- KEYS[1]  the lock
-- ARGV[1]  the hold's field in the hash (a writer's with ':write')
--
-- RETURN   1  free, or others hold it as well: then nothing was changed. The set of leases may
--             not lose touch with the fields; who would enter waits for the whole slot, too
--          0  not held by this acquisition
--
-- Twice: the second run finds the field gone.
if first ~= 0 or call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if call('HLEN', KEYS[1]) == 2 then call('DEL', KEYS[1]) end
return 1
