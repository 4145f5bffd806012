-- shrink: a release that leaves a hold with a lower count; it is put in front of the scripts
-- that do so for locks with one holder.
--
-- KEYS     none of its own

-- Sets the count of a hold and nothing else: what the lease was raised to stays.
-- Returns 1, 0 when it is gone, or an error.
local function shrink(lock, field, count)
  local first = pcall('HDEL', lock, '') -- as in first: no answer without a write
  if type(first) == 'table' then return replaced(first) and 0 or first end
  local held = pcall('HGET', lock, field)
  if type(held) ~= 'string' then return held or 0 end
  local n = #held < 16 and tonumber(held)
  if not n or n > tonumber(count) then
    local set = pcall('HSET', lock, field, count)
    if type(set) == 'table' then return set end
  end
  return 1
end
