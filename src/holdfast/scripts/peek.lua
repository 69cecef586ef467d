-- peek: looks at a value that was computed, and at how fresh it is; or at a note that says that there is none any more.
--
-- KEYS  {name}:cache
-- Answer: {for how many more ms the value is fresh, by this node's clock; 0 or less: for how long it has not been, the fence of whoever
--   computed it, for how many ms it was to be fresh at first, the value}; {0, fence} of a note; null if there is neither
--
-- The key holds fence:stale:ttl and the value. `stale`: for how many ms it may be shown once it is not fresh any more. A note is fence: and
-- nothing else: no value of this fence, or of a lower one, counts any more, on whichever node it is.
local kept = redis.call('GET', KEYS[1]) or ''
local fence, stale, ttl, at = string.match(kept, '^(%d+):(%d+):(%d+) ()')
if fence then
    return {redis.call('PTTL', KEYS[1]) - stale, tonumber(fence), tonumber(ttl), string.sub(kept, at)}
end
fence = string.match(kept, '^(%d+):$')
return fence and {0, tonumber(fence)}
