-- whose: who holds the lock at a key; it is put in front of the scripts that
-- acquire, behind hold.
--
-- KEYS     none of its own
--
-- The look costs the same however many fields stand at the key; it copies what a few of them hold.

-- Returns the holder (of a read-write lock one of them, '' = none was seen), nothing when
-- there is none, or nil and the reply for who wanted it: {-3}, the key is no lock, or an error.
local function whose(lock, field)
  local fields = pcall('HLEN', lock)
  if type(fields) == 'table' then return nil, replaced(fields) and {-3} or fields end
  if fields == 0 then return end
  if fields == 1 then
    local one = call('HGETALL', lock)
    if one[1] == field then return field end
    -- <uuid>:<owner> and a count; nothing if the one field has a TTL of its own that is over
    if #one == 2 and #one[1] <= LONG and #one[2] < 16 and
       string.byte(one[1], 37) == 58 and string.byte(one[1], 9) == 45 and tonumber(one[2]) then return one[1] end
  else
    local mode = call('HGET', lock, 'mode')
    local holder = (mode == 'read' or mode == 'write') and rw_holder(lock)
    if holder then return holder end
  end
  return nil, {-3}
end

-- The same for who wants to take it and has seen that the lock or the void set
-- exists: also {-1}, the field was given up.
local function look(lock, void, field)
  local holder, no = whose(lock, field)
  if not holder and not no and call('SISMEMBER', void, field) == 1 then no = {-1} end
  return holder, no
end
