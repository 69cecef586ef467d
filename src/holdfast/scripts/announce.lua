-- announce: what a leader says of itself, or somebody who has read it says again: the highest (term, version) stays.
--
-- KEYS  leader watchers
-- ARGV  term version ttl keep value
--   term     the fence of the leader's lease
--   version  of what it says, from 1 on within its term; that of a resignation is the highest there can be
--   ttl      for how long it is in office, in ms, if it does not say so again; 0: it is not any more
--   keep     for how long after that it is remembered, in ms: more than any ttl, so that nothing older outlasts it elsewhere
--   value    what it says
-- Answer: 1 if that is what stands here now, 0 if something higher does
--
-- leader    term version end value; end: until when it is in office, in ms by this node's clock
-- watchers  a sorted set of tokens, by the ms at which each watch ends
local call, leader, watchers = redis.call, KEYS[1], KEYS[2]
local term, version, ttl, keep = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local had, its, ends = string.match(call('GET', leader) or '', '^(%d+) (%d+) (%d+) ')
had, its, ends = tonumber(had) or 0, tonumber(its) or 0, tonumber(ends) or 0

if had > term or had == term and its > version then return 0 end
local same = had == term and its == version
-- The same again: the end is never moved back. (Nor is it past now + keep: the clock may have gone back since.)
ends = same and math.min(math.max(ends, now + ttl), now + keep) or now + ttl
local left = string.format('%.0f', math.max(ends - now, 0) + keep)
call('SET', leader, string.format('%.0f %.0f %.0f ', term, version, ends) .. ARGV[5], 'PX', left)
if same then return 1 end

local line = call('ZRANGE', watchers, 0, -1, 'WITHSCORES')
for i = 1, #line, 2 do
    local token = line[i]
    -- An error (ACL) is no reason not to announce; a watcher whom nobody listens for is gone.
    local told = tonumber(line[i + 1]) > now
        and redis.pcall('PUBLISH', string.sub(token, 18, 49), 'n ' .. token .. ' 0 ' .. leader)
    if not told or told == 0 then call('ZREM', watchers, token) end
end
return 1
