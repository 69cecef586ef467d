-- gcra: takes calls from an allowance that flows back evenly (the generic cell rate algorithm), or gives back what was taken.
--
-- KEYS  rate
-- ARGV  parts q r Q R at
--   parts  of one microsecond: as many as the limit has calls, so that every share of the period is a whole number of them
--   q r    what is taken, in microseconds and parts
--   Q R    the most that may be owed, the burst, in microseconds and parts
--   at     0: take. Else: give back what was taken at this moment, which that answer has told
-- Answer: {1 if allowed, 0 if not; what is owed now, in microseconds; and parts; now, in microseconds of this node's clock}
--
-- The key holds the moment at which nothing will be owed: microseconds and parts. It expires then.
local call, key = redis.call, KEYS[1]
local parts, q, r = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local Q, R, at = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local t = call('TIME')
local now = t[1] * 1000000 + t[2]

local free, rest = string.match(call('GET', key) or '', '^(%d+) (%d+)$')
local owed = (tonumber(free) or 0) - now
rest = math.min(tonumber(rest) or 0, parts - 1)     -- (the limit may have been another one)
if owed < 0 then owed, rest = 0, 0 end

local function keep()
    if owed == 0 and rest == 0 then return call('DEL', key) end
    free = now + owed
    call('SET', key, string.format('%.0f %.0f', free, rest), 'PXAT', string.format('%.0f', math.floor(free / 1000) + 1))
end

-- More than can be owed: the clock has gone back, or the burst is smaller than it was. Kept, or it would be so for as long as the step.
if owed > Q or owed == Q and rest > R then
    owed, rest = Q, R
    keep()
end

if at == 0 then
    local sum, more = owed + q, rest + r
    if more >= parts then sum, more = sum + 1, more - parts end
    if sum > Q or sum == Q and more > R then return {0, owed, rest, now} end
    owed, rest = sum, more
    keep()
    return {1, owed, rest, now}
end

-- As much of it as cannot have flowed back by itself since: without it, the time may have passed while nothing was owed.
local back = q - math.max(now - at, 0)
if back >= 0 and owed + rest > 0 then
    owed, rest = owed - back, rest - r
    if rest < 0 then owed, rest = owed - 1, rest + parts end
    if owed < 0 then owed, rest = 0, 0 end
    keep()
end
return {1, owed, rest, now}
