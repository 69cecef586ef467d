-- arrive: notes who has arrived at a latch, or in one generation of a barrier; when all have, whoever waits is told.
--
-- KEYS  state arrived awaited gone
--   gone: what nobody needs any more once all have arrived: a latch's own set, the set of a barrier's generation before
-- ARGV  count generation keep over birth known token ttl ids
--   count       how many have to arrive
--   generation  of which this is: 0 for a latch. All before it are over, whether this node has heard of it or not
--   keep        for how many ms to remember all this, from now on; 0: only look, and change nothing
--   over        1: all have arrived, somebody has seen it; 0: not that anybody knew
--   birth known what the caller was told here before: since when this node remembers, and how many ids
--   token ttl   who wants to be told when all have arrived, for how many ms; no token: nobody
--   ids         who has arrived, with a NUL between two
-- Answer: {generations that are over, birth, how many ids were told before, the others, with a NUL between two}
--         If this generation is over: {those that are over, birth, 0, those of ids that have come too late: without them the set is full}
--     or  the count that others have named, if it is another one. Nothing was noted then
--
-- state is "count birth generations". In arrived the score is the place, by which what was told before is left out; in awaited the deadline.
local call, state, arrived, awaited = redis.call, KEYS[1], KEYS[2], KEYS[3]
local count, generation, keep, ids = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[9]
local t = call('TIME')

local said, birth, before = string.match(call('GET', state) or '', '^(%d+) (%d+) (%d+)$')
if said and said ~= ARGV[1] then return said end
birth = birth or string.format('%.0f', t[1] * 1000000 + t[2])
local over = math.max(tonumber(before) or 0, generation)
if keep == 0 then
    local there = over > generation and {} or call('ZRANGE', arrived, 0, -1)
    return {over, birth, 0, table.concat(there, '\0')}
end

local function last(key, ms)                        -- so long at least: an expiry is never moved back
    if call('PTTL', key) < ms then call('PEXPIRE', key, string.format('%.0f', ms)) end
end

local size = call('ZCARD', arrived)
local known, told = 0, {}
if over > generation then
    if size >= count then
        for id in string.gmatch(ids, '%Z+') do
            if not call('ZSCORE', arrived, id) then table.insert(told, id) end
        end
    end
else
    for id in string.gmatch(ids, '%Z+') do
        if not call('ZSCORE', arrived, id) then
            call('ZADD', arrived, size, id)
            size = size + 1
        end
    end
    if ARGV[5] == birth and tonumber(ARGV[6]) <= size then known = tonumber(ARGV[6]) end
    told = call('ZRANGE', arrived, known, -1)
    last(arrived, keep)

    local now, ttl = t[1] * 1000 + math.floor(t[2] / 1000), tonumber(ARGV[8])
    call('ZREMRANGEBYSCORE', awaited, '-inf', string.format('%.0f', now))
    if ARGV[4] == '1' or size >= count then
        over, known, told = generation + 1, 0, {}
        for _, token in ipairs(call('ZRANGE', awaited, 0, -1)) do       -- an error (ACL) is no reason not to go on
            redis.pcall('PUBLISH', string.sub(token, 18, 49), 'n ' .. token .. ' 0 ' .. state)
        end
        call('DEL', awaited, KEYS[4])
    elseif ARGV[7] ~= '' then
        call('ZADD', awaited, 'GT', string.format('%.0f', now + ttl), ARGV[7])
        last(awaited, ttl)
    end
end

if over == tonumber(before) then
    last(state, keep)
else
    local left = math.max(call('PTTL', state), keep)
    call('SET', state, string.format('%.0f %s %.0f', count, birth, over), 'PX', string.format('%.0f', left))
end
return {over, birth, known, table.concat(told, '\0')}
