-- fair_state: look at a fair lock and its queue.
--
-- KEYS, ARGV[1..3]  as in fair_keys
-- ARGV[4]  '1' = also read the fencing counter
-- ARGV[5]  how many waiters to show at most
--
-- RETURN   {held, pttl, token, length, n, waiter, ..., field, count}
--              held 1 or 0; pttl in ms, -1 = no TTL; length of the queue; n waiters, the next one
--              first; then the holder, if any
--          {-1}  the key is no lock
--
-- Bound: it looks at ARGV[5] entries.
--
-- Twice: it reads only.
local token = 0
if ARGV[4] == '1' then
  local last = call('GET', KEYS[5]) or '0'
  token = #last < 32 and tonumber(last) or 0
end
local held = call('EXISTS', LOCK)
local field, count
if held == 1 then
  field, count = only_hold(LOCK)
  if not field then return {-1} end
end

-- Who has left or died does not count, as far as is looked.
local length = call('LLEN', QUEUE) - call('ZCOUNT', SCORES, '-inf', '(100000000000')
local entries = call('LRANGE', QUEUE, 0, ARGV[5] - 1)
local waiters = {}
for _, f in ipairs(entries) do
  local want = ours(f) and call('HGET', WANTS, f)
  if want and alive_until(want) > now or redissons(f) then
    waiters[#waiters + 1] = f
  end
end
if #entries < tonumber(ARGV[5]) then length = #waiters end
local out = {held, call('PTTL', LOCK), token, length, #waiters}
for _, f in ipairs(waiters) do out[#out + 1] = f end
out[#out + 1] = field
out[#out + 1] = count
return out
