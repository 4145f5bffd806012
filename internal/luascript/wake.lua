-- wake: a free lock calls the first client that waits for it; it is put where that is so.
--
-- KEYS     none of its own

-- What is taken off the places of those who have lost once: they stand in front, as they came.
local LOST = 4e15

-- What the names of the channels begin with on which the clients of a list are called.
local function calls_of(list) return 'redlatch_wake' .. string.sub(list, 14) .. ':' end

-- Takes clients off the list, first of all the one given ({client, place}, or nothing), until one
-- hears its call, the place that it had: at most so many. Where receivers can't be counted
-- (heeds '0') the first is taken for one that does.
-- Returns 0 nobody is called, 1 one is, 2 one that had lost; -1 so many were dead; or an error.
local function wake(list, first, channel, publish, heeds, most)
  for i = 1, most do
    local client, place = first[1], tonumber(first[2])
    if not client then return first.err and first or 0 end
    if #client <= 64 then
      -- a place as it stands: Redis formats each number anew
      local text = place > 1e15 and place < 1e16 and first[2] or string.format('%.0f', place < 0 and place + LOST or place)
      local n = redis.pcall(publish, channel .. client, text)
      if type(n) == 'table' then return n end
      if n > 0 or heeds == '0' then return place < 0 and 2 or 1 end
    end
    first = i < most and redis.pcall('ZPOPMIN', list) or {}
  end
  return -1
end
