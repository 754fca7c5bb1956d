--- What `tfdist run` is asked for: its options, checked.
local errors = require "tfdist.base.errors"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

M.USAGE = [[
usage: tfdist [options] run [run options] script.lua [args...]
What is started, each task a process with the options before `run`:
  -n N|auto            N workers; auto: one for each GPU, else for each core
  --chief --workers=N --ps=N --evaluator   tasks of these jobs
Where:
  --hosts=H,..         N workers (1) on each of these machines
  --dry-run            print the line to start each task with, start nothing
  --ssh                start them by ssh; scripts have the same path everywhere
  --port=P             first port (default: free ones; with --hosts 2222)
When a task fails all are stopped, and run ends with the status of the first:
  --max-restarts=N     start all of them again, up to N times
  --min-workers=M      go on without the worker that failed while M are left,
                       and take it in again after an epoch of fit
  --timeout=SEC        stop all after so long, with status 124
What is seen:
  --log-dir=DIR        where all they write is kept
                       (default: tfdist/logs in the XDG state folder)
  --quiet-workers      show what the chief writes, as it is, and no more
  --repl               the chief has this terminal, and a prompt at its end
Tasks find TF_CONFIG, TFDIST_SECRET_FILE, TFDIST_RESTART (0, 1, ...) and their
share of the cores, TFDIST_CORES, in the environment.]]

local MOST = 512 -- tasks
local MOST_SECONDS = 2 ^ 31

local function fail(problem, hint)
  errors.raise_usage("ValueError", problem, hint)
end

-- Values ----------------------------------------------------------------------

local function whole(low, high)
  return function(name, value)
    local n = value:find "^%d+$" and #value <= 10 and tonumber(value)
    if not n or n < low or n > high then
      fail(("%s: %s; expected a whole number from %d to %d"):format(name,
        text.quote(value), low, high))
    end
    return n
  end
end

local function whole_or_auto(name, value)
  if value == "auto" then
    return value
  end
  local n = value:find "^%d+$" and #value <= 10 and tonumber(value)
  if not n or n < 1 or n > MOST then
    fail(("%s: %s; expected auto or a whole number from 1 to %d"):format(name,
      text.quote(value), MOST))
  end
  return n
end

local function seconds(name, value)
  local n = tonumber(value)
  if not n or not (n > 0 and n <= MOST_SECONDS) then
    fail(("%s: %s; expected seconds, more than 0"):format(name,
      text.quote(value)))
  end
  return n
end

-- As the shell and ssh take it, too.
local function hosts(name, value)
  local list, seen = {}, {}
  for host in (value .. ","):gmatch "([^,]*)," do
    if not host:find "^[%w_][%w._-]*$" then
      fail(("%s: %s is no name of a host"):format(name, text.quote(host)))
    elseif seen[host] then
      fail(("%s: %s is there twice; -n N starts N workers on each host"):format(
        name, text.quote(host)))
    end
    seen[host] = true
    list[#list + 1] = host
  end
  return list
end

local function folder(name, value)
  if value == "" then
    fail(name .. ": the name of a folder is missing")
  end
  return value
end

local READERS = {
  ["-n"] = whole_or_auto,
  ["--workers"] = whole(1, MOST), ["--ps"] = whole(1, MOST),
  ["--hosts"] = hosts, ["--port"] = whole(1, 65535),
  ["--log-dir"] = folder, ["--max-restarts"] = whole(0, 1000000),
  ["--min-workers"] = whole(1, MOST), ["--timeout"] = seconds,
}
local FLAGS = { "--chief", "--evaluator", "--dry-run", "--ssh", "--repl",
  "--quiet-workers" }

local names = { "-n" }
for _, flag in ipairs(FLAGS) do
  FLAGS[flag] = true
  names[#names + 1] = flag
end
for name in pairs(READERS) do
  names[#names + 1] = name
end
table.sort(names)

-- "--log-dir" -> "log_dir"
local function field(name)
  return (name:gsub("^%-+", ""):gsub("%-", "_"))
end

local function unknown(name)
  local near = #name > 3 and text.nearest(name, names, 3) or nil
  fail("unknown option " .. text.quote(name), near and "did you mean " .. near
    .. "?" or "options of the tasks stand before `run`; tfdist help run lists "
    .. "those of run")
end

-- The list of words ------------------------------------------------------------

-- Read the option at words[i]; the position after it.
local function read_option(o, words, i)
  local word = words[i]
  local name, value = word:match "^(%-%-[^=]*)=(.*)$"
  if name == nil and word:find "^%-n." then
    name, value = "-n", word:sub(3)
  end
  name = name or word
  if FLAGS[name] then
    if value ~= nil then
      fail(("%s takes no value, got %s"):format(name, text.quote(value)))
    end
    o[field(name)] = true
    return i + 1
  elseif READERS[name] == nil then
    unknown(name)
  elseif value == nil then
    i = i + 1
    value = words[i]
    if value == nil then
      fail(name .. " needs a value")
    end
  end
  o[field(name)] = READERS[name](name, value)
  return i + 1
end

local function check_counts(o)
  local roles = o.chief or o.workers or o.ps or o.evaluator
  if o.n and roles then
    fail("-n and the jobs --chief, --workers, --ps, --evaluator exclude each "
      .. "other")
  elseif not o.n and not roles and not o.hosts then
    fail("how many workers? -n N, -n auto, or --workers=N and the other jobs")
  elseif o.hosts and roles then
    fail("--hosts starts workers alone; other jobs run on one machine")
  elseif o.n == "auto" and o.hosts then
    fail("-n auto counts what this machine has; say -n N with --hosts")
  elseif not o.hosts and not o.n and not o.chief and not o.workers then
    fail("nobody works: --workers=N or --chief is missing")
  end
  local count = o.hosts and #o.hosts * (o.n or 1)
    or (o.workers or 0) + (o.ps or 0) + (o.chief and 1 or 0)
      + (o.evaluator and 1 or 0)
  local workers = o.hosts and count or o.n or o.workers or 0
  if count > MOST then
    fail(("%d tasks; expected at most %d"):format(count, MOST))
  elseif o.min_workers and workers ~= "auto" and o.min_workers > workers then
    fail(("--min-workers=%d: there are %d workers from the beginning"):format(
      o.min_workers, workers))
  end
end

local function check_rest(o)
  if o.hosts and not o.dry_run and not o.ssh then
    fail("--hosts prints the line for each host with --dry-run, or starts all "
      .. "with --ssh")
  elseif o.ssh and not o.hosts then
    fail("--ssh needs --hosts=H,..")
  elseif o.min_workers and not o.max_restarts then
    fail("--min-workers needs --max-restarts=N: workers are left out when all "
      .. "start again")
  elseif o.repl and o.ssh then
    fail("--repl gives the chief this terminal; with --ssh it is elsewhere")
  elseif o.script == nil then
    fail "which script? tfdist help run"
  elseif o.script == "-" then
    fail "a script from stdin can be read once only; put it into a file"
  end
end

--- Options, script and its arguments from the words after `run`.
--- Errors: ValueError naming the option, its value and what was expected.
---@param words string[]
---@return table  fields called like the options, `script`, `arguments`
function M.read(words)
  local o = { arguments = {} }
  local i = 1
  while words[i] ~= nil and words[i]:find "^%-." do
    if words[i] == "--" then
      i = i + 1
      break
    end
    i = read_option(o, words, i)
  end
  o.script = words[i]
  for k = i + 1, #words do
    o.arguments[#o.arguments + 1] = words[k]
  end
  check_counts(o)
  check_rest(o)
  return o
end

return M
