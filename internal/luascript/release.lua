-- release: give a plain lock back; or set the count of a hold of any kind.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_void:{lock}, if ARGV[6] is not '0'
-- KEYS[next]  redlatch_trace:{lock}, if ARGV[7] is '1'
-- KEYS[last]  redlatch_wait:{lock}, if ARGV[5] is there
-- ARGV[1]  field of the acquisition (of a write hold with ':write')
-- ARGV[2]  the absolute count to reach; '0' = not held any more
-- ARGV[3]  unlock channel
-- ARGV[4]  PUBLISH or SPUBLISH; absent = tell nobody
-- ARGV[5]  '1' = others of this client wait: it goes on the list, behind the others, if one is called,
--          and off it if none is; '0' = it goes off it; '' = neither; absent = call nobody
-- ARGV[6]  '0' or absent, or how long (ms) a late command of this acquisition must be refused
-- ARGV[7]  '1' = the acquisition left its trace beside the lock
-- ARGV[8]  '0' = the receivers of a message can't be counted
--
-- With a count the rest does not matter, and the lease stays as it is.
--
-- RETURN   1           done, nobody listened and nobody was called
--          {1, c, n}   done; n subscribers have got the message. c: 1 the first client on the list was
--                      called, 2 one that had lost once, and nobody else listened; 0 nobody; -1 64 of
--                      them were dead. An n of 0 is left out
--          0           not held by this acquisition; if the lock is free the first client was called
--          {2, error}  done, but the server refused the message
--
-- Twice: the second run finds the field gone, or the count reached; it can't
-- touch another acquisition, not even one of the same owner. Works when the server
-- is out of memory: the first write takes none.
local list, gone = ARGV[5] and KEYS[#KEYS], nil
if ARGV[2] == '0' then gone = redis.pcall('HDEL', KEYS[1], ARGV[1]) end
if gone ~= 1 or ARGV[6] then
  -- parts stand here
  if not gone then return shrink(KEYS[1], ARGV[1], ARGV[2]) end
  if type(gone) == 'table' and not replaced(gone) then return gone end
  void(KEYS[2], ARGV[1], ARGV[6] or '0')
  untrace(KEYS[#KEYS - (list and 1 or 0)], ARGV[1], ARGV[7])
  if gone ~= 1 and (not list or call('EXISTS', KEYS[1]) == 1) then return 0 end
end
local sent, called = 0, 0
if gone == 1 and ARGV[4] then sent = redis.pcall(ARGV[4], ARGV[3], '0') end
if list and redis.pcall('EXISTS', list) ~= 0 then
  if ARGV[5] ~= '' then redis.pcall('ZREM', list, string.sub(ARGV[1], 1, 36)) end
  -- wake stands here
  called = wake(list, redis.pcall('ZPOPMIN', list), calls_of(list), ARGV[4], ARGV[8], 64)
  if ARGV[5] == '1' and (called == 1 or called == 2) then
    -- enlist stands here
    enlist(list, ARGV[1], '0')
  end
end
if gone ~= 1 then return 0 end
if type(sent) == 'table' then return {2, sent.err} end
if type(called) == 'table' then return {2, called.err} end
if called == 0 and sent == 0 then return 1 end
if sent == 0 then return {1, called} end
return {1, called == 2 and 1 or called, sent}
