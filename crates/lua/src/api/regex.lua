local re = ngx.re
local match_at, sub_text, compile, opt = re._match_at, re._sub, re._compile, re._opt
re._match_at, re._sub, re._compile, re._opt = nil, nil, nil, nil

local concat, error, sub, tostring, type = table.concat, error, string.sub, tostring, type

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

-- The pieces between matches, each followed by the first group of the match behind it. Pieces that are empty
-- at the end are left out, unless there is a limit.
local function split(subject, regex, options, ctx, most, pieces)
    if pieces ~= nil and type(pieces) ~= "table" then
        error("res is not a table", 2)
    end
    subject, most, pieces = tostring(subject), most or 0, pieces or {}
    local begin, len, count, fields = ctx and ctx.pos or 1, #subject, 0, 1
    if begin > len then
        pieces[1] = nil
        return pieces
    end
    local pos = begin
    while begin <= len and (most <= 0 or fields < most) do
        local captures, from, to, next_pos = match_at(subject, regex, options, pos)
        if not captures then
            if next_pos then
                return nil, next_pos
            end
            break
        end
        pos = next_pos
        -- Nothing has matched where a piece begins: that is no end of one.
        if to >= from or from > begin then
            count, fields = count + 1, fields + 1
            pieces[count] = sub(subject, begin, from - 1)
            if captures[1] then
                count = count + 1
                pieces[count] = captures[1]
            end
            begin = to + 1
        end
    end
    if most > 0 or begin <= len then
        count = count + 1
        pieces[count] = sub(subject, begin)
    else
        while count > 0 and pieces[count] == "" do
            pieces[count] = nil
            count = count - 1
        end
    end
    pieces[count + 1] = nil
    return pieces
end

package.preload["ngx.re"] = function()
    return { opt = opt, split = split, version = "0.1.33" }
end
