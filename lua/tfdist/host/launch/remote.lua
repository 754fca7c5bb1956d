--- Tasks as lines of a shell: to be typed, or run on another machine by ssh.
local groups = require "tfdist.host.launch.group"
local launch = require "tfdist.host".launch
local raw = require "tfdist.core.raw"
local tasks = require "tfdist.host.launch.tasks"

local M = {}

local PROBE_SECONDS = 10

local function quote(word)
  if word:find "^[%w@%%+=:,./_-]+$" then
    return word
  end
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- The launcher's program as it was called.
local function program()
  local i, arguments = -1, rawget(_G, "arg")
  while arguments[i - 1] ~= nil do
    i = i - 1
  end
  return arguments[i]
end

local function words_of(o)
  local words = tasks.words(program(), o)
  for i, word in ipairs(words) do
    words[i] = quote(word)
  end
  return table.concat(words, " ")
end

-- NAME='value' of each setting.
local function assignments(settings)
  local list = {}
  for i, pair in ipairs(settings) do
    list[i] = pair[1] .. "=" .. quote(pair[2])
  end
  return table.concat(list, " ")
end

-- Lines to be typed -----------------------------------------------------------

local SECRET = 'TFDIST_SECRET_FILE="$HOME/.config/tfdist/secret"'
local MAKE_SECRET = [[
# All machines need a file with the same secret, to be made once and copied:
#   mkdir -p ~/.config/tfdist && (umask 077 &&
#     head -c 32 /dev/urandom | sha256sum >~/.config/tfdist/secret)
]]

--- What --dry-run prints: the line for each task, behind where it is for.
function M.dry_run(o, all)
  local out = { o.hosts and MAKE_SECRET or "" }
  for _, task in ipairs(all) do
    local settings = { { "TF_CONFIG", tasks.config(task, all) } }
    if not o.hosts then
      settings = tasks.settings(task, all)
    end
    out[#out + 1] = ("# %s%s\n%s %s%s\n"):format(
      o.hosts and task.host .. ", " or "", task.name, assignments(settings),
      o.hosts and SECRET .. " " or "", words_of(o))
  end
  return table.concat(out)
end

-- ssh -------------------------------------------------------------------------

-- The secret is the first line of its stdin, signals follow, and where it ends
-- the launcher is gone. %s: folder; settings and words.
local SCRIPT = "IFS= read -r TFDIST_SECRET && export TFDIST_SECRET && "
  .. "cd %s || exit; exec 3<&0; "
  .. "setsid env --default-signal=INT %s </dev/null 3<&- & p=$!; "
  .. "{ while read -r s; do kill -s $s -- -$p; done; kill -s KILL -- -$p; } "
  .. "<&3 >/dev/null 2>&1 & w=$!; exec 3<&-; "
  .. "wait $p; c=$?; kill $w 2>/dev/null; kill -s KILL -- -$p 2>/dev/null; "
  .. "exit $c"

-- Those of the launcher that are the tasks' too.
local function own_settings(settings)
  for _, entry in ipairs(launch.environment()) do
    local name, value = entry:match "^(TFDIST_[%w_]+)=(.*)$"
    if name ~= nil and not tasks.is_own(name) then
      settings[#settings + 1] = { name, value }
    end
  end
  return settings
end

--- The words of an ssh that runs a task with these settings.
function M.ssh(o, task, all, settings)
  local here = 0
  for _, t in ipairs(all) do
    here = here + (t.host == task.host and 1 or 0)
  end
  local line = assignments(own_settings(settings))
  if here > 1 then
    line = line .. (" TFDIST_CORES=$(( ($(nproc) + %d) / %d ))"):format(
      here - 1, here)
  end
  return { "ssh", "-T", "-o", "BatchMode=yes", task.host,
    "exec sh -c " .. quote(SCRIPT:format(quote(os.getenv "PWD" or "."),
      line .. " " .. words_of(o))) }
end

--- Does a machine answer?
--- Blocks: some seconds when it does not.
function M.is_reachable(host)
  local probe = { job = "worker", name = host }
  groups.run {
    tasks = { probe }, until_at = raw.monotonic() + PROBE_SECONDS,
    start = function()
      return launch.start({ "ssh", "-T", "-o", "BatchMode=yes", "-o",
        "ConnectTimeout=5", host, "true" }, launch.environment())
    end,
    send = function(task, number)
      launch.signal(task.id, number)
    end,
    on_output = function() end, report_of = function() end,
  }
  return probe.ended ~= nil and probe.ended.code == 0
end

local NAMES = { [1] = "HUP", [2] = "INT", [9] = "KILL", [15] = "TERM" }

--- Send a signal to what an ssh runs.
function M.signal(task, number)
  launch.send(task.id, NAMES[number] .. "\n")
  if number == 9 then
    launch.signal(task.id, number)
  end
end

return M
