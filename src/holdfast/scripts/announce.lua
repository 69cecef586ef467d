-- announce: notes what a leader says of itself. The highest (term, version) stays.
--
-- The leader sends it. A client that has read the statement elsewhere may repeat it here.
--
-- KEYS: `leader`, `watchers`.
-- ARGV: `term`, `version`, `ttl`, `keep`, `value`.
--   `term`     The fence of the leader's lease.
--   `version`  Counts what the leader says, from 1 in each term. A resignation has the highest
--              version possible.
--   `ttl`      The leader's time in office in ms, unless it repeats this. 0: it has resigned.
--   `keep`     How long after that the node remembers it, in ms. It is more than any ttl, so that
--              nothing older outlasts it on another node.
--   `value`    What the leader says.
-- Answer: 1 if this statement stands here now, 0 if a higher one does.
--
-- `leader` holds "term version end value". `end` is the end of its time in office, in ms by this
-- node's clock.
-- `watchers` is a sorted set of tokens. Scores are the ends of the watches, in ms.
local call, leader, watchers = redis.call, KEYS[1], KEYS[2]
local term, version, ttl, keep = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local had, its, ends = string.match(call('GET', leader) or '', '^(%d+) (%d+) (%d+) ')
had, its, ends = tonumber(had) or 0, tonumber(its) or 0, tonumber(ends) or 0

if had > term or had == term and its > version then return 0 end
local same = had == term and its == version
-- The same statement again never moves the end back. The end stays below now + keep, because the
-- clock may have gone back since.
ends = same and math.min(math.max(ends, now + ttl), now + keep) or now + ttl
local left = string.format('%.0f', math.max(ends - now, 0) + keep)
call('SET', leader, string.format('%.0f %.0f %.0f ', term, version, ends) .. ARGV[5], 'PX', left)
if same then return 1 end

local line = call('ZRANGE', watchers, 0, -1, 'WITHSCORES')
for i = 1, #line, 2 do
    local token = line[i]
    -- An error (ACL) does not stop the announcement. A watcher without a listener is gone.
    local told = tonumber(line[i + 1]) > now
        and redis.pcall('PUBLISH', string.sub(token, 18, 49), 'n ' .. token .. ' 0 ' .. leader)
    if not told or told == 0 then call('ZREM', watchers, token) end
end
return 1
