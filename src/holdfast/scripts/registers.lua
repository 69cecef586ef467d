-- registers: takes one step of a search for what once, fill, rate, latch and barrier keep on this
-- node. Changes nothing.
--
-- ARGV: `cursor`, `pattern`, `count`. All are as SCAN has them. The first cursor is 0.
-- Answer: {the next cursor, 0 after the last step; then the keys}.
local kinds = {result = true, cache = true, rate = true, window = true, latch = true, barrier = true}
local step = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3], 'TYPE', 'string')
local answer = {step[1]}
for _, key in ipairs(step[2]) do
    if kinds[string.match(key, '^{[^}]+}:(%a+)') or ''] then answer[#answer + 1] = key end
end
return answer
