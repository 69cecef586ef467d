-- void: tells how high fences are; or drops the value that was computed, and leaves a note that refuses values of earlier leases.
--
-- KEYS  {name}:fence {name}:cache
-- ARGV  fence K lasts
--   fence  0: tell only. Else: the note is of this fence, unless a value or a note of a higher one is there
--   K      as in request.lua
--   lasts  for how many ms the note is kept
-- Answer: {the highest fence that this node knows of: of the lock's record, of the clock floor, or of what is kept here; for how many ms
--   what is kept here stays, 0 if nothing is}
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
