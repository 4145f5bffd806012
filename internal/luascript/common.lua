-- common: what nearly every script needs; it is put in front of them.
--
-- KEYS     none of its own
local call, pcall, protected = redis.call, redis.pcall, pcall

-- The bounds of a run, whatever a neighbour has put at its keys. At most MOST entries of a key are
-- touched: the rest is left to the next run, or taken for what is safe. (DEL alone costs what
-- somebody has written, once.) What is longer than LONG is no hold and no record, and a list of
-- several of them no longer than SHOWN. No time is farther away than a CENTURY, in ms.
local MOST, LONG, SHOWN, CENTURY = 1000, 1024, 8192, 3155760000000
local function lasts(ms) return math.min(ms, CENTURY) end

-- An error says that another type stands at the key: somebody replaced the lock.
local function replaced(answer)
  return type(answer) == 'table' and answer.err and string.find(answer.err, 'WRONGTYPE', 1, true)
end
