-- permits: agrees on how many permits a semaphore has. Whoever is first decides, until nobody has said so for a while.
--
-- KEYS  {name}:permits
-- ARGV  permits expiry
--   expiry: for how many milliseconds this is good
-- Answer: how many permits the semaphore has, as far as this node knows
local said = redis.call('GET', KEYS[1]) or ARGV[1]
if said == ARGV[1] then redis.call('SET', KEYS[1], said, 'PX', ARGV[2]) end
return said
