local get_phase, written = ngx.get_phase, ngx._global_written
ngx._global_written = nil
local gsub, rawset, tostring, traceback = string.gsub, rawset, tostring, debug.traceback

setmetatable(_G, {
    __newindex = function(globals, name, value)
        rawset(globals, name, value)
        local phase = get_phase()
        if phase == "init" or phase == "init_worker" or phase == "worker_thread" then
            return
        end
        written(tostring(name), (gsub(traceback("", 2), "in function <[^>\n]*:1>", "in main chunk")))
    end,
})
