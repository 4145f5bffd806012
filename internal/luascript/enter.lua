-- enter: what the scripts that acquire do besides; it is put in front of them.
--
-- KEYS     none of its own

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

-- Readers leave theirs side by side: one a line, the newest first, four at most.
local function share_trace(lock, key, field, trace, ms)
  if trace == '' or trace == '-' then return end
  local lines, n, left = field .. ' ' .. trace, 1, pcall('GET', key)
  for line in string.gmatch(type(left) == 'string' and left or '', '[^\n]+') do
    local who = string.match(line, '^%S+')
    if n < 4 and who ~= field and call('HEXISTS', lock, who) == 1 then
      lines, n = lines .. '\n' .. line, n + 1
    end
  end
  pcall('SET', key, lines, 'PX', math.max(tonumber(ms), call('PTTL', key)))
end

-- The holder to name and the trace that it left. Of several readers that is the
-- given one if it left a trace, else the newest that did.
local function traced(lock, key, trace, holder, several)
  local some
  for line in string.gmatch(read_trace(key, trace), '[^\n]+') do
    local who = string.match(line, '^%S+')
    if who == holder then return holder, line end
    if several and not some and call('HEXISTS', lock, who) == 1 then some = line end
  end
  if some then return string.match(some, '^%S+'), some end
  return holder, ''
end
