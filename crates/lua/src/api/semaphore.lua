local begin, is_waiting, wake = ngx._semaphore_wait, ngx._semaphore_waits, ngx._semaphore_wake
local refused, taken, is_lost = ngx._semaphore_refused, ngx._semaphore_taken, ngx._semaphore_lost
ngx._semaphore_wait, ngx._semaphore_waits, ngx._semaphore_wake = nil, nil, nil
ngx._semaphore_refused, ngx._semaphore_taken, ngx._semaphore_lost = nil, nil, nil

local error, getmetatable, next, setmetatable = error, getmetatable, next, setmetatable
local tonumber = tonumber
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

-- Wakes threads while there is something for them. What they get is theirs when they go on; until then the
-- semaphore knows of it, as one may be killed before.
local function give(self)
    while self.left > 0 and skip(self) do
        local first = self.first
        local number = self[first]
        self[first] = nil
        self.first = first + 1
        if wake(number) then
            self.left = self.left - 1
            self.given[number] = true
        end
    end
end

local function take_back(self)
    local given, has_lost = self.given, false
    for number in next, given do
        if is_lost(number) then
            given[number] = nil
            self.left = self.left + 1
            has_lost = true
        end
    end
    if has_lost then
        give(self)
    end
end

local function go_on(self, ok, said)
    if not ok then
        return nil, said
    end
    self.given[said] = nil
    taken(said)
    return true
end

function semaphore.new(n)
    n = tonumber(n) or 0
    if n < 0 then
        error("no negative number", 2)
    end
    return setmetatable({ left = n, first = 1, last = 0, given = {} }, methods)
end

function semaphore:wait(seconds)
    check(self)
    local ms = tonumber(seconds) * 1000
    if ms < 0 then
        error("no negative number", 2)
    end
    local why = refused()
    if why then
        return nil, why
    end
    take_back(self)
    -- One that does not want to wait comes behind those that were woken and have not gone on.
    if self.left > 0 and not skip(self) and (ms > 0 or next(self.given) == nil) then
        self.left = self.left - 1
        return true
    end
    if ms == 0 then
        return nil, "timeout"
    end
    local last = self.last + 1
    self.last = last
    return go_on(self, begin(ms, self, last))
end

function semaphore:post(n)
    check(self)
    n = n and tonumber(n) or 1
    if n < 1 then
        error("positive number required", 2)
    end
    take_back(self)
    self.left = self.left + n
    give(self)
    return true
end

function semaphore:count()
    check(self)
    take_back(self)
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
