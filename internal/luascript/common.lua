-- common: what nearly every script needs; it is put in front of them.
--
-- KEYS     none of its own
local call, pcall, protected = redis.call, redis.pcall, pcall

-- An error says that another type stands at the key: somebody replaced the lock.
local function replaced(answer)
  return type(answer) == 'table' and answer.err and string.find(answer.err, 'WRONGTYPE', 1, true)
end
