-- inspect: look at a lock of whatever kind.
--
-- KEYS[1..12], ARGV[1..6]  as in any_lock
-- KEYS[13]  redlatch_wait:{lock}
-- ARGV[7]   how many holders to show at most
-- ARGV[8]   how many waiters to show at most
--
-- RETURN   {kind, now, pttl, token, mode, listeners, trace,
--           holders, shown, (field, count, remaining)...,
--           waiters, shown, (field, mode, since)...,
--           shown, (client, since)...}
--              kind 0 = nothing stands there, 1 = plain (or fair, and nobody waits), 2 = fair,
--              3 = read-write, -1 = the key is no lock; now in ms of the server's clock; pttl and remaining in
--              ms, -1 = no TTL; mode '' but for a held read-write lock; listeners: subscribers of
--              its channel on this server and clients on its list; of a read-write lock those subscribers, or the
--              clients that wait, if these are more; -1 = not known;
--              trace: <owner> <traceparent> or ''; since: when the waiter came, in us of the server's
--              clock, as text, '' = not known; client: one on the list of a plain lock, in its order
--          {-1}  the key is no lock
--
-- Bound: at most ARGV[7] holders, 1,000 timeout keys of foreign readers, and ARGV[8] waiters and clients are
-- looked at; to count the clients of a read-write lock, 1,000 waiters of each sort.
--
-- Twice: it reads only.
local kind, mode = kind_of()
if kind == OTHER then return {-1} end

local function read(command, ...)
  local answer = pcall(command, ...)
  if type(answer) == 'table' then return nil end
  return answer
end

local listeners = -1
local counted = pcall('PUBSUB', ARGV[1] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', kind == RW and ARGV[5] or ARGV[4])
if type(counted) == 'table' and counted[2] then listeners = tonumber(counted[2]) end
local waits, foreign
local late = '(' .. string.format('%.0f', now)
if kind == RW then
  -- Whose readers wait listens to the channel, and perhaps who has only writers now: nobody counts twice.
  local seen = {}
  waits, foreign = 0, true
  for _, set in ipairs({TURN, READERS, MARKS}) do
    for _, f in ipairs(call('ZRANGEBYSCORE', set, late, '+inf', 'LIMIT', 0, 1000)) do
      local client = string.sub(f, 1, 36)
      if not seen[client] then waits = waits + 1 end
      seen[client] = true
    end
  end
else
  waits = read('ZCARD', KEYS[13]) or 0
  local holder = waits > 0 and call('HLEN', LOCK) == 1 and call('HGETALL', LOCK)[1]
  foreign = holder and string.sub(holder, 37, 38) ~= ':g'
end
if waits > 0 and listeners >= 0 then
  -- who was refused by another library listens to the channel, too
  listeners = foreign and math.max(listeners, waits) or listeners + waits
end

local pttl = call('PTTL', LOCK)
local last, trace = read('GET', KEYS[5]) or '0', read('GET', KEYS[6]) or ''
local out = {kind, now, pttl, #last < 32 and tonumber(last) or 0, mode or '', listeners, #trace <= SHOWN and string.match(trace, '^[^\n]*') or ''}

local function add(...)
  for _, v in ipairs({...}) do out[#out + 1] = v end
end

-- The holders. Those of ours whose leases have ended hold nothing.
local holders, at = 0, #out + 1
add(0, 0)
if kind ~= NONE and call('EXISTS', LOCK) == 1 then
  local limit = tonumber(ARGV[7])
  local entries
  if call('HLEN', LOCK) > limit + 1 then
    entries = call('HSCAN', LOCK, '0', 'COUNT', limit)[2]
    holders = call('HLEN', LOCK)
    if kind == RW then holders = holders - 1 - call('ZCOUNT', LEASES, '-inf', now) end
  else
    entries = call('HGETALL', LOCK)
  end
  local cut = holders > 0
  for i = 1, #entries, 2 do
    local f, n = entries[i], entries[i + 1]
    if is_hold(f, n) then
      n = tonumber(n)
      local left = kind == RW and read('ZSCORE', LEASES, f)
      if left then
        left = lasts(left - now)
      elseif kind ~= RW or mode == 'write' then
        left = pttl
      else
        left = foreign_read(ARGV[6], f, n) or pttl
      end
      if left > 0 or left == -1 then
        if not cut then holders = holders + 1 end
        if out[at + 1] < limit then
          out[at + 1] = out[at + 1] + 1
          add(f, n, left)
        end
      end
    end
  end
  out[at] = holders
end

-- The waiters that the server knows.
local most = tonumber(ARGV[8])
at = #out + 1
add(0, 0)
local function wait(f, want, since)
  if out[at + 1] >= most or #f > LONG then return end
  out[at + 1] = out[at + 1] + 1
  add(f, want, since)
end
if kind == FAIR then
  local length = call('LLEN', QUEUE)
  for _, f in ipairs(call('LRANGE', QUEUE, 0, most - 1)) do
    local want = ours(f) and call('HGET', WANTS, f)
    if want and #want <= LONG and (alive_until(want) or 0) > now then
      wait(f, 'lock', string.match(want, '^%d+ (%d+)') or '')
    elseif not ours(f) then
      wait(f, 'lock', '')
    end
  end
  if length <= most then
    length = out[at + 1]
  else
    length = length - call('ZCOUNT', SCORES, '-inf', '(100000000000')
  end
  out[at] = length
elseif kind == RW then
  out[at] = call('ZCOUNT', MARKS, late, '+inf') + call('ZCOUNT', READERS, late, '+inf') + call('ZCOUNT', TURN, late, '+inf')
  local writers = call('ZRANGE', WRITERS, 0, most - 1, 'WITHSCORES')
  for i = 1, #writers, 2 do
    if tonumber(call('ZSCORE', MARKS, writers[i]) or '0') > now then
      wait(writers[i], 'write', string.format('%.0f', writers[i + 1]))
    end
  end
  for _, set in ipairs({TURN, READERS}) do
    for _, f in ipairs(call('ZRANGEBYSCORE', set, late, '+inf', 'LIMIT', 0, most - out[at + 1])) do wait(f, 'read', '') end
  end
end

-- The clients that wait for a plain lock. What is taken off the places of those that were called is in wake.
at = #out + 1
add(0)
local list = waits > 0 and (kind == PLAIN or kind == NONE) and pcall('ZRANGE', KEYS[13], 0, most - 1, 'WITHSCORES') or {}
for i = 1, #list, 2 do
  local place = tonumber(list[i + 1])
  if #list[i] <= 64 then
    out[at] = out[at] + 1
    add(list[i], string.format('%.0f', place < 0 and place + 4e15 or place))
  end
end
return out
