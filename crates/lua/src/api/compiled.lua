local ffi = require "ffi"

local raw = ngx._compiled
ngx._compiled = nil
ffi.cdef(raw.declarations)

local vm = ffi.cast("void *", raw.vm)
local reply = ffi.cast("clearway_reply *", raw.reply)
-- Where `ngx.ctx` is on the shelf, once code has asked for it; where it is to be put.
local shown = ffi.cast("const int32_t *", raw.shown)
local function fast(name)
    return ffi.cast("clearway_fast", raw[name])
end
local find_variable, find_match, adopt_ctx = fast("variable"), fast("find"), fast("adopt_ctx")
local find_value, add_to = fast("get"), fast("incr")
local number_of, number_of_variable = raw.number, raw.number_of_variable

local text, type, sub, has = ffi.string, type, string.sub, string.find
local shelf = debug.getregistry().ngx_lua_ctx_tables

local variables = getmetatable(ngx.var)
local any_variable = variables.__index

-- Variables that the VM remembers, by their names as code writes them.
local known_variables = {}

function variables.__index(self, name)
    local number = known_variables[name]
    if not number then
        number = number_of_variable(name)
        if not number then
            return any_variable(self, name)
        end
        known_variables[name] = number
    end
    local found = find_variable(vm, nil, 0, nil, 0, number, 0)
    if found == 1 then
        return text(reply.text, reply.len)
    end
    if found == 0 then
        return nil
    end
    return any_variable(self, name)
end

local properties = getmetatable(ngx)
local any_property = properties.__index

function properties.__index(self, name)
    if name == "ctx" then
        local ctx = shown[0]
        if ctx ~= 0 then
            return shelf[ctx]
        end
        local room = shown[1]
        if room ~= 0 then
            local made = {}
            if adopt_ctx(vm, nil, 0, nil, 0, 0, 0) == 1 then
                shelf[room] = made
                return made
            end
        end
    end
    return any_property(self, name)
end

local re = ngx.re
local any_match, any_find = re.match, re.find

-- Expressions by their options and texts: those that the VM remembers, which have numbers.
local numbered = {}

local function remembered(regex, options)
    if type(regex) ~= "string" or type(options) ~= "string" or not has(options, "o", 1, true) then
        return nil
    end
    local number, groups, names = number_of(regex, options)
    if not number then
        return nil
    end
    local of = numbered[options]
    if not of then
        of = {}
        numbered[options] = of
    end
    local known = { number = number, groups = groups, names = names or false }
    of[regex] = known
    return known
end

local function part(subject, places, group)
    local from = places[2 * group]
    if from < 0 then
        return false
    end
    return sub(subject, from + 1, places[2 * group + 1])
end

local function captures(subject, places, groups)
    if groups == 0 then
        return { [0] = part(subject, places, 0) }
    end
    if groups == 1 then
        return { [0] = part(subject, places, 0), part(subject, places, 1) }
    end
    if groups == 2 then
        return { [0] = part(subject, places, 0), part(subject, places, 1), part(subject, places, 2) }
    end
    local all = {
        [0] = part(subject, places, 0),
        part(subject, places, 1),
        part(subject, places, 2),
        part(subject, places, 3),
    }
    for group = 4, groups do
        all[group] = part(subject, places, group)
    end
    return all
end

function re.match(subject, regex, options, ctx, into)
    local of = numbered[options]
    local known = of and of[regex]
    if not known then
        known = remembered(regex, options)
    end
    if not known or ctx or into or type(subject) ~= "string" then
        return any_match(subject, regex, options, ctx, into)
    end
    local found = find_match(vm, subject, #subject, nil, 0, known.number, 0)
    if found == 0 then
        return nil
    end
    if found ~= 1 then
        return any_match(subject, regex, options)
    end
    local all = captures(subject, reply.places, known.groups)
    local names = known.names
    if names then
        for i = 1, #names do
            local name = names[i]
            all[name[1]] = all[name[2]]
        end
    end
    return all
end

function re.find(subject, regex, options, ctx, nth)
    local of = numbered[options]
    local known = of and of[regex]
    if not known then
        known = remembered(regex, options)
    end
    if not known or ctx or nth or type(subject) ~= "string" then
        return any_find(subject, regex, options, ctx, nth)
    end
    local found = find_match(vm, subject, #subject, nil, 0, known.number, 0)
    if found == 0 then
        return nil
    end
    local from = reply.places[0]
    if found ~= 1 or from < 0 then
        return any_find(subject, regex, options)
    end
    return from + 1, reply.places[1]
end

local _, dictionary = next(ngx.shared)
if not dictionary then
    return
end
local methods = getmetatable(dictionary)
local any_get, any_incr = methods.get, methods.incr

function methods.get(self, key)
    if type(key) == "string" and type(self) == "table" then
        local number = self[2]
        if type(number) == "number" then
            local found = find_value(vm, key, #key, nil, 0, number, 0)
            if found == 1 then
                return text(reply.text, reply.len)
            end
            if found == 2 then
                return reply.number
            end
            if found == 0 then
                return nil
            end
            if found > 2 then
                return found == 3
            end
        end
    end
    return any_get(self, key)
end

function methods.incr(self, key, amount, init, ttl)
    if type(key) == "string" and type(amount) == "number" and type(self) == "table" and ttl == nil
        and (not init or type(init) == "number") then
        local number = self[2]
        if type(number) == "number" and add_to(vm, key, #key, nil, 0, number, amount) == 1 then
            if init then
                return reply.number, nil, false
            end
            return reply.number
        end
    end
    return any_incr(self, key, amount, init, ttl)
end
