--- Undeclared globals, found when they are used (`--strict`).
---
--- A global is declared by assigning to it in a main chunk or from C, or by
--- rawset. Reading any other one, or making one inside a function, is reported
--- once for each name and place, or is an error.
local errors = require "tfdist.base.errors"

local getinfo = debug.getinfo

--- Watch the global table from now on.
---@param mode "warn"|"error"
return function(mode)
  local declared, reported = {}, {}

  local function complain(what, name)
    local info = getinfo(3, "Sl")
    local where = info and ("%s:%d"):format(info.short_src, info.currentline)
    local text = ("%s undeclared global \"%s\""):format(what, tostring(name))
    if mode == "error" then
      errors.raise("RuntimeError", text, "declare it local, or assign to it in "
        .. "the main chunk first", where)
    end
    local key = text .. (where or "")
    if not reported[key] then
      reported[key] = true
      io.stderr:write(("%s: warning: %s\n"):format(where or "?", text))
    end
  end

  local mt = getmetatable(_G) or {}

  function mt.__newindex(t, name, value)
    local info = getinfo(2, "S")
    if not declared[name] and info and info.what == "Lua" then
      complain("assignment to", name)
    end
    declared[name] = true
    rawset(t, name, value)
  end

  function mt.__index(_, name)
    local info = getinfo(2, "S")
    if not declared[name] and info and info.what ~= "C" then
      complain("reading", name)
    end
    return nil
  end

  setmetatable(_G, mt)
end
