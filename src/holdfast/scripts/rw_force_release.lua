-- rw_force_release: takes a read-write lock away on this node for an operator, and hands it on.
-- Comes after rw_common.lua.
--
-- KEYS: `name`, `fence`, `queue`, `waiters`, `readers`, `rfence`.
-- ARGV: `only`, `K`.
--   `only`  The token that must hold the name, or nothing is taken. Empty: take it from everybody,
--           from all readers. If nobody holds the name, it is handed on in any case: force_release
--           has just removed another program's value.
-- Answer: a token that held this node. Null if nothing was taken, as when the holder is no reader
--   and no writer of holdfast's.
--
-- It also repairs fence records that no clock allows: see force_release.lua.
local only, taken, most = token, false, (now + K) * 1000
for _, key in ipairs({fence, rfence}) do
    local known = only == '' and call('GET', key)
    if known and not ((tonumber(known) or math.huge) <= most) then call('SET', key, text(most), 'PXAT', text(now + 2 * K)) end
end
local function ours(it) return string.match(it, '^%d+:%x+:%x+:[rw]$') end
if holder then
    for _, it in ipairs(holder == 'shared' and call('ZRANGE', readers, 0, -1) or {holder}) do
        if ours(it) and (only == '' or it == only) then
            giveUp(it)
            taken = it
            redis.pcall('PUBLISH', string.sub(it, 18, 49), 'x ' .. it .. ' 0 ' .. name)    -- it must not believe in this node any longer
        end
    end
end
if taken or not holder then promote(0) end
return taken
