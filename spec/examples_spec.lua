--- Every example prints what its header promises, on both hosts.
---
--- The header of a Lua example has lines
---     --- prints (with ARGUMENTS):        or   --- prints:
---     ---   a line of the output, "…" for what may differ
--- up to a line that is indented less. A line "…" alone stands for any number
--- of lines.
local process = require "spec.support.process"

local DEADLINE = 1200 -- seconds; only a hung example takes as long

local function escape(text)
  return (text:gsub("%p", "%%%0"))
end

-- { arguments, lines } of an example's header.
local function promise(path)
  local lines, arguments
  for line in io.lines(path) do
    if lines == nil then
      local with = line:match "^%-%-%- prints %(with (.*)%):$"
      if with or line == "--- prints:" then
        lines, arguments = {}, with or ""
      end
    elseif line:find "^%-%-%-   " then
      lines[#lines + 1] = line:sub(7)
    else
      break
    end
  end
  assert(lines and #lines > 0, path .. " promises nothing")
  return arguments, lines
end

local function matches(wanted, line)
  local pattern = ""
  local from = 1
  while true do
    local at, last = wanted:find("…", from, true)
    if at == nil then break end
    pattern = pattern .. escape(wanted:sub(from, at - 1)) .. ".*"
    from = last + 1
  end
  return line:find("^" .. pattern .. escape(wanted:sub(from)) .. "$") ~= nil
end

-- Whether lines[i..] of the output are wanted[k..].
local function fits(wanted, k, lines, i)
  if wanted[k] == nil then return lines[i] == nil end
  if wanted[k] == "…" then
    for rest = i, #lines + 1 do
      if fits(wanted, k + 1, lines, rest) then return true end
    end
    return false
  end
  return lines[i] ~= nil and matches(wanted[k], lines[i])
    and fits(wanted, k + 1, lines, i + 1)
end

local function examples()
  local list = {}
  local pipe = io.popen "ls examples/*.lua"
  for path in pipe:lines() do list[#list + 1] = path end
  pipe:close()
  return list
end

describe("the examples #once", function()
  local folder

  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
  end)

  after_each(function()
    os.execute("rm -rf " .. folder)
  end)

  for _, path in ipairs(examples()) do
    for _, host in ipairs(process.hosts) do
      it(("%s prints what it says, %s"):format(path, host.name), function()
        local arguments, wanted = promise(path)
        -- What an example writes stays in the folder it is run in.
        local root = process.run("pwd").out:gsub("\n", "")
        local r = process.run(("cd %s && %s/%s --cpu-devices=2 %s/%s %s")
          :format(folder, root, host.path, root, path, arguments), nil,
          DEADLINE)
        assert.equal(0, r.code, r.err)
        local lines = {}
        for line in r.out:gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
        assert.is_true(fits(wanted, 1, lines, 1), "it prints\n" .. r.out)
      end)
    end
  end
end)
