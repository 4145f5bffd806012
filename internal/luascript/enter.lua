-- enter: what the scripts that acquire do besides; it is put in front of them.
--
-- KEYS     none of its own

-- Writes a hold. An error is returned when the server refuses it, or the lease (an
-- ACL that forgot it): a lock without one must not stay.
local function take(lock, field, ms)
  local set = pcall('HSET', lock, field, '1')
  if type(set) ~= 'table' then set = pcall('PEXPIRE', lock, ms) end
  if type(set) == 'table' then
    pcall('DEL', lock)
    return set
  end
end

-- Leaves the trace context beside a lock: '' = none, '-' = the holder's is read only.
local function leave_trace(key, field, trace, ms)
  if trace ~= '' and trace ~= '-' then pcall('SET', key, field .. ' ' .. trace, 'PX', ms) end
end
