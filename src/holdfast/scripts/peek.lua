-- peek: looks at a value that was computed, and at how fresh it is.
--
-- KEYS  {name}:cache
-- Answer: {for how many more ms it is fresh, by this node's clock; 0 or less: for how long it has not been, the value};  or null
--
-- The key holds the fence of whoever computed it, for how many ms it may still be shown once it is stale, and the value.
local kept = redis.call('GET', KEYS[1])
local stale, at = string.match(kept or '', '^%d+ (%d+) ()')
return stale and {redis.call('PTTL', KEYS[1]) - stale, string.sub(kept, at)}
