-- once: claim a period for a run, if it is due and nobody holds its lock.
--
-- KEYS[1]  redlatch_once:{lock}, a string: "<tick> <id> <tick before>", ticks in epoch ms
--          of the server: when the period of the last run began, and the one before it
--          (0: not known)
-- KEYS[2]  redlatch_void:{lock}, a set of claims given up
-- KEYS[3]  the lock
-- ARGV[1]  id of this claim, without spaces
-- ARGV[2]  period, ms
-- ARGV[3]  how early a run may begin, ms
-- ARGV[4]  '0'; of a retry: how long (ms) a late command of this claim must be refused, once it
--          is granted
--
-- RETURN   {1, early}  claimed: begin; early: by how many ms before its period
--          {2}         claimed by this very claim: a retry
--          {0, left}   not due; for how many ms
--          {3, pttl, holder}  due, but the lock is held: nothing was claimed. pttl in ms, -1 = the
--                      key has no TTL; holder '' = not known
--          {-1}        this claim was given up before
--
-- A run that begins early counts from the time at which its period would have begun, so
-- earliness never adds up. The key lives for as long as it can refuse anybody.
--
-- The lock is asked here, too, so that a call that can't have it claims nothing: else the others
-- would hear that the period has its run, until the claim is undone. A key that is no lock is left
-- to the acquisition behind the claim, which refuses it.
--
-- A period begins at most ARGV[3] after its claim. One that is farther ahead was claimed before the
-- clock was set back, or on a master whose clock was ahead: it is made to begin now, or nobody
-- would run until the clock is there again. So is one that can't be read; one without a TTL gets it.
--
-- Twice: the id names the claim, so a second run finds its own and changes nothing but the
-- TTL. A run that comes after the claim was given up finds its id in the void set, and so does
-- one that comes after a retry was granted and the record of that has expired.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local period = tonumber(ARGV[2])
local last = redis.call('GET', KEYS[1])
local tick, id = 0, ''
local function granted(answer)
  if ARGV[4] ~= '0' then
    redis.pcall('SADD', KEYS[2], ARGV[1])
    redis.pcall('PEXPIRE', KEYS[2], ARGV[4])
  end
  return answer
end
if last then
  if #last <= 1024 then tick, id = string.match(last, '^(%d+) (%S*) ') end
  if #last > 1024 or not tick then
    -- No record: of the run that stood here nobody knows any more. It may have begun just now.
    redis.call('SET', KEYS[1], string.format('%.0f - 0', now), 'PX', ARGV[2])
    return {0, period - ARGV[3]}
  end
  tick = tonumber(tick)
end
if id == ARGV[1] then
  -- Written in any case: a WAIT behind it counts the writes of its own connection.
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(1, math.min(tick, now + period) + period - now)))
  return granted({2})
end
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return {-1} end
local due = tick + period - ARGV[3]
if last and now < due then
  if tick <= now + ARGV[3] then
    if redis.call('PTTL', KEYS[1]) < 0 then redis.pcall('PEXPIRE', KEYS[1], string.format('%.0f', tick + period - now)) end
    return {0, due - now}
  end
  -- the clock was set back: the run was before now, so the period ends at the latest then
  redis.pcall('SET', KEYS[1], string.format('%.0f %s 0', now, id), 'PX', ARGV[2])
  return {0, period - ARGV[3]}
end

-- parts stand here
local holder = whose(KEYS[3], '')
if holder then return {3, call('PTTL', KEYS[3]), holder} end

local start = now
if last then start = math.max(now, tick + period) end
redis.call('SET', KEYS[1], string.format('%.0f %s %.0f', start, ARGV[1], tick),
  'PX', string.format('%.0f', start + period - now))
return granted({1, start - now})
