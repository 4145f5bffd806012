-- rw_state: look at a read-write lock.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_rw_leases:{lock}
-- KEYS[3]  redlatch_rw_writers:{lock}
-- KEYS[4]  redlatch_rw_marks:{lock}
-- KEYS[5]  redlatch_rw_readers:{lock}
-- KEYS[6]  redlatch_rw_turn:{lock}
-- KEYS[7]  the fencing counter, if ARGV[1] is '1'
-- ARGV[1]  '1' = also read the fencing counter
-- ARGV[2]  what the names of all timeout keys begin with: {lock}, or the lock's name with a tag
--
-- Beside KEYS it reads <ARGV[2]>:<field>:rwlock_timeout:<i> of readers that are
-- not redlatch's.
--
-- RETURN   {pttl, token, mode, waiters, holders, (field, count, remaining ms)..., (writer, remaining ms)...}
--          mode '' and no holders: free. waiters: all that the server knows, readers, too;
--          of these the waiting writers come in their order, at most 1,000; pttl and
--          remaining -1: no TTL; token 0 if not asked for
--          {-3}   the key is no read-write lock
--
-- Bound: at most 1,000 holders, 1,000 timeout keys of foreign readers and 1,000 writers are looked
-- at; of more holders some are shown.
--
-- Twice: it reads only.
local token = 0
if ARGV[1] == '1' then
  local last = call('GET', KEYS[7]) or '0'
  token = #last < 32 and tonumber(last) or 0
end
local out = {call('PTTL', KEYS[1]), token, '', 0, 0}
local kind = call('TYPE', KEYS[1]).ok
if kind ~= 'none' then
  if kind ~= 'hash' then return {-3} end
  local mode = call('HGET', KEYS[1], 'mode')
  if mode ~= 'read' and mode ~= 'write' or not rw_holder(KEYS[1]) then return {-3} end
  out[3] = mode
  local all
  if call('HLEN', KEYS[1]) > MOST + 1 then
    all = call('HSCAN', KEYS[1], '0', 'COUNT', MOST)[2]
  else
    all = call('HGETALL', KEYS[1])
  end
  for i = 1, #all, 2 do
    local f, n = all[i], all[i + 1]
    if is_hold(f, n) then
      n = tonumber(n)
      local left = call('ZSCORE', KEYS[2], f)
      if left then
        left = lasts(left - now)
      elseif mode == 'write' then
        left = out[1]
      else
        left = foreign_read(ARGV[2], f, n) or out[1]
      end
      if left > 0 or left == -1 then
        out[5] = out[5] + 1
        out[#out + 1] = f
        out[#out + 1] = n
        out[#out + 1] = left
      end
    end
  end
end
local late = '(' .. string.format('%.0f', now)
for i = 4, 6 do out[4] = out[4] + call('ZCOUNT', KEYS[i], late, '+inf') end
for _, f in ipairs(call('ZRANGE', KEYS[3], 0, MOST - 1)) do
  local alive = lasts(tonumber(call('ZSCORE', KEYS[4], f) or '0') - now)
  if alive > 0 and #f <= LONG then
    out[#out + 1] = f
    out[#out + 1] = alive
  end
end
return out
