local error, tostring = error, tostring

local functions = {
    set_escape_uri = ngx.escape_uri,
    set_unescape_uri = ngx.unescape_uri,
    set_quote_sql_str = ngx.quote_sql_str,
}

ndk = {
    set_var = setmetatable({}, {
        __index = function(_, name)
            local change = functions[name]
            if not change then
                error('ndk.set_var: directive "' .. tostring(name)
                      .. '" not found or does not use ndk_set_var_value', 2)
            end
            return function(value)
                return change(tostring(value))
            end
        end,
        __newindex = function()
            error("not allowed", 2)
        end,
    }),
}
