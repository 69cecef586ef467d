-- names: takes one step of a search for the locks that are held on this node. Changes nothing.
--
-- ARGV: `cursor`, `pattern`, `count`. All are as SCAN has them. The first cursor is 0.
-- Answer: {the next cursor, 0 after the last step; how many keys were looked at; then the keys that
--          hold a token}.
local looked = redis.call('SCAN', ARGV[1], 'COUNT', ARGV[3])[2]
local step = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3], 'TYPE', 'string')
local answer = {step[1], #looked}
for _, key in ipairs(step[2]) do
    -- The key may be gone by now, or this user may not read it.
    local value = redis.pcall('GET', key)
    local token = type(value) == 'string' and (value == 'shared' or string.match(value, '^%d+:%x+:%x+:?[rw]?$'))
    if token then answer[#answer + 1] = key end
end
return answer
