-- release: give a plain lock back; or set the count of a hold of any kind.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_void:{lock}, if ARGV[5] is not '0'
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[6] is '1'
-- ARGV[1]  field of the acquisition (of a write hold with ':write')
-- ARGV[2]  the absolute count to reach; '0' = not held any more
-- ARGV[3]  unlock channel; '' = tell nobody
-- ARGV[4]  PUBLISH or SPUBLISH
-- ARGV[5]  '0', or how long (ms) a late command of this acquisition must be refused
-- ARGV[6]  '1' = the acquisition left its trace beside the lock
--
-- With a count the rest does not matter, and the lease stays as it is. As a rule the
-- lock is the only key, so that a release works while a cluster moves the slot
-- (several keys, of which some do not exist, get TRYAGAIN then).
--
-- RETURN   1           done, and nobody listened
--          {1, n}      done; n subscribers have got the message
--          0           not held by this acquisition
--          {2, error}  done, but the server refused the message
--
-- Twice: the second run finds the field gone, or the count reached; it can't
-- touch another acquisition, not even one of the same owner. Works when the server
-- is out of memory: the first write takes none.
local gone
if ARGV[2] == '0' then gone = redis.pcall('HDEL', KEYS[1], ARGV[1]) end
if gone ~= 1 or ARGV[5] ~= '0' or ARGV[6] ~= '0' then
  -- parts stand here
  if not gone then return shrink(KEYS[1], ARGV[1], ARGV[2]) end
  if type(gone) == 'table' and not replaced(gone) then return gone end
  void(KEYS[2], ARGV[1], ARGV[5])
  untrace(KEYS[#KEYS], ARGV[1], ARGV[6])
  if gone ~= 1 then return 0 end
end
if ARGV[3] == '' then return 1 end
local sent = redis.pcall(ARGV[4], ARGV[3], '0')
if type(sent) == 'table' then return {2, sent.err} end
return sent > 0 and {1, sent} or 1
