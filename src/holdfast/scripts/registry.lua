-- registry: notes that a client lives, who it is and what its settings are. It reports the clients
-- that have other settings.
--
-- KEYS: `clients`, `owner`, `lists`, `config`.
--   `clients`  The beginning of a key. `clients:` is a sorted set of notes, one for each set of
--              settings that some client has. Its scores are the ms at which a client last reported
--              it. `clients:NOTE` is a sorted set of the clients that have them. Its scores are the
--              ms at which each client last reported.
--   `owner`    The key that holds the owner of this client, for `lasts` ms.
--   `lists`, `config`  Where clients of 0.1.0 before this script look, and note what they know.
-- ARGV: `me`, `note`, `was`, `life`, `most`, `lasts`.
--   `me`     The client: its owner, a blank, and 8 digits. Empty: read only.
--   `note`   Its settings: `v2 max_ttl nodes run_ids failovers lists version`.
--   `was`    What it noted here before.
--   `life`   For how many ms a client is remembered after its report.
--   `most`   How many notes are kept, how many clients of each, and how many of these are reported.
-- Answer: one list for each other note: {note, client, ms since its report, client, ms, ...}. It has
--   the clients that reported last.
local call, life = redis.call, tonumber(ARGV[4])
local notes, each, told = string.match(ARGV[5], '^(%d+) (%d+) (%d+)$')
local me, mine, was, index = ARGV[1], ARGV[2], ARGV[3], KEYS[1] .. ':'
local limits, bounds, known = string.match(mine, '^v2 (%d+ %d+ %S*) (%S*) (%S+)')
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
            return
        end
    end
end

local function add(key, member, most)
    forget(key)
    call('ZADD', key, string.format('%.0f', now), member)
    while call('ZRANK', key, member) >= tonumber(most) do
        call('ZPOPMIN', key)
    end
    call('PEXPIRE', key, ARGV[4])
end

local answer = {}
local function report(key, own)
    for _, text in ipairs(call('ZRANGE', key, 0, -1)) do
        if text ~= own then
            local other = {text}
            local said = call('ZRANGE', index .. text, -told, -1, 'WITHSCORES')
            for i = 1, #said, 2 do
                local age = now - tonumber(said[i + 1])
                if age <= life then
                    other[#other + 1] = said[i]
                    other[#other + 1] = math.max(age, 0)
                end
            end
            if #other > 1 then answer[#answer + 1] = other end
        end
    end
end

local old = call('GET', KEYS[4])
if me ~= '' then
    if was ~= mine and call('ZREM', index .. was, me) == 1 and call('EXISTS', index .. was) == 0 then
        call('ZREM', index, was)
    end
    add(index, mine, notes)
    add(index .. mine, me, each)
    call('SET', KEYS[2], string.match(me, '^%S+'), 'PX', ARGV[6])
    add(KEYS[3], known, notes)
    add(index .. known, me, each)
    -- The last comma says that it stands in a note, too.
    call('SET', KEYS[4], 'v1 ' .. limits .. ',' .. (bounds ~= '' and ' ' .. bounds or ''), 'PX', 3600000)
end
report(index, mine)
report(KEYS[3], known)
if old then answer[#answer + 1] = {old, '', 0} end
return answer
