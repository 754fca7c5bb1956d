--- A share of one processor's time for processes that a spec starts: a control
--- group of their own, where this process may make one.
local files = require "spec.support.files"
local process = require "spec.support.process"

local M = {}

-- Why it could not be written, nil when it was.
local function put(path, text)
  local f, why = io.open(path, "w")
  if f == nil then return why end
  f:setvbuf "no"
  local ok, problem = f:write(text)
  f:close()
  return not ok and problem or nil
end

-- The folders that may get one, this process's own first: of the first version,
-- where "cpu" is a tree of its own, or of the second.
local function trees()
  local own, list = {}, {}
  local f = io.open "/proc/self/cgroup" -- some systems have none
  if f == nil then return list end
  f:close()
  for names, path in files.read "/proc/self/cgroup":gmatch
    "%d+:([^:\n]*):([^\n]*)" do
    for name in (names .. ","):gmatch "([^,]*)," do
      own[name] = path
    end
  end
  for mount, kind, settings in files.read "/proc/self/mounts":gmatch
    "[^ \n]+ ([^ ]+) (cgroup2?) ([^ ]+)" do
    local is_new = kind == "cgroup2"
    local path = own[is_new and "" or "cpu"]
    if path and (is_new or (settings .. ","):find ",cpu,") then
      list[#list + 1] = { folder = mount .. path, is_new = is_new }
      list[#list + 1] = { folder = mount, is_new = is_new }
    end
  end
  return list
end

local function make(tree, name, percent)
  local folder = tree.folder .. "/" .. name
  if tree.is_new then
    local problem = put(tree.folder .. "/cgroup.subtree_control", "+cpu")
    if problem then return nil, problem end
  end
  local r = process.run("mkdir " .. process.quote(folder))
  if r.code ~= 0 then return nil, r.err end
  -- Of periods of 100 ms, in microseconds.
  local time = ("%d"):format(percent * 1000)
  local why
  if tree.is_new then
    why = put(folder .. "/cpu.max", time .. " 100000")
  else
    why = put(folder .. "/cpu.cfs_period_us", "100000")
      or put(folder .. "/cpu.cfs_quota_us", time)
  end
  if why then
    os.execute("rmdir " .. process.quote(folder))
    return nil, why
  end
  return folder
end

local Quota = {}
Quota.__index = Quota

--- A control group with `percent` of one processor, or nil and why there is
--- none. A process joins by writing its number to `procs`.
function M.new(percent)
  local name = files.place():match "[^/]*$"
  local why = "no tree of them has the processor's time"
  for _, tree in ipairs(trees()) do
    local folder, problem = make(tree, name, percent)
    if folder then
      return setmetatable({ folder = folder,
        procs = folder .. "/cgroup.procs" }, Quota)
    end
    why = problem
  end
  return nil, "no control groups: " .. why
end

--- How often its processes had to wait for their share.
function Quota:held_up()
  return tonumber(files.read(self.folder .. "/cpu.stat"):match
    "nr_throttled (%d+)")
end

--- Take it away, when its processes have ended.
function Quota:close()
  local r = process.run(("for i in $(seq 600); do rmdir %s 2>/dev/null && "
    .. "exit; sleep 0.05; done; exit 1"):format(process.quote(self.folder)))
  assert(r.code == 0, self.folder .. " is still there")
end

return M
