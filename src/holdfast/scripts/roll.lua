-- roll: notes that a client lives, who it is and which lists of shards it knows. It reports clients
-- that know other lists.
--
-- KEYS: `lists`, `clients`, `owner`.
--   `lists`    A sorted set of texts, one for each set of lists that some client knows. Its scores
--              are the ms at which a client last reported it.
--   `clients`  The beginning of a key. For each of these texts, the key holds a sorted set of
--              clients. Its scores are the ms at which each client last reported.
--   `owner`    The key that holds this client's `name`, for `lasts` ms.
-- ARGV: `me`, `known`, `life`, `most`, `name`, `lasts`.
--   `me`     The client. Empty: read only.
--   `known`  The text of the lists that it knows.
--   `life`   For how many ms a client is remembered after its report.
--   `most`   How many texts are kept, how many clients of each, and how many of these are reported.
-- Answer: one list for each other text: {text, client, ms since its report, client, ms, ...}. It has
--   the clients that reported last.
local call, life = redis.call, tonumber(ARGV[3])
local texts, clients, told = string.match(ARGV[4], '^(%d+) (%d+) (%d+)$')
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

-- Forget reports that are too old. Forget also reports from the future, which a clock made before it
-- was set back: their clients will report again.
local function forget(key)
    for _ = 1, 100 do
        local first, last = call('ZRANGE', key, 0, 0, 'WITHSCORES'), call('ZRANGE', key, -1, -1, 'WITHSCORES')
        if first[1] and tonumber(first[2]) < now - life then
            call('ZREM', key, first[1])
        elseif last[1] and tonumber(last[2]) > now then
            call('ZREM', key, last[1])
        else
            break
        end
    end
end

local function note(key, member, most)
    forget(key)
    call('ZADD', key, string.format('%.0f', now), member)
    while call('ZRANK', key, member) >= tonumber(most) do
        call('ZPOPMIN', key)
    end
    call('PEXPIRE', key, ARGV[3])
end

if ARGV[1] ~= '' then
    note(KEYS[1], ARGV[2], texts)
    note(KEYS[2] .. ':' .. ARGV[2], ARGV[1], clients)
    call('SET', KEYS[3], ARGV[5], 'PX', ARGV[6])
end

local answer = {}
for _, text in ipairs(call('ZRANGE', KEYS[1], 0, -1)) do
    if text ~= ARGV[2] then
        local other = {text}
        local said = call('ZRANGE', KEYS[2] .. ':' .. text, -tonumber(told), -1, 'WITHSCORES')
        for i = 1, #said, 2 do
            local age = now - tonumber(said[i + 1])
            if age <= life then
                other[#other + 1] = said[i]
                other[#other + 1] = math.max(age, 0)
            end
        end
        answer[#answer + 1] = other
    end
end
return answer
