-- void: tells how high fences are, or drops a computed value. It then leaves a note that refuses
-- values of earlier leases.
--
-- KEYS: `{name}:fence`, `{name}:cache`.
-- ARGV: `fence`, `K`, `lasts`.
--   `fence`  0: read only. Otherwise the fence of the note, which is written unless a value or a
--            note of a higher fence is there.
--   `K`      As in request.lua.
--   `lasts`  For how many ms the note is kept.
-- Answer: {the highest fence that this node knows, for how many ms the cache key stays}.
--   The fence is that of the lock's record, of the clock floor, or of what the cache key holds. The
--   second is 0 if there is no cache key.
local call, cache = redis.call, KEYS[2]
local fence, K = tonumber(ARGV[1]), tonumber(ARGV[2])
local there = tonumber(string.match(call('GET', cache) or '', '^%d+') or 0)
local stays = math.max(call('PTTL', cache), 0)
local t = call('TIME')
local F = tonumber(call('GET', KEYS[1]) or '') or t[1] * 1000000 + t[2] - K * 500 - 1      -- no record: the clock floor
if fence > 0 and there <= fence then
    call('SET', cache, ARGV[1] .. ':', 'PX', string.format('%.0f', math.max(ARGV[3], stays)))
end
return {math.max(F, there), stays}
