-- leave: what the scripts that release do besides; it is put in front of them.
--
-- KEYS     none of its own

-- Late commands of the acquisition are refused for so many ms, '0' = not at all.
local function void(key, field, ms)
  if ms == '0' then return end
  pcall('SADD', key, field)
  pcall('PEXPIRE', key, ms)
end

-- Takes the acquisition's own trace away, if it left one (mark '1'), and returns it;
-- those of other readers stay.
local function untrace(key, field, mark)
  if mark ~= '1' then return end
  local left = pcall('GET', key)
  if type(left) ~= 'string' then return end
  if #left > SHOWN then
    pcall('DEL', key) -- a neighbour's
    return
  end
  local mine, rest
  for line in string.gmatch(left, '[^\n]+') do
    if string.sub(line, 1, #field + 1) == field .. ' ' then
      mine = line
    else
      rest = rest and rest .. '\n' .. line or line
    end
  end
  if not mine then return end
  if rest then pcall('SET', key, rest, 'PX', math.max(1, call('PTTL', key))) else pcall('DEL', key) end
  return mine
end
