local begin, is_waiting, wake = ngx._semaphore_wait, ngx._semaphore_waits, ngx._semaphore_wake
ngx._semaphore_wait, ngx._semaphore_waits, ngx._semaphore_wake = nil, nil, nil

local error, getmetatable, setmetatable, tonumber = error, getmetatable, setmetatable, tonumber
local semaphore = { version = "0.1.33" }
local methods = { __index = semaphore }

local function check(self)
    if getmetatable(self) ~= methods then
        error("not a semaphore instance", 3)
    end
end

-- Forgets waiters at the front of the queue that have given up.
local function skip(self)
    local first, last = self.first, self.last
    while first <= last and not is_waiting(self[first]) do
        self[first] = nil
        first = first + 1
    end
    self.first = first
    return first <= last
end

function semaphore.new(n)
    n = tonumber(n) or 0
    if n < 0 then
        error("no negative number", 2)
    end
    return setmetatable({ left = n, first = 1, last = 0 }, methods)
end

function semaphore:wait(seconds)
    check(self)
    local ms = tonumber(seconds) * 1000
    if ms < 0 then
        error("no negative number", 2)
    end
    if self.left > 0 and not skip(self) then
        self.left = self.left - 1
        return true
    end
    if ms == 0 then
        return nil, "timeout"
    end
    local last = self.last + 1
    self.last = last
    return begin(ms, self, last)
end

function semaphore:post(n)
    check(self)
    n = n and tonumber(n) or 1
    if n < 1 then
        error("positive number required", 2)
    end
    while n > 0 and skip(self) do
        local first = self.first
        local number = self[first]
        self[first] = nil
        self.first = first + 1
        if wake(number) then
            n = n - 1
        end
    end
    self.left = self.left + n
    return true
end

function semaphore:count()
    check(self)
    local waiting = 0
    for at = self.first, self.last do
        if is_waiting(self[at]) then
            waiting = waiting + 1
        end
    end
    return self.left - waiting
end

package.preload["ngx.semaphore"] = function()
    return semaphore
end
