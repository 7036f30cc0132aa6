local get_phase, log, warn = ngx.get_phase, ngx.log, ngx.WARN
local gsub, rawset, tostring, traceback = string.gsub, rawset, tostring, debug.traceback

setmetatable(_G, {
    __newindex = function(globals, name, value)
        rawset(globals, name, value)
        local phase = get_phase()
        if phase == "init" or phase == "init_worker" then
            return
        end
        log(warn, "writing a global Lua variable ('", tostring(name), "') which may lead to race conditions ",
            "between concurrent requests, so prefer the use of 'local' variables",
            (gsub(traceback("", 2), "in function <[^>\n]*:1>", "in main chunk")))
    end,
})
