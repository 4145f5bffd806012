-- history_read: a page of the evictions, the newest first, of one lock or of all.
--
-- KEYS[1]  redlatch_history:{prefix}, see history_add
-- ARGV[1]  the name of a lock, '' = all
-- ARGV[2]  how many entries to return at most
-- ARGV[3]  how many entries to look at at most
-- ARGV[4]  how many bytes to look at, about, 16 for each field besides: no entry is read once they are more
-- ARGV[5]  how many bytes of a value to return at most
-- ARGV[6]  the entry behind which to go on, '+' = begin with the newest
--
-- RETURN   {1, the entry looked at last or '' at the end, how many entries and bytes it looked at,
--           (id, n, n times a field and its value)...}
--
-- Bound: entries are read one by one, so that what somebody else has put there costs the server ARGV[4] bytes
-- and one entry at most. Of an entry 64 fields and values are returned at most.
--
-- Twice: it reads only.
local out, found, looked, bytes, at = {1, '', 0, 0}, 0, 0, 0, ARGV[6]
while found < tonumber(ARGV[2]) and looked < tonumber(ARGV[3]) and bytes <= tonumber(ARGV[4]) do
  -- the one read last is read again: there is no other beginning before Redis 6.2
  local got = redis.call('XREVRANGE', KEYS[1], at, '-', 'COUNT', at == '+' and 1 or 2)
  local entry = got[1]
  if entry and entry[1] == at then entry = got[2] end
  if not entry then at = '' break end
  at, looked = entry[1], looked + 1
  local pairs_, name = {}, nil
  for i = 1, #entry[2], 2 do
    local field, value = entry[2][i], entry[2][i + 1]
    bytes = bytes + 16 + #field + #value
    if #pairs_ < 128 and #field <= 32 then
      value = string.sub(value, 1, tonumber(ARGV[5]))
      pairs_[#pairs_ + 1], pairs_[#pairs_ + 2] = field, value
      if field == 'name' then name = value end
    end
  end
  if ARGV[1] == '' or name == ARGV[1] then
    found = found + 1
    out[#out + 1], out[#out + 2] = at, #pairs_ / 2
    for _, v in ipairs(pairs_) do out[#out + 1] = v end
  end
end
out[2], out[3], out[4] = at, looked, bytes
return out
