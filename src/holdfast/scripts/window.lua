-- window: takes calls from an allowance for one window of time, which begins with its first call; or gives back what was taken.
--
-- KEYS  rate
-- ARGV  cost limit period at
--   cost    how many calls are taken
--   limit   how many there are in a window
--   period  the length of a window, in microseconds
--   at      0: take. Else: give back what was taken in the window with this end, which that answer has told
-- Answer: {1 if allowed, 0 if not; what is left of the window, in microseconds; what was taken in it; now, in microseconds of this
--          node's clock}
--
-- The key holds the end of the window, in microseconds, and what was taken in it. It expires then; no call moves that end.
local call, key = redis.call, KEYS[1]
local cost, limit, period, at = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local t = call('TIME')
local now = t[1] * 1000000 + t[2]

local ends, taken = string.match(call('GET', key) or '', '^(%d+) (%d+)$')
ends, taken = tonumber(ends) or 0, tonumber(taken) or 0

local function keep()
    call('SET', key, string.format('%.0f %.0f', ends, taken), 'PXAT', string.format('%.0f', math.floor(ends / 1000) + 1))
end

if ends <= now then
    ends, taken = now + period, 0
elseif ends > now + period then                     -- the clock has gone back, or the period is shorter than it was
    ends = now + period
    keep()
end

if at == 0 then
    if taken + cost > limit then return {0, ends - now, taken, now} end
    taken = taken + cost
    keep()
elseif ends == at then
    taken = math.max(taken - cost, 0)
    keep()
end
return {1, ends - now, taken, now}
