-- gcra: takes calls from limits that flow back evenly (the generic cell rate algorithm), from all
-- of them or from none. It also reserves a turn, or gives back what was taken.
--
-- KEYS: one `limit` for each limit of the rate.
-- ARGV: `what`, `patience`, and then `parts`, `q`, `r`, `Q`, `R` for each limit.
--   `what`      0: take. -1: answer as if to a take, and change nothing. Any other number: give
--               back what was taken at this moment, which the answer has told.
--   `patience`  For how many microseconds the caller would wait for a turn. 0: it does not wait.
--               -1: its turn has come. -1 - x: the same, and the call may be counted x
--               microseconds ahead.
--   `parts`     How many parts one microsecond has: as many as the limit has calls. So every share
--               of the period is a whole number of parts.
--   `q`, `r`    What is taken, in microseconds and parts.
--   `Q`, `R`    The most that may be owed (the burst), in microseconds and parts.
-- Answer: {verdict, now, and for each limit what is owed now, in microseconds and parts}.
--   The verdict is 1 if allowed, 0 if not, 2 if a turn is reserved, 3 if allowed and counted ahead.
--   `now` is in microseconds of this node's clock. What is owed includes the turns that others have
--   reserved, unless the caller's turn has come.
--
-- A key holds the moment at which nothing will be owed, in microseconds and parts. While turns are
-- reserved, it also holds the end of the line: the moment in microseconds at which nothing would be
-- owed if everybody in line had taken. The key expires at the later one.
--
-- The line only decides who may ask when. A caller whose turn has come is judged by what was really
-- taken, like everybody else. So the limit holds, whatever becomes of the line. A call that is
-- counted ahead counts for the first moment at which it fits. Until then more than the burst is
-- owed, and nobody else gets in before.
local call, what, patience = redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local most = 100000                                 -- microseconds: as much is counted ahead at most
local ahead = patience < 0 and math.min(-1 - patience, most) or 0
local limits, fits, delay = {}, true, 0

local function keep(it)
    if it.owed == 0 and it.rest == 0 then
        if it.line == 0 then return call('DEL', it.key) end
    else
        it.free = now + it.owed
    end
    local value = string.format('%.0f %.0f', it.free, it.rest)
    if it.line > 0 then value = value .. string.format(' %.0f', it.line) end
    call('SET', it.key, value, 'PXAT', string.format('%.0f', math.floor(math.max(it.free, it.line) / 1000) + 1))
end

for i, key in ipairs(KEYS) do
    local parts, q, r = tonumber(ARGV[5 * i - 2]), tonumber(ARGV[5 * i - 1]), tonumber(ARGV[5 * i])
    local Q, R = tonumber(ARGV[5 * i + 1]), tonumber(ARGV[5 * i + 2])
    local free, rest, line = string.match(call('GET', key) or '', '^(%d+) (%d+) ?(%d*)$')
    local it = {key = key, q = q, r = r, parts = parts, free = tonumber(free) or now, line = tonumber(line) or 0}
    it.owed, it.rest = it.free - now, math.min(tonumber(rest) or 0, parts - 1)

    -- Nothing has been owed for a tenth of a second, though callers had reserved turns: they died,
    -- or gave up. The line is over.
    if it.owed <= -100000 then it.line = 0 end
    if it.owed < 0 then it.owed, it.rest = 0, 0 end

    -- More than can be owed: the clock has gone back. Written down, or everybody would be refused
    -- until it has caught up.
    if it.owed > Q + most or it.owed == Q + most and it.rest > R then
        it.line = math.max(it.line - (it.owed - Q), 0)
        it.owed, it.rest = Q, R
        if what >= 0 then keep(it) end
    end
    if it.line <= now + it.owed then it.line = 0 end

    it.past = it.owed < Q or it.owed == Q and it.rest <= R

    -- What this caller finds owed, and whether its call fits besides.
    it.found, it.parted = it.owed, it.rest
    if it.line > 0 and patience >= 0 then it.found, it.parted = it.line - now, 0 end
    local sum, more = it.found + q, it.parted + r
    if more >= parts then sum, more = sum + 1, more - parts end
    if sum > Q or sum == Q and more > R then
        fits = false
        delay = math.max(delay, sum - Q + (more > R and 1 or 0))
    end
    limits[i] = it
end

local function answer(verdict, owed, rest)
    local told = {verdict, now}
    for _, it in ipairs(limits) do
        told[#told + 1] = it[owed]
        told[#told + 1] = it[rest]
    end
    return told
end

if what > 0 then
    for _, it in ipairs(limits) do
        -- Give back only what cannot have flowed back by itself since: without this call, that time
        -- might have passed while nothing was owed. Give back nothing while calls are counted ahead.
        -- Later calls keep to their moments, and others would join them there.
        local back = it.q - math.max(now - what, 0)
        if back >= 0 and it.owed + it.rest > 0 and it.past then
            it.owed, it.rest = it.owed - back, it.rest - it.r
            if it.rest < 0 then it.owed, it.rest = it.owed - 1, it.rest + it.parts end
            if it.owed < 0 then it.owed, it.rest = 0, 0 end
            if it.owed == 0 and it.rest == 0 then it.free = now end
            keep(it)
        end
    end
    return answer(1, 'owed', 'rest')
end

if what < 0 then return answer(fits and 1 or 0, 'found', 'parted') end

if fits or delay <= ahead then
    for _, it in ipairs(limits) do
        it.owed, it.rest = it.owed + it.q, it.rest + it.r
        if it.rest >= it.parts then it.owed, it.rest = it.owed + 1, it.rest - it.parts end
        -- (The call of a caller whose turn has come is in the line already.)
        if it.line > 0 and patience >= 0 then it.line = it.line + it.q + (it.r > 0 and 1 or 0) end
        it.found, it.parted = it.owed, it.rest
        if fits and it.line > now + it.owed then it.found, it.parted = it.line - now, 0 end
        keep(it)
    end
    return answer(fits and 1 or 3, 'found', 'parted')
end

if delay > patience then return answer(0, 'found', 'parted') end

for _, it in ipairs(limits) do
    it.line = now + it.found + (it.parted > 0 and 1 or 0) + it.q + (it.r > 0 and 1 or 0)
    keep(it)
end
return answer(2, 'found', 'parted')
