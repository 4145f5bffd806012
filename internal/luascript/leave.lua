-- leave: what the scripts that release do besides; it is put in front of them.
--
-- KEYS     none of its own

-- Late commands of the acquisition are refused for so many ms, '0' = not at all.
local function void(key, field, ms)
  if ms == '0' then return end
  pcall('SADD', key, field)
  pcall('PEXPIRE', key, ms)
end

-- Takes the acquisition's own trace away, if it left one (mark '1').
local function untrace(key, field, mark)
  if mark ~= '1' then return end
  local left = pcall('GET', key)
  if type(left) == 'string' and string.sub(left, 1, #field + 1) == field .. ' ' then pcall('DEL', key) end
end

-- Sets the count of a hold and nothing else: what the lease was raised to stays.
-- Returns 1, 0 when it is gone, or an error.
local function shrink(lock, field, count)
  local first = pcall('HDEL', lock, '') -- as in first: no answer without a write
  if type(first) == 'table' then return replaced(first) and 0 or first end
  local held = pcall('HGET', lock, field)
  if type(held) ~= 'string' then return held or 0 end
  if tonumber(held) > tonumber(count) then
    local set = pcall('HSET', lock, field, count)
    if type(set) == 'table' then return set end
  end
  return 1
end
