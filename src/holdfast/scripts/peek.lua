-- peek: reads a computed value and its freshness, or a note that the value was dropped.
--
-- KEYS: `{name}:cache`.
-- Answer: {ms, fence, ttl, value} of a value, {0, fence} of a note, null if there is neither.
--   `ms`     For how many more ms the value is fresh, by this node's clock. <= 0: for how long it
--            has not been.
--   `fence`  The fence of the lease under which the value was computed.
--   `ttl`    For how many ms it was to be fresh at first.
--
-- The key holds "fence:stale:ttl value". `stale` is for how many ms the value may be shown after it
-- is no longer fresh. A note is "fence:" alone. It invalidates every value of this fence or of a
-- lower one, on any node.
local kept = redis.call('GET', KEYS[1]) or ''
local fence, stale, ttl, at = string.match(kept, '^(%d+):(%d+):(%d+) ()')
if fence then
    return {redis.call('PTTL', KEYS[1]) - stale, tonumber(fence), tonumber(ttl), string.sub(kept, at)}
end
fence = string.match(kept, '^(%d+):$')
return fence and {0, tonumber(fence)}
