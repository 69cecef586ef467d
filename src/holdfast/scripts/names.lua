-- names: one step of looking for locks that are held on this node. Changes nothing.
--
-- ARGV  cursor pattern count
--   (as SCAN has them; the first cursor is 0)
-- Answer: {the next cursor, 0 when that was all; then the keys that a token stands in}
local step = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3], 'TYPE', 'string')
local answer = {step[1]}
for _, key in ipairs(step[2]) do
    local value = redis.pcall('GET', key)           -- (it may be gone; or another's, which this user may not read)
    local token = type(value) == 'string' and (value == 'shared' or string.match(value, '^%d+:%x+:%x+:?[rw]?$'))
    if token then answer[#answer + 1] = key end
end
return answer
