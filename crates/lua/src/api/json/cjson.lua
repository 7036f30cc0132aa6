local native = ngx._json
ngx._json = nil

local error, pcall, select, tonumber, tostring, type = error, pcall, select, tonumber, tostring, type
local encode, decode, null = native.encode, native.decode, ngx.null
-- Tables with the first are lists whatever is in them, those with the second where nothing is.
local array_mt, empty_array_mt = { __clearway_list = true }, { __clearway_empty_list = true }

local function flag(value, known, name)
    if value == nil then
        return known
    end
    if value == "on" then
        return true
    elseif value == "off" then
        return false
    elseif type(value) == "boolean" then
        return value
    end
    error("bad argument #1 to '" .. name .. "' (invalid option '" .. tostring(value) .. "')", 3)
end

local function number(value, known, least, most, name)
    if value == nil then
        return known
    end
    value = tonumber(value)
    if not value or value < least or value > most then
        error("bad argument #1 to '" .. name .. "' (expected integer between " .. least .. " and "
            .. ("%d"):format(most) .. ")", 3)
    end
    return value
end

local MOST = 2147483647

local function make()
    local digits, encode_depth, decode_depth = 14, 1000, 1000
    local ratio, safe, sparse_is_object, invalid, reads_invalid = 2, 10, false, 0, true
    local empty_is_object, escapes_slash, marks_lists, keeps_buffer = true, true, false, true
    local cjson = {
        _NAME = "cjson", _VERSION = "2.1.0", null = null, empty_array = native.empty_list,
        array_mt = array_mt, empty_array_mt = empty_array_mt, new = make,
    }

    function cjson.encode(...)
        if select("#", ...) ~= 1 then
            error("bad argument #1 to 'encode' (expected 1 argument)", 2)
        end
        return encode((...), digits, encode_depth, ratio, safe, sparse_is_object, invalid, empty_is_object,
            escapes_slash)
    end

    function cjson.decode(...)
        local text = ...
        if select("#", ...) ~= 1 then
            error("bad argument #1 to 'decode' (expected 1 argument)", 2)
        end
        if type(text) ~= "string" and type(text) ~= "number" then
            error("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")", 2)
        end
        return decode(text, decode_depth, reads_invalid, marks_lists and array_mt or nil)
    end

    function cjson.encode_number_precision(value)
        digits = number(value, digits, 1, 17, "encode_number_precision")
        return digits
    end

    function cjson.encode_max_depth(value)
        encode_depth = number(value, encode_depth, 1, MOST, "encode_max_depth")
        return encode_depth
    end

    function cjson.decode_max_depth(value)
        decode_depth = number(value, decode_depth, 1, MOST, "decode_max_depth")
        return decode_depth
    end

    function cjson.encode_sparse_array(convert, wanted_ratio, wanted_safe)
        sparse_is_object = flag(convert, sparse_is_object, "encode_sparse_array")
        ratio = number(wanted_ratio, ratio, 0, MOST, "encode_sparse_array")
        safe = number(wanted_safe, safe, 0, MOST, "encode_sparse_array")
        return sparse_is_object, ratio, safe
    end

    function cjson.encode_invalid_numbers(value)
        if value == "null" then
            invalid = 2
        elseif value ~= nil then
            invalid = flag(value, false, "encode_invalid_numbers") and 1 or 0
        end
        if invalid == 2 then
            return "null"
        end
        return invalid == 1
    end

    function cjson.decode_invalid_numbers(value)
        reads_invalid = flag(value, reads_invalid, "decode_invalid_numbers")
        return reads_invalid
    end

    function cjson.encode_keep_buffer(value)
        keeps_buffer = flag(value, keeps_buffer, "encode_keep_buffer")
        return keeps_buffer
    end

    function cjson.encode_empty_table_as_object(value)
        empty_is_object = flag(value, empty_is_object, "encode_empty_table_as_object")
        return empty_is_object
    end

    function cjson.decode_array_with_array_mt(value)
        marks_lists = flag(value, marks_lists, "decode_array_with_array_mt")
        return marks_lists
    end

    function cjson.encode_escape_forward_slash(value)
        escapes_slash = flag(value, escapes_slash, "encode_escape_forward_slash")
        return escapes_slash
    end

    return cjson
end

local function answer(ok, ...)
    if ok then
        return ...
    end
    return nil, (...)
end

local function make_safe()
    local cjson = make()
    local strict_encode, strict_decode = cjson.encode, cjson.decode
    cjson._NAME = "cjson.safe"
    cjson.new = make_safe

    function cjson.encode(...)
        return answer(pcall(strict_encode, ...))
    end

    function cjson.decode(...)
        return answer(pcall(strict_decode, ...))
    end

    return cjson
end

local modules = { cjson = make, ["cjson.safe"] = make_safe }
table.insert(package.loaders, function(name)
    return modules[name]
end)
