-- A cache of one VM: nodes are numbers, in a ring whose head is 0; behind it the one that was used last. Free
-- ones are a list of their own.
local floor, now, setmetatable, error, next = math.floor, ngx.now, setmetatable, error, next
local cache = { _VERSION = "0.15" }
local methods = { __index = cache }

local function empty(self)
    local after, before = { [0] = 0 }, { [0] = 0 }
    for node = 1, self.most do
        after[node] = node + 1
        before[node] = 0
    end
    after[self.most] = 0
    self.after, self.before, self.free, self.many = after, before, 1, 0
    self.nodes, self.keys, self.values, self.ends, self.flags = {}, {}, {}, {}, {}
end

function cache.new(most)
    if most < 1 then
        return nil, "size too small"
    end
    local self = setmetatable({ most = floor(most) }, methods)
    empty(self)
    return self
end

local function take_out(self, node)
    local after, before = self.after, self.before
    local front, back = before[node], after[node]
    after[front], before[back] = back, front
end

local function put_first(self, node)
    local after, before = self.after, self.before
    local first = after[0]
    after[node], before[node] = first, 0
    before[first], after[0] = node, node
end

function cache:count()
    return self.many
end

function cache:capacity()
    return self.most
end

function cache:get(key)
    local node = self.nodes[key]
    if not node then
        return nil
    end
    take_out(self, node)
    put_first(self, node)
    local value, over = self.values[node], self.ends[node]
    if over and over < now() then
        return nil, value, self.flags[node]
    end
    return value, nil, self.flags[node]
end

function cache:delete(key)
    local node = self.nodes[key]
    if not node then
        return false
    end
    take_out(self, node)
    self.after[node], self.free = self.free, node
    self.nodes[key], self.keys[node], self.values[node] = nil, nil, nil
    self.many = self.many - 1
    return true
end

function cache:set(key, value, ttl, flags)
    if key == nil then
        error("table index is nil", 2)
    end
    local node = self.nodes[key]
    if node then
        take_out(self, node)
    elseif self.free ~= 0 then
        node = self.free
        self.free = self.after[node]
        self.many = self.many + 1
    else
        node = self.before[0]
        take_out(self, node)
        self.nodes[self.keys[node]] = nil
    end
    put_first(self, node)
    self.nodes[key], self.keys[node], self.values[node] = node, key, value
    self.ends[node] = ttl and now() + ttl or false
    self.flags[node] = flags and flags % 0x100000000 or 0
end

function cache:get_keys(most, keys)
    if not most or most == 0 then
        most = self.many
    end
    keys = keys or {}
    local count, node = 0, self.after[0]
    while node ~= 0 and count < most do
        count = count + 1
        keys[count] = self.keys[node]
        node = self.after[node]
    end
    keys[count + 1] = nil
    return keys
end

function cache:flush_all()
    if next(self.nodes) ~= nil then
        empty(self)
    end
end

return cache
