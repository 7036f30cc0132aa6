local change = ngx._ndk
ngx._ndk = nil

local error, tostring = error, tostring

ndk = {
    set_var = setmetatable({}, {
        __index = function(_, name)
            if change(tostring(name), "") == nil then
                error('ndk.set_var: directive "' .. tostring(name)
                      .. '" not found or does not use ndk_set_var_value', 2)
            end
            return function(value)
                local changed = change(name, tostring(value))
                if not changed then
                    error("calling directive " .. name .. " failed with code -1", 2)
                end
                return changed
            end
        end,
        __newindex = function()
            error("not allowed", 2)
        end,
    }),
}
