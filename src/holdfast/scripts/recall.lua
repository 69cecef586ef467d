-- recall: reads what this node remembers of some registers. Changes nothing.
--
-- ARGV: `keys`.
--   `keys`  Each key with its length and a colon before it, such as 5:{a}:b. They are not passed as
--           KEYS: they lie in different slots, and a node that is the only shard of a cluster would
--           refuse them.
-- Answer: {now, in microseconds of this node's clock; then one list for each key}.
--   The list is empty if nothing is kept there. Otherwise it depends on the kind of the register.
--   A result or a cached value: {version, 1 if it was dropped, PTTL}. Its ballot or fence is its
--   version.
--   A rate: {microseconds that are owed, and parts of one}.
--   A window: {microseconds that are left of it, how many calls were taken in it}.
--   A latch or barrier: {count, generations that are over, PTTL, ids in the next generation}. There
--   is a NUL between two ids.
local call, pcall = redis.call, redis.pcall
local t = call('TIME')
local now = t[1] * 1000000 + t[2]

local function kept(key)
    -- An error means another type, or a key that this user may not read.
    local value = pcall('GET', key)
    if type(value) ~= 'string' then return {} end
    local tag, kind, rest = string.match(key, '^({[^}]+}):(%a+)(.*)$')
    if kind == 'result' or kind == 'cache' then
        local version = tonumber(string.match(value, '^(%d+)[ :]'))
        local note = string.match(string.sub(value, 1, 20), '^%d+:$') and 1 or 0
        return version and {version, note, call('PTTL', key)} or {}
    elseif kind == 'latch' or kind == 'barrier' then
        local count, over = string.match(value, '^(%d+) %d+ (%d+)$')
        if not count then return {} end
        local arrived = tag .. ':arrived' .. (kind == 'barrier' and over or '') .. rest
        local ids = pcall('ZRANGE', arrived, 0, -1)
        return {tonumber(count), tonumber(over), call('PTTL', key), ids.err and '' or table.concat(ids, '\0')}
    end
    local moment, number = string.match(value, '^(%d+) (%d+) ?%d*$')
    local left = (tonumber(moment) or 0) - now
    return left > 0 and {left, tonumber(number)} or {}
end

local keys, answer, at = ARGV[1], {now}, 1
while at <= #keys do
    local size, start = string.match(keys, '^(%d+):()', at)
    at = start + size
    answer[#answer + 1] = kept(string.sub(keys, start, at - 1))
end
return answer
