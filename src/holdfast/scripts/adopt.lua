-- adopt: one token takes the place of another. A lease that was handed over gets its new owner by
-- that, and an adoption that came to nothing is taken back.
--
-- KEYS: `name`, `fence`.
-- ARGV: `from`, `to`, `ttl`, `P`, `K`.
--   `from`  The token whose place is taken.
--   `to`    The token that takes it. If it has the name already, this is said again.
--   `ttl`   The length of the lease in ms, which is never shortened. 0: it is not prolonged either.
--   `P`     The fence of the lease, which stays the same.
--   `K`     As in request.lua.
-- Answer: P, or a denial as in request.lua, with a record of 0.
--
-- A record above P shows that the node has granted the name since, so that somebody else may have
-- held it.
local call, name, fence = redis.call, KEYS[1], KEYS[2]
local from, to, P, K = ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local holder, F, left = call('GET', name), tonumber(call('GET', fence) or 0), call('PTTL', name)
if F > P or holder ~= from and holder ~= to then
    return {0, left, -1, holder and string.sub(holder, 1, 64), 0}
end
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function text(number) return string.format('%.0f', number) end    -- (why: see request.lua)
left = math.max(left, tonumber(ARGV[3]), 1)
call('SET', name, to, 'PX', text(left))
-- The record lasts as long as the lease: see request.lua.
if F < P then
    call('SET', fence, text(P), 'PXAT', text(math.max(math.floor(P / 1000) + K, now + left)))
elseif call('PTTL', fence) < left then
    call('PEXPIRE', fence, text(math.min(left + K, 2 * K)))
end
return P
