local ffi = require "ffi"
local host, load_runtime, is_open = ffi.cast("void *", ngx._host), ngx._load_runtime, ngx._runtime_is_open
ngx._host, ngx._load_runtime, ngx._runtime_is_open = nil, nil, nil
local C, error, rawset, setmetatable, tonumber, tostring, type =
    ffi.C, error, rawset, setmetatable, tonumber, tostring, type
local yield = coroutine._yield

ffi.cdef [[
    void *malloc(size_t size);
    void free(void *ptr);
    int ngx_http_lua_ffi_task_post(void *r, void *tq, char *req, int req_len);
    int ngx_http_lua_ffi_task_finish(void *tq);
]]

-- Runtimes that this VM has asked for, by their keys; each is the process's.
local runtimes = {}

local function forget(self)
    self.finished = true
    if runtimes[self.key] == self then
        runtimes[self.key] = nil
    end
end

local function post(self, text)
    if self.finished then
        return false, "task queue is finished"
    end
    local buffer, len = nil, 0
    if text then
        len = #text
        buffer = C.malloc(len + 1)
        ffi.copy(buffer, text, len)
        ffi.cast("char *", buffer)[len] = 0
    end
    if C.ngx_http_lua_ffi_task_post(host, self.tq, buffer, len) ~= 0 then
        if not is_open(self.address) then
            -- Another VM has unloaded it.
            forget(self)
            return false, "task queue is finished"
        end
        return false, "post failed, queue full"
    end
    return yield()
end

local function unload(self)
    if not self.finished then
        C.ngx_http_lua_ffi_task_finish(self.tq)
        forget(self)
    end
end

local methods = {
    __call = post,
    -- Each name is a way to say "post".
    __index = function(self, name)
        rawset(self, name, post)
        return post
    end,
}

local function load_ffi(library, configuration, options)
    if type(library) ~= "string" then
        error("bad argument #1 to 'load_ffi' (string expected)", 2)
    end
    options = options or {}
    local owner = options.per_worker and tostring(ngx.worker.id()) or ""
    local key = library .. "&" .. (configuration or "") .. "&" .. owner
    local known = runtimes[key]
    if known and is_open(known.address) then
        return known
    end
    local address, err = load_runtime(library, configuration, owner, options.is_global == true,
        tonumber(options.max_queue) or 65536)
    if not address then
        if type(err) == "number" then
            return nil, err
        end
        error(err, 2)
    end
    -- Light threads may have loaded it meanwhile.
    known = runtimes[key]
    if known and known.address == address then
        return known
    end
    local runtime = {
        finished = false,
        key = key,
        address = address,
        tq = ffi.cast("void *", ffi.cast("intptr_t", address)),
        __unload = unload,
    }
    runtimes[key] = setmetatable(runtime, methods)
    return runtime
end

-- Beside what `pairs(ngx)` sees, which is upstream's.
local properties = getmetatable(ngx)
local any_property = properties.__index

function properties.__index(self, name)
    if name == "load_ffi" then
        return load_ffi
    end
    return any_property(self, name)
end

-- lua-resty-ffi's own file of this name starts runtimes where it is called.
package.preload.resty_ffi = function()
    return {}
end
