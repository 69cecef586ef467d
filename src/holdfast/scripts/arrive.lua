-- arrive: notes who has arrived at a latch, or in one generation of a barrier. When all have
-- arrived, it tells the waiters.
--
-- KEYS: `state`, `arrived`, `awaited`, `gone`.
--   `state`    Holds "count birth generations".
--   `arrived`  A sorted set of ids. Its scores are places. What the caller knows is left out by them.
--   `awaited`  A sorted set of tokens. Its scores are deadlines.
--   `gone`     What nobody needs once all have arrived: a latch's own set, or the set of a
--              barrier's previous generation.
-- ARGV: `count`, `generation`, `keep`, `over`, `birth`, `known`, `token`, `ttl`, `ids`.
--   `count`       How many have to arrive.
--   `generation`  The generation that the ids arrive in. It is 0 for a latch. All earlier ones are
--                 over, even if this node never heard of them.
--   `keep`        How long to remember all this, in ms from now. 0: read only, change nothing.
--   `over`        1: somebody has seen that all have arrived. 0: nobody is known to have seen it.
--   `birth`       What this node told the caller before: since when it remembers.
--   `known`       What this node told the caller before: how many ids.
--   `token`       The waiter to tell when all have arrived. Empty: nobody.
--   `ttl`         For how many ms to tell it.
--   `ids`         Who has arrived, with a NUL between two.
-- Answer: {generations that are over, birth, how many ids were told before, the other ids}.
--   If this generation is over, the last two are 0 and the given ids that came too late, which are
--   those that a full set does not have.
--   If others have named another count, the answer is that count, and nothing was noted.
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
