--- `tfdist run`: start the tasks of a cluster, show what they write, end when
--- they have ended, with the status of the first that failed.
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local groups = require "tfdist.host.launch.group"
local launch = require "tfdist.host".launch
local logs = require "tfdist.host.launch.logs"
local options = require "tfdist.host.launch.options"
local raw = require "tfdist.core.raw"
local remote = require "tfdist.host.launch.remote"
local screens = require "tfdist.host.launch.screen"
local story = require "tfdist.host.launch.story"
local tasks = require "tfdist.host.launch.tasks"

-- Seconds that the reader of our output has at the end.
local TIME_TO_READ, TIME_WHEN_ASKED = 5, 0.5
local MOST_EPOCHS = 1024 -- between two looks at who could come back

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

-- Where its files are known, what it dies of is told by the task itself, and
-- what it did before.
local function add_error_file(settings, log, folder)
  if log.error_file then
    settings[#settings + 1] = { "TFDIST_ERROR_FILE", log.error_file }
    settings[#settings + 1] = { "TFDIST_FLIGHT", folder }
  end
end

function Run:start_here(task, settings)
  local has_terminal = self.options.repl and task.is_chief
  settings[#settings + 1] = { "TFDIST_SECRET_FILE", self.secret_file }
  add_error_file(settings, task.log, self.logs.folder)
  for _, pair in ipairs(tasks.settings(task, self.tasks)) do
    settings[#settings + 1] = pair
  end
  if not has_terminal then
    add_progress(settings, task.is_chief)
  end
  return launch.start(tasks.words(launch.program(), self.options,
    has_terminal and { "-i" }), tasks.environment(settings),
    has_terminal and "terminal" or nil)
end

function Run:start_there(task, settings)
  settings[#settings + 1] = { "TF_CONFIG", tasks.config(task, self.tasks) }
  add_progress(settings, task.is_chief)
  local id, why = launch.start(remote.ssh(self.options, task, self.tasks,
    settings), launch.environment(), "input")
  if id ~= nil then
    launch.send(id, self.secret .. "\n")
  end
  return id, why
end

function Run:start(task)
  task.is_chief = tasks.is_chief(task, self.tasks)
  task.log = self.logs:open(task, self.restart)
  task.output = {}
  for stream = 1, 2 do
    task.output[stream] = self.screen:output(task.name, task.is_chief, stream)
  end
  local settings = { { "TFDIST_RESTART", tostring(self.restart) },
    { "TFDIST_TASK", tasks.file(task, self.restart) } }
  if next(self.absent) ~= nil then
    settings[3] = { "TFDIST_RETURN_AFTER", tostring(self.patience) }
  end
  if self.options.ssh then
    return self:start_there(task, settings)
  end
  return self:start_here(task, settings)
end

-- One run of all, to the last end.
function Run:attempt()
  local group = groups.run {
    tasks = self.tasks, until_at = self.until_at,
    start = function(task)
      return self:start(task)
    end,
    send = self.options.ssh and remote.signal or function(task, number)
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

-- The same again would end the same way: bad usage, workers that are not in
-- step; and who was interrupted was told not to go on.
local LASTING = { [2] = true, [77] = true, [130] = true }
-- Ends that are no reason to do without a task.
local HEALTHY = { [groups.PEER_FAILED] = true, [groups.CHIEF_LOST] = true,
  [groups.SAVED] = true }

function Run:may_restart(group, first)
  return first ~= nil and not LASTING[first.code]
    and self.failures < (self.options.max_restarts or 0)
    and not (group.asked or group.timed_out or group.failed_start)
end

-- Have the workers ended because others are absent, and may come back?
function Run:may_return(group, first)
  return first ~= nil and first.code == groups.SAVED
    and next(self.absent) ~= nil
    and not (group.asked or group.timed_out or group.failed_start)
end

-- The worker to be done without after this failure, or nil.
function Run:to_leave(first)
  local workers = 0
  for _, task in ipairs(self.tasks) do
    workers = workers + (task.job == "worker" and 1 or 0)
  end
  local least = self.options.min_workers
  return least and workers > least and first.task.job == "worker"
    and not HEALTHY[first.code] and first.task or nil
end

function Run:start_again()
  self.restart = self.restart + 1
  self.tasks = tasks.again(self.all, self.absent)
end

-- Workers that fail again and again are waited for longer and longer.
function Run:wait_longer()
  self.patience = math.min(self.patience and 2 * self.patience or 1,
    MOST_EPOCHS)
end

function Run:prepare_restart(first)
  local left = self:to_leave(first)
  self.failures = self.failures + 1
  self:say(("%s; starting again%s (%d of %d)"):format(
    story.sentence(first, self.tasks), left and " without " .. left.name or "",
    self.failures, self.options.max_restarts))
  if left then
    self.absent[left.origin] = true
    self:wait_longer()
  end
  self:start_again()
end

-- Those whose machines can be reached come back.
function Run:take_in()
  local back, away = {}, {}
  for i, task in ipairs(self.all) do
    local here = self.absent[i]
      and (not self.options.ssh or remote.is_reachable(task.host))
    if here then
      self.absent[i] = nil
      back[#back + 1] = task.name
    elseif self.absent[i] then
      away[#away + 1] = ("%s (%s cannot be reached)"):format(task.name,
        task.host)
    end
  end
  if back[1] == nil then
    self:wait_longer()
  end
  self:say(("an epoch is over; starting again with%s"):format(
    back[1] and " " .. story.list_of(back)
    or "out " .. story.list_of(away)))
  self:start_again()
end

-- The run's status, told unless all is well.
function Run:finish(group, first)
  if group.failed_start then
    self:say("cannot start " .. group.failed_start)
    return 1
  elseif group.lost_output then
    self:say("what the tasks write cannot be shown: " .. group.lost_output)
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

function Run:supervise()
  while true do
    local group = self:attempt()
    local first = group:first_failure()
    self.asked = group.asked
    if self:may_return(group, first) then
      self:take_in()
    elseif self:may_restart(group, first) then
      self:prepare_restart(first)
    else
      return self:finish(group, first)
    end
  end
end

-- all: every task, which restarts go back to; absent: position in `all` -> true
-- of those that are left out.
local function supervise(o, all)
  local self = setmetatable({ options = o, restart = 0, failures = 0,
    all = all, absent = {}, tasks = tasks.again(all, {}),
    screen = screens.new(o.quiet_workers) }, Run)
  self.logs = logs.new(o.log_dir, function(text)
    self:say(text)
  end)
  assert(launch.open())
  self.secret_file, self.secret = launch.secret()
  if self.secret_file == nil then
    errors.raise("Unavailable", self.secret)
  end
  self.until_at = o.timeout and raw.monotonic() + o.timeout
  local code = self:supervise()
  launch.close()
  launch.flush(self.asked and TIME_WHEN_ASKED or TIME_TO_READ)
  return code
end

-- Is it what every task can open and read whole? A descriptor of this process is
-- another one in each task, and of a pipe one of them gets it all.
local function is_for_all(path)
  if path == "/dev/stdin" or path:find "^/dev/fd/"
    or path:find "^/proc/self/fd/" then
    return false
  end
  local ok, e = errors.attempt(files.read_plain, path, 1)
  return ok or errors.kind(e) ~= "FailedPrecondition"
end

local function check_script(o)
  local there, is_folder = raw.file_stat(o.script)
  if is_folder then
    errors.raise_usage("InvalidArgument", ("the script %s is a folder"):format(
      o.script))
  elseif there and not is_for_all(o.script) then
    errors.raise_usage("InvalidArgument", ("the script %s is no plain file, "
      .. "which each task could read"):format(o.script), "put it into a file")
  end
  local file, why = io.open(o.script, "rb")
  if file == nil then
    errors.raise_usage("NotFound", "cannot open the script " .. why)
  end
  file:close()
end

local function run(words)
  local o = options.read(words)
  if not o.hosts then
    check_script(o)
  end
  local all = tasks.list(o)
  tasks.assign_ports(all, o)
  if o.dry_run then
    io.write(remote.dry_run(o, all))
    return 0
  end
  return supervise(o, all)
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
