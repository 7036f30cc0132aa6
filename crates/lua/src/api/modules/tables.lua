-- What OpenResty's LuaJIT has beside plain LuaJIT's tables.
local error, floor, next, preload, type = error, math.floor, next, package.preload, type

local function check(name, t)
    if type(t) ~= "table" then
        local got = t == nil and "no value" or type(t)
        error("bad argument #1 to '" .. name .. "' (table expected, got " .. got .. ")", 3)
    end
end

local tables = {}

function tables.isempty(t)
    check("isempty", t)
    return next(t) == nil
end

function tables.isarray(t)
    check("isarray", t)
    for key in next, t do
        if type(key) ~= "number" or floor(key) ~= key then
            return false
        end
    end
    return true
end

function tables.nkeys(t)
    check("nkeys", t)
    local count = 0
    for _ in next, t do
        count = count + 1
    end
    return count
end

function tables.clone(t)
    check("clone", t)
    local copy = {}
    for key, value in next, t do
        copy[key] = value
    end
    return copy
end

for name, make in next, tables do
    table[name] = make
    preload["table." .. name] = function()
        return make
    end
end
