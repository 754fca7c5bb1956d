--- TF_CONFIG: what it says, checked.
---
--- A JSON object: `cluster` { job: [host:port, ...] or { index: host:port } },
--- `task` { type, index }, and optionally `rpc_layer`, `session_master` and
--- `environment`. The same cluster stands in all processes; the task differs.
--- Every mistake is a ValueError that names its place, TF_CONFIG.task.index, and
--- ends the host with status 2: nothing that follows could be right.
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local json = require "tfdist.core.json"
local pairs = require "tfdist.base.pairs"
local specs = require "tfdist.distribute.cluster.spec"
local text = require "tfdist.base.text"

local M = {}

local NAME = "TF_CONFIG"
local MOST_BYTES = 2 ^ 20
local MOST_ADDRESS = 255 + 6 -- a host name and ":65535"
local MOST_INDEX = 2 ^ 31 - 1
local KEYS = { "cluster", "task", "rpc_layer", "session_master",
  "environment" }
-- Tasks outside of the cluster that the others form.
local APART = { evaluator = true }

local function fail(path, problem, hint)
  errors.raise_usage("ValueError", ("%s: %s"):format(path, problem), hint)
end

-- Lists have their length in `n`; objects may have a key of that name.
local function is_list(x)
  local count = 0
  for key in pairs(x) do
    if key ~= "n" then
      if type(key) == "string" then
        return false
      end
      count = count + 1
    end
  end
  return x.n == count
end

-- What a JSON value is, for messages.
local function describe(x)
  if x == json.null then
    return "null"
  elseif type(x) == "table" then
    return is_list(x) and ("a list of %d"):format(x.n) or "an object"
  elseif type(x) == "string" then
    return text.quote(#x <= 60 and x or x:sub(1, 60) .. "…")
  end
  return type(x) == "number" and text.number(x) or tostring(x)
end

local function check_object(path, x, holds)
  if type(x) ~= "table" or x == json.null or is_list(x) then
    fail(path, ("expected an object%s, got %s"):format(holds, describe(x)))
  end
  return x
end

-- cluster ---------------------------------------------------------------------

local function check_port(path, address, port)
  local number = port:find("^%d+$") and #port <= 5 and tonumber(port)
  if not number or number < 1 or number > 65535 then
    fail(path, ("%s: port %s; expected 1 to 65535"):format(text.quote(address),
      port == "" and "missing" or text.quote(port)))
  end
end

local function check_address(path, address)
  if type(address) ~= "string" then
    fail(path, "expected an address \"host:port\", got " .. describe(address))
  elseif #address > MOST_ADDRESS then
    fail(path, ("an address of %d characters; expected at most %d"):format(
      #address, MOST_ADDRESS))
  end
  local host, port = address:match("^%[([%x:.]+)%]:(.*)$")
  if host == nil then
    host, port = address:match("^([^:]*):([^:]*)$")
  end
  if host == nil then
    fail(path, ("%s; expected \"host:port\", with an IPv6 host in brackets")
      :format(describe(address)))
  elseif host == "" then
    fail(path, ("%s: the host is missing"):format(text.quote(address)))
  elseif host:find("[^%w._:-]") then
    fail(path, ("%s: a host has letters, digits, dots, hyphens and "
      .. "underscores"):format(text.quote(address)))
  end
  check_port(path, address, port)
end

-- Position in a cluster's object: "0", "12".
local function read_index(path, key)
  local index = key:find("^%d+$") and #key <= 10 and tonumber(key)
  if not index or index > MOST_INDEX or (key:find "^0" and key ~= "0") then
    fail(path, ("%s is no task index; expected 0, 1, ..."):format(
      text.quote(key)))
  end
  return index
end

local function read_tasks(path, given, seen)
  local tasks, count = {}, 0
  if type(given) ~= "table" or given == json.null then
    fail(path, "expected a list of addresses, or an object of addresses by "
      .. "task index, got " .. describe(given))
  end
  local function add(index, at, address)
    check_address(at, address)
    if seen[address] then
      fail(at, ("%s is the address of %s too"):format(text.quote(address),
        seen[address]))
    end
    seen[address] = at
    tasks[index] = address
    count = count + 1
  end
  if is_list(given) then
    for i = 1, given.n do
      add(i - 1, ("%s[%d]"):format(path, i - 1), given[i])
    end
  else
    for _, key in ipairs(lists.sorted_keys(given)) do
      add(read_index(path, key), path .. "." .. key, given[key])
    end
  end
  if count == 0 then
    fail(path, "has no tasks; expected at least one address")
  end
  return tasks, count
end

local function read_cluster(given)
  local path = NAME .. ".cluster"
  local jobs, counts, seen = {}, {}, {}
  if given == nil then
    return jobs, counts
  end
  check_object(path, given, " of jobs")
  for _, job in ipairs(lists.sorted_keys(given)) do
    if not job:find("^[%w_]+$") then
      fail(path, ("%s is no name of a job; expected letters, digits and "
        .. "underscores"):format(describe(job)))
    end
    jobs[job], counts[job] = read_tasks(path .. "." .. job, given[job], seen)
  end
  for _, job in ipairs { "chief", "evaluator", "master" } do
    if (counts[job] or 0) > 1 then
      fail(path .. "." .. job, ("%d tasks; expected one"):format(counts[job]))
    end
  end
  if jobs.chief and jobs.master then
    fail(path, "has both chief and master, which are the same")
  end
  return jobs, counts
end

-- task ------------------------------------------------------------------------

local function read_type(path, given)
  if type(given) == "number" then
    return text.number(given)
  elseif type(given) ~= "string" then
    fail(path, "expected the name of a job, got "
      .. (given == nil and "nothing" or describe(given)))
  end
  return given
end

local function read_number(path, given)
  local index = given
  if type(given) == "string" and given:find("^%d+$") then
    index = tonumber(given)
  end
  if given == nil or not text.is_whole(index) or index < 0
    or index > MOST_INDEX then
    fail(path, "expected a task index 0, 1, ..., got "
      .. (given == nil and "nothing" or describe(given)))
  end
  return math.floor(index)
end

local function read_task(given, jobs, counts)
  local path = NAME .. ".task"
  local names = lists.sorted_keys(jobs)
  if given == nil then
    local total = 0
    for _, n in pairs(counts) do
      total = total + n
    end
    if total > 1 then
      fail(path, ("missing: which of the cluster's %d tasks is this process?")
        :format(total), "\"task\": {\"type\": \"worker\", \"index\": 0}")
    end
    return nil, nil
  end
  check_object(path, given, " { type, index }")
  local kind = read_type(path .. ".type", given.type)
  local index = read_number(path .. ".index", given.index)
  if #names == 0 then
    if index > 0 then
      fail(NAME .. ".cluster", ("missing: this process is task %d of job %s")
        :format(index, text.quote(kind)))
    end
  elseif jobs[kind] == nil then
    if not APART[kind] then
      fail(path .. ".type", ("there is no job %s in the cluster; jobs: %s")
        :format(describe(kind), table.concat(names, ", ")),
        text.suggestion(kind, names, "job"))
    end
  elseif jobs[kind][index] == nil then
    fail(path .. ".index", ("%d out of range, job '%s' has %d task%s"):format(
      index, kind, counts[kind], counts[kind] == 1 and "" or "s"))
  end
  return kind, index
end

-- All of it -------------------------------------------------------------------

local function read_word(config, key)
  local value = config[key]
  if value ~= nil and type(value) ~= "string" then
    fail(NAME .. "." .. key, "expected a string, got " .. describe(value))
  end
  return value
end

local function decode(source)
  if #source > MOST_BYTES then
    fail(NAME, ("%d bytes; expected at most %d"):format(#source, MOST_BYTES))
  end
  local done, config = pcall(json.decode, source, NAME)
  if not done then
    if errors.kind(config) == "ValueError" then
      config.exit_code = errors.EXIT_USAGE
    end
    error(config, 0)
  end
  return check_object(NAME, config, " with cluster and task")
end

-- A slip in the name of a part would leave a process alone.
local function check_keys(config)
  for _, key in ipairs(lists.sorted_keys(config)) do
    local near = text.nearest(key, KEYS, 2)
    if near ~= nil and near ~= key and config[near] == nil then
      fail(NAME .. "." .. key, "unknown", ("did you mean %s?"):format(near))
    end
  end
end

--- What a text in the form of TF_CONFIG says. Nothing (nil or "") is no cluster.
--- Errors: ValueError that names the place and what was expected.
---@param source string|nil
---@return table  { cluster = ClusterSpec, task_type, task_id, rpc_layer,
---  session_master, environment }
function M.read(source)
  if source == nil or source == "" then
    return { cluster = specs.of_tasks({}) }
  end
  local config = decode(source)
  check_keys(config)
  local jobs, counts = read_cluster(config.cluster)
  local kind, index = read_task(config.task, jobs, counts)
  return { cluster = specs.of_tasks(jobs), task_type = kind, task_id = index,
    rpc_layer = read_word(config, "rpc_layer"),
    session_master = read_word(config, "session_master"),
    environment = read_word(config, "environment") }
end

--- The same of this process's environment.
function M.of_environment()
  return M.read(os.getenv(NAME))
end

return M
