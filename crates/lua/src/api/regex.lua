local re = ngx.re
local match_at, sub_text, compile = re._match_at, re._sub, re._compile
re._match_at, re._sub, re._compile = nil, nil, nil

local concat, sub, tostring, type = table.concat, string.sub, tostring, type

function re.gmatch(subject, regex, options)
    subject = tostring(subject)
    local is_right, err = compile(regex, options)
    if not is_right then
        return nil, err
    end
    local pos = 1
    return function()
        if not pos then
            return nil
        end
        local captures, _, _, next_pos = match_at(subject, regex, options, pos)
        if captures then
            pos = next_pos
            return captures
        end
        pos = nil
        if next_pos then
            return nil, next_pos
        end
        return nil
    end
end

local function by_function(subject, regex, replace, options, is_global)
    subject = tostring(subject)
    local parts, len, count, copied, pos = {}, 0, 0, 1, 1
    repeat
        local captures, from, to, next_pos = match_at(subject, regex, options, pos)
        if not captures then
            if next_pos then
                return nil, nil, next_pos
            end
            break
        end
        count = count + 1
        parts[len + 1] = sub(subject, copied, from - 1)
        parts[len + 2] = tostring(replace(captures))
        len = len + 2
        copied, pos = to + 1, next_pos
    until not is_global or pos > #subject + 1
    if count == 0 then
        return subject, 0
    end
    parts[len + 1] = sub(subject, copied)
    return concat(parts), count
end

function re.sub(subject, regex, replace, options)
    if type(replace) == "function" then
        return by_function(subject, regex, replace, options, false)
    end
    return sub_text(subject, regex, replace, options, false)
end

function re.gsub(subject, regex, replace, options)
    if type(replace) == "function" then
        return by_function(subject, regex, replace, options, true)
    end
    return sub_text(subject, regex, replace, options, true)
end
