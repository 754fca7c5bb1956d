--- heard(fn): what fn() writes to Lua's stderr. Its errors are raised again.
return function(fn)
  local list, stderr = {}, io.stderr
  rawset(io, "stderr", { write = function(_, ...)
    list[#list + 1] = table.concat { ... }
  end })
  local ok, e = pcall(fn)
  rawset(io, "stderr", stderr)
  if not ok then
    error(e, 0)
  end
  return table.concat(list)
end
