-- put: keeps a value that was computed, unless a later holder's is there, and has everybody who waits for it look.
--
-- KEYS  name {name}:cache {name}:queue
-- ARGV  fence fresh stale value
--   fence  of the lease under which it was computed: a value is never replaced by one with a lower fence
--   fresh  for how many ms it is fresh
--   stale  for how many ms more it may be shown
-- Answer: 1 if it is kept, 0 if a later holder's value is there
local call, cache = redis.call, KEYS[2]
local there = tonumber(string.match(call('GET', cache) or '', '^%d+') or 0)
if there > tonumber(ARGV[1]) then return 0 end
local kept = ARGV[1] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
call('SET', cache, kept, 'PX', string.format('%.0f', ARGV[2] + ARGV[3]))
for _, token in ipairs(call('ZRANGE', KEYS[3], 0, -1)) do
    redis.pcall('PUBLISH', string.sub(token, 18, 49), 'n ' .. token .. ' 0 ' .. KEYS[1])
end
return 1
