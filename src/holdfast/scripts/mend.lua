-- mend: writes back what this node has forgotten of a register and others remember. A register
-- only ever rises.
--
-- KEYS: `register`.
-- ARGV: `until`, `first`, `second`, `value`.
--   `until`   A moment in microseconds. From then on nothing is written, because what was read
--             elsewhere may be out of date.
--   A result or a cached value has its version, the moment at which it expires (ms), and all of it,
--   with the version. A note that a value was dropped is later than a value of the same version.
--   A rate has the moment at which nothing will be owed (microseconds), and parts of one.
--   A window has the moment at which it ends (microseconds), and how many calls were taken in it.
--   All moments are by this node's clock.
-- Answer: 1 if it was written, 0 if this node has it by now, -1 if it is too late.
local call, key = redis.call, KEYS[1]
local first, second = tonumber(ARGV[2]), tonumber(ARGV[3])
local kind = string.match(key, '^{[^}]+}:(%a+)')
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
if now >= tonumber(ARGV[1]) then return -1 end
local here = call('GET', key) or ''

if kind == 'result' or kind == 'cache' then
    local version = tonumber(string.match(here, '^(%d+)[ :]') or 0)
    local note = string.match(string.sub(ARGV[4], 1, 20), '^%d+:$') and not string.match(string.sub(here, 1, 20), '^%d+:$')
    if version > first or version == first and not note or second * 1000 <= now then return 0 end
    call('SET', key, ARGV[4], 'PXAT', ARGV[3])
    return 1
end

local moment, number, line = string.match(here, '^(%d+) (%d+) ?(%d*)$')
moment, number = tonumber(moment) or 0, tonumber(number) or 0
-- Is more owed on other nodes than here?
local later = first > moment
if kind == 'window' then later = moment <= now or second > number end
if not later or first <= now then return 0 end
local kept, lasts = string.format('%.0f %.0f', first, second), first
-- Callers in line stay there.
if (tonumber(line) or 0) > now then
    kept, lasts = kept .. ' ' .. line, math.max(first, tonumber(line))
end
call('SET', key, kept, 'PXAT', string.format('%.0f', math.floor(lasts / 1000) + 1))
return 1
