--- `tfdist run`: start the tasks of a cluster, show what they write, end when
--- they have ended, with the status of the first that failed.
local errors = require "tfdist.base.errors"
local groups = require "tfdist.host.launch.group"
local launch = require "tfdist.host".launch
local logs = require "tfdist.host.launch.logs"
local options = require "tfdist.host.launch.options"
local raw = require "tfdist.core.raw"
local screens = require "tfdist.host.launch.screen"
local story = require "tfdist.host.launch.story"
local tasks = require "tfdist.host.launch.tasks"

local TIME_TO_READ = 5 -- seconds that the reader of our output has at the end

local Run = {}
Run.__index = Run

function Run:say(text)
  self.screen:write(2, "tfdist run: " .. text .. "\n")
end

-- Start -----------------------------------------------------------------------

-- Progress of the chief is seen through this process, that of others is not.
local function add_progress(settings, is_chief)
  local width = raw.terminal_width(2)
  if os.getenv "TFDIST_PROGRESS" then
    return
  elseif not is_chief then
    settings[#settings + 1] = { "TFDIST_PROGRESS", "none" }
  elseif width then
    settings[#settings + 1] = { "TFDIST_PROGRESS", "bar" }
    settings[#settings + 1] = { "COLUMNS", tostring(width) }
  end
end

function Run:start(task)
  local is_chief = tasks.is_chief(task, self.tasks)
  local settings = tasks.settings(task, self.tasks, self.restart)
  local has_terminal = self.options.repl and is_chief
  settings[#settings + 1] = { "TFDIST_SECRET_FILE", self.secret }
  if not has_terminal then
    add_progress(settings, is_chief)
  end
  task.log = self.logs:open(task, self.restart)
  if task.log.error_file then
    settings[#settings + 1] = { "TFDIST_ERROR_FILE", task.log.error_file }
  end
  task.output = {}
  for stream = 1, 2 do
    task.output[stream] = self.screen:output(task.name, is_chief, stream)
  end
  return launch.start(tasks.words(launch.program(), self.options,
    has_terminal and { "-i" }), tasks.environment(settings),
    has_terminal and "terminal" or nil)
end

-- One run of all, to the last end.
function Run:attempt()
  local group = groups.run {
    tasks = self.tasks, until_at = self.until_at,
    start = function(task)
      return self:start(task)
    end,
    send = function(task, number)
      launch.signal(task.id, number)
    end,
    on_output = function(task, stream, bytes)
      task.log:write(stream, bytes)
      task.output[stream]:feed(bytes)
    end,
    report_of = function(task)
      return task.log:report()
    end,
  }
  for _, task in ipairs(self.tasks) do
    for stream = 1, task.id and 2 or 0 do
      task.output[stream]:finish()
    end
    if task.log then
      task.log:close()
    end
  end
  return group
end

-- End -------------------------------------------------------------------------

-- The run's status, told unless all is well.
function Run:finish(group)
  local first = group:first_failure()
  if group.failed_start then
    self:say("cannot start " .. group.failed_start)
    return 1
  elseif group.killed_by then
    return 128 + group.killed_by
  elseif group.timed_out then
    self:say(story.timed_out(self.options.timeout, self.tasks))
    return groups.TIMED_OUT
  elseif first == nil then
    return 0
  elseif group.asked == nil then
    self.screen:write(2, story.failure(first, self.tasks, self.logs))
  end
  return first.code
end

local function supervise(o)
  local self = setmetatable({ options = o, restart = 0,
    screen = screens.new(o.quiet_workers) }, Run)
  self.tasks = tasks.list(o)
  tasks.assign_ports(self.tasks, o)
  assert(launch.open())
  self.secret = assert(launch.secret())
  self.logs = logs.new(o.log_dir, function(text)
    self:say(text)
  end)
  self.until_at = o.timeout and raw.monotonic() + o.timeout
  local code = self:finish(self:attempt())
  launch.close()
  launch.flush(TIME_TO_READ)
  return code
end

local function check_script(o)
  local file, why = io.open(o.script, "rb")
  if file == nil then
    errors.raise_usage("NotFound", "cannot open the script " .. why)
  end
  file:close()
end

local function run(words)
  local o = options.read(words)
  for _, name in ipairs { "hosts", "dry_run", "max_restarts" } do
    if o[name] then
      errors.raise_usage("NotImplementedError", ("--%s is not implemented yet")
        :format((name:gsub("_", "-"))))
    end
  end
  check_script(o)
  return supervise(o)
end

--- The status of the first task that failed, 2 for what cannot be started.
return function(...)
  local done, code = pcall(run, { ... })
  if done then
    return code
  elseif errors.is_error(code) and code.exit_code == errors.EXIT_USAGE then
    io.stderr:write("tfdist run: ", code.message, "\n")
    if code.hint then
      io.stderr:write("hint: ", code.hint, "\n")
    end
    return errors.EXIT_USAGE
  end
  error(code, 0)
end
