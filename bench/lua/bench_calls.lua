return {
    echo = function(...) return ... end,
    count = function(by)
        counted = (counted or 0) + (by or 1)
        return counted
    end,
    memory = function() return collectgarbage("count") end,
}
