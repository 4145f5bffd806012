-- traces: the trace contexts that holders leave beside a lock; it is put in front of the
-- scripts that tell them to whoever finds the lock busy.
--
-- KEYS     none of its own

-- '' = none is wanted.
local function read_trace(key, trace)
  if trace == '' then return '' end
  local left = pcall('GET', key)
  return type(left) == 'string' and #left <= SHOWN and left or ''
end

-- Readers leave theirs side by side: one a line, the newest first, four at most.
local function share_trace(lock, key, field, trace, ms)
  if trace == '' or trace == '-' then return end
  local lines, n = field .. ' ' .. trace, 1
  for line in string.gmatch(read_trace(key, trace), '[^\n]+') do
    local who = string.match(line, '^%S+')
    if n < 4 and who and who ~= field and call('HEXISTS', lock, who) == 1 then
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
    if several and not some and who and call('HEXISTS', lock, who) == 1 then some = line end
  end
  if some then return string.match(some, '^%S+'), some end
  return holder, ''
end
