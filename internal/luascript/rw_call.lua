-- rw_call: a read-write lock calls the first of the writers that wait; it is put where that is so.
--
-- KEYS     none of its own

-- For how long (ms) the mark of a writer that was called counts yet at a free lock: if it does not come, it
-- stands still, or it needs more than this lock.
local COMES = 250

-- Calls the first writer whose mark lives, on its client's channel. Marks that have ended, and those of clients
-- that nobody hears, are taken away: at most 64. Readers who stood back for these alone are told by who leaves the lock
-- free; else a refresh tells them, within a second.
-- own: the field of who asks, which calls one only if that was not done by now; or a client's id with its ':', for
-- which those of its writers are as good; '' = who leaves. held: the lock is not free; the first shall look, and its mark stays as it is.
-- heeds '0': receivers can't be counted, each client is taken for one that hears. first: what ZRANGE has answered, if
-- that is known.
-- Returns for how many ms that writer has its turn, or nothing if there is none before own, false if there is none at
-- all; and the error of a message that was refused.
local function call_writer(writers, marks, own, held, publish, heeds, first)
  for _ = 1, 64 do
    first = first or pcall('ZRANGE', writers, 0, 0)
    if first.err then
      pcall('DEL', writers) -- not ours, whatever it is
      return
    end
    local field = first[1]
    if not field then return false end
    if own ~= '' and (field == own or string.sub(field, 1, 37) == own) then return end
    local lives, dead = pcall('ZSCORE', marks, field), false
    if type(lives) == 'table' then pcall('DEL', marks) end
    local left = (tonumber(lives) or 0) - now
    if left > COMES or left > 0 and own == '' then
      if not held then
        left = math.min(left, COMES)
        pcall('ZADD', marks, now + left, field)
      end
      -- what stands behind redlatch_rw_writers, and the client's id: the first 36 characters of its fields
      local heard = pcall(publish, 'redlatch_wake' .. string.sub(writers, 20) .. ':' .. string.sub(field, 1, 36) .. ':write', lives)
      if type(heard) == 'table' then return left, heard end
      dead = heard == 0 and heeds ~= '0'
    end
    if left > 0 and not dead then return left end
    pcall('ZREM', writers, field)
    pcall('ZREM', marks, field)
    first = nil
  end
end

-- For how long (ms) readers have their turn at a free lock, those that waited at the last write unlock; nothing if none
-- does. From then on it counts for no more than a second: of those who have not come by then the processes stand still.
-- Who enters, or is refreshed, gives the others as long as before.
local function readers_turn(turn)
  local last = pcall('ZRANGE', turn, -1, -1, 'WITHSCORES')
  local left = last[1] and last[2] - now
  if not left then return end
  if left <= 0 then
    pcall('DEL', turn) -- all have gone or died
    return
  end
  local ends = call('PTTL', turn)
  if ends < 0 or ends > 1000 then
    pcall('PEXPIRE', turn, '1000')
    ends = 1000
  end
  return math.max(1, math.min(left, ends))
end
