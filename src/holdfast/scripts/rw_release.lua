-- rw_release: what release.lua is for an exclusive lock. Comes after rw_common.lua.
--
-- KEYS  name fence queue waiters readers rfence
-- ARGV  token K
-- Answer: 1 if the token held this node (or the writer that it was before a downgrade did), else 0
local mine = 0
for _, it in ipairs(isReader(token) and {token, twin(token)} or {token}) do
    if holds(it) then
        giveUp(it)
        mine = 1
    end
    leave(it)
end
promote(0)
return mine
