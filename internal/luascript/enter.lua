-- enter: what the scripts that acquire do besides; it is put in front of them.
--
-- KEYS     none of its own

-- The token of an acquisition: the next one, or for a retry the one that it got. ttl
-- is the counter's in ms, '-1' = none, '' = not fenced: 0 then. t is the server's
-- time, if it is known. Or an error.
local function token(key, ttl, again, t)
  if ttl == '' then return 0 end
  local n = pcall('GET', key)
  if type(n) == 'table' then return n end
  n = tonumber(n or '0')
  if not n then return redis.error_reply('ERR the fencing counter holds no number') end
  if again and n > 0 then return n end
  t = t or call('TIME')
  n = math.max(n + 1, t[1] * 1000000 + t[2])
  local set
  if ttl == '-1' then
    set = pcall('SET', key, string.format('%.0f', n))
  else
    set = pcall('SET', key, string.format('%.0f', n), 'PX', ttl)
  end
  return set.err and set or n
end

-- Writes a hold. An error is returned when the server refuses it, or the lease (an
-- ACL that forgot it): a lock without one must not stay.
local function take(lock, field, ms)
  local set = pcall('HSET', lock, field, 1)
  if type(set) ~= 'table' then set = pcall('PEXPIRE', lock, ms) end
  if type(set) == 'table' then
    pcall('DEL', lock)
    return set
  end
end

-- The trace context beside a lock: '' = none, '-' = the holder's is read only.
local function leave_trace(key, field, trace, ms)
  if trace ~= '' and trace ~= '-' then pcall('SET', key, field .. ' ' .. trace, 'PX', ms) end
end
local function read_trace(key, trace)
  if trace == '' then return '' end
  local left = pcall('GET', key)
  return type(left) == 'string' and left or ''
end
