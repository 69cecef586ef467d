-- rw_release, where the case is not the usual one. Comes after rw_common.lua.
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
