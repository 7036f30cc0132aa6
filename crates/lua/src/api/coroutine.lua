local mark, find_status, may_wait, note = ngx._mark, ngx._thread_status, ngx._may_wait, ngx._note_wrapped
ngx._mark, ngx._thread_status, ngx._may_wait, ngx._note_wrapped = nil, nil, nil, nil

local coroutine, error, type = coroutine, error, type
local create, resume, status, yield = coroutine.create, coroutine.resume, coroutine.status, coroutine.yield
local running, traceback = coroutine.running, debug.traceback

-- Threads that wait for the server, or for one below them that does.
local waiting = setmetatable({}, { __mode = "k" })
-- Threads above those.
local above = setmetatable({}, { __mode = "k" })

coroutine._create, coroutine._resume, coroutine._status = create, resume, status
coroutine._wrap = coroutine.wrap

local wrap = coroutine.wrap

local function status_of(thread)
    local known = find_status(thread)
    if above[thread] and (not known or known == "running") then
        return "normal"
    end
    if waiting[thread] then
        return "running"
    end
    return known or status(thread)
end

-- Yields to the server, across the coroutines that the user has made.
function coroutine._yield()
    return yield(mark)
end

local pass

local function waited(thread, self, ...)
    waiting[thread], above[self] = nil, nil
    return pass(thread, resume(thread, ...))
end

-- Hands on what a thread below waits for, as often as it does.
function pass(thread, ok, ...)
    if ok and (...) == mark then
        local self = running()
        waiting[thread], above[self] = true, true
        return waited(thread, self, yield(mark))
    end
    return ok, ...
end

-- Where an error was raised is told of each thread that it goes through.
local function unwrap(thread, ok, ...)
    if not ok then
        if type((...)) == "string" then
            note((...), traceback(thread))
        end
        error((...), 0)
    end
    return ...
end

function coroutine.resume(thread, ...)
    if type(thread) == "thread" then
        local now = status_of(thread)
        if now ~= "suspended" then
            return false, "cannot resume " .. now .. " coroutine"
        end
    end
    return pass(thread, resume(thread, ...))
end

function coroutine.status(thread)
    if type(thread) ~= "thread" then
        error("bad argument #1 to 'status' (coroutine expected)", 2)
    end
    return status_of(thread)
end

function coroutine.wrap(f)
    if not may_wait() then
        return wrap(f)
    end
    local thread = create(f)
    return function(...)
        local now = status_of(thread)
        if now ~= "suspended" then
            error("cannot resume " .. now .. " coroutine", 2)
        end
        return unwrap(thread, pass(thread, resume(thread, ...)))
    end
end

-- Under the names that upstream has them by as well.
coroutine.__create, coroutine.__resume = coroutine.create, coroutine.resume
coroutine.__status, coroutine.__yield = coroutine.status, coroutine.yield
coroutine.__wrap = coroutine.wrap
-- Upstream's has no such function.
coroutine.isyieldable = nil
