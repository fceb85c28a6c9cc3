-- Take items from a bucket; domain/gcra.py does the same sum in Python, and says why it is right.
--
-- KEYS[1]  the bucket: "at owed", microseconds and millionths of an item; gone when nothing is owed
-- ARGV     items per second, burst, cost
-- returns  allowed (0 or 1), owed afterwards, by how much it was too much
--
-- The clock is the server's, so that processes whose clocks differ share one bucket. Every number stays below 2^53.
local ITEM = 1000000
local per_second, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local at, owed = now, 0
local kept = redis.call('GET', KEYS[1])
local kept_at, kept_owed = string.match(kept or '', '^(%d+) (%d+)$')
if kept_at then
    at, owed = tonumber(kept_at), tonumber(kept_owed)
    local elapsed = math.max(0, now - at)  -- a clock set back pays nothing off
    at = at + elapsed
    if elapsed >= math.ceil(owed / per_second) then  -- compared first: the product below could be too large
        owed = 0
    else
        owed = owed - elapsed * per_second
    end
end

local too_much = owed + (math.min(cost, burst) - burst) * ITEM
local allowed = cost == 0 or too_much <= 0
if allowed and cost > 0 then
    owed = owed + cost * ITEM
    -- A second longer than it is needed. %.0f, because tostring would round to 14 digits.
    local keep = math.ceil(owed / per_second / 1000) + 1000
    redis.call('SET', KEYS[1], string.format('%.0f %.0f', at, owed), 'PX', string.format('%.0f', keep))
end
return {allowed and 1 or 0, owed, too_much}
