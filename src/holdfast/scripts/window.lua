-- window: takes calls from limits, from all of them or from none, or gives back what was taken.
-- Each limit counts calls in one window of time, which begins with its first call.
--
-- KEYS: one `limit` for each limit of the rate.
-- ARGV: `cost`, and then `limit`, `period`, `at` for each limit.
--   `cost`    How many calls are taken.
--   `limit`   How many calls a window has.
--   `period`  The length of a window, in microseconds.
--   `at`      0: take. -1: answer as if to a take, and change nothing. Any other number: give back
--             what was taken in the window with this end, which the answer has told.
-- Answer: {1 if allowed, otherwise 0; now; and two numbers for each limit}. The two are what is left
--   of the window, and how many calls were taken in it. Times are in microseconds of this node's
--   clock.
--
-- A key holds the end of the window in microseconds, and what was taken in it. It expires at that
-- end, which no call moves.
local call, cost = redis.call, tonumber(ARGV[1])
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local limits, fits, what = {}, true, 0

local function keep(it)
    local expiry = string.format('%.0f', math.floor(it.ends / 1000) + 1)
    call('SET', it.key, string.format('%.0f %.0f', it.ends, it.taken), 'PXAT', expiry)
end

for i, key in ipairs(KEYS) do
    local limit, period = tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
    local ends, taken = string.match(call('GET', key) or '', '^(%d+) (%d+)$')
    what = tonumber(ARGV[3 * i + 1])
    local it = {key = key, at = what, ends = tonumber(ends) or 0, taken = tonumber(taken) or 0}
    if it.ends <= now then
        it.ends, it.taken = now + period, 0
    elseif it.ends > now + period then                  -- the clock has gone back
        it.ends = now + period
        if what >= 0 then keep(it) end
    end
    if it.taken + cost > limit then fits = false end
    limits[i] = it
end

if what == 0 and fits then
    for _, it in ipairs(limits) do
        it.taken = it.taken + cost
        keep(it)
    end
elseif what > 0 then
    fits = true
    for _, it in ipairs(limits) do
        if it.ends == it.at then
            it.taken = math.max(it.taken - cost, 0)
            keep(it)
        end
    end
end

local told = {fits and 1 or 0, now}
for _, it in ipairs(limits) do
    told[#told + 1] = it.ends - now
    told[#told + 1] = it.taken
end
return told
