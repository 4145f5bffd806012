-- hold: what a hold looks like, in a hash that may be an application's; it is put in
-- front of the scripts that want to know.
--
-- KEYS     none of its own

-- <uuid>:<owner>, in a read-write lock perhaps with ':write', and a count.
local function is_hold(field, count)
  return #field <= LONG and #count < 16 and
    string.match(field, '^%x+%-%x+%-%x+%-%x+%-%x+:[^ ]+$') and string.match(count, '^%d+$')
end

-- Whether a hash whose field 'mode' says read or write is a read-write lock, by a few of
-- its entries: the cost does not grow with what an application may have put there.
-- Returns the owner of one of its holds, of the writer's if there is one ('' = none was
-- seen); nil when it is no lock.
local function rw_holder(lock)
  if call('HLEN', lock) == 1 then return end -- nobody leaves a mode alone
  local some, holder, writes = call('HSCAN', lock, '0', 'COUNT', 10)[2], '', false
  for i = 1, #some, 2 do
    local f = some[i]
    if f ~= 'mode' then
      if not is_hold(f, some[i + 1]) then return end
      if string.sub(f, -6) == ':write' then
        holder, writes = string.sub(f, 1, -7), true
      elseif not writes then
        holder = f
      end
    end
  end
  return holder
end
