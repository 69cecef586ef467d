-- permits: which permits of a semaphore are held on this node. Changes nothing.
--
-- KEYS  name
-- ARGV  permits
--   name     of the semaphore. The key of its slot 7 is name, "[slot 7]", with nothing between them
--   permits  how many slots to look at, from slot 0 on
-- Answer: for each slot whose key exists: its number, the value of its key (its first 256 bytes), the key's PTTL (-1: no expiry)
local call, answer = redis.call, {}
for slot = 0, tonumber(ARGV[1]) - 1 do
    local key = KEYS[1] .. '[slot ' .. string.format('%.0f', slot) .. ']'
    local holder = call('GET', key)
    if holder then
        answer[#answer + 1] = slot
        answer[#answer + 1] = string.sub(holder, 1, 256)
        answer[#answer + 1] = call('PTTL', key)
    end
end
return answer
