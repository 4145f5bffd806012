-- any_lock: what the scripts have in common that find out by themselves which kind
-- of lock they stand before; it is put in front of them, behind fair_keys, hold,
-- foreign and alone.
--
-- KEYS[1..7]  as in fair_keys
-- KEYS[8]   redlatch_rw_leases:{lock}
-- KEYS[9]   redlatch_rw_writers:{lock}
-- KEYS[10]  redlatch_rw_marks:{lock}
-- KEYS[11]  redlatch_rw_readers:{lock}
-- KEYS[12]  redlatch_rw_turn:{lock}
-- ARGV[1..3]  as in fair_keys
-- ARGV[4]   unlock channel of plain locks
-- ARGV[5]   channel of read-write locks
-- ARGV[6]   what the names of all timeout keys begin with: {lock}, or the lock's name with a tag
--
-- Beside KEYS they read <ARGV[6]>:<field>:rwlock_timeout:<i> of readers that are
-- not redlatch's.
--
-- RETURN   nothing by itself
--
-- Twice: see each script.
local NONE, PLAIN, FAIR, RW, OTHER = 0, 1, 2, 3, -1
local LEASES, WRITERS, MARKS, READERS, TURN = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]

-- The kind of what stands at the lock's key, at a cost that does not grow with
-- what an application may have put there, and the mode of a read-write lock. A fair
-- lock that nobody waits for looks like a plain one.
local function kind_of()
  local what = call('TYPE', LOCK).ok
  if what == 'none' then
    if call('LLEN', QUEUE) > 0 then return FAIR end
    if call('EXISTS', WRITERS, READERS, TURN) > 0 then return RW, '' end
    return NONE
  end
  if what ~= 'hash' then return OTHER end
  local mode = call('HGET', LOCK, 'mode')
  if not mode then
    if not only_hold(LOCK) then return OTHER end
    return call('LLEN', QUEUE) > 0 and FAIR or PLAIN
  end
  if mode ~= 'read' and mode ~= 'write' then return OTHER end
  if not rw_holder(LOCK) then return OTHER end
  return RW, mode
end
