--- tf.profiler.experimental: a timeline of what ran when.
---
---   tf.profiler.experimental.start "logs"
---   for step = 1, 100 do
---     tf.profiler.experimental.Trace("train", function()
---       train_step()
---     end, { step_num = step })
---   end
---   print(tf.profiler.experimental.stop())
---
--- The file is Chrome's trace format, for ui.perfetto.dev. `tfdist --profile`
--- makes one of a whole script.
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"

local M = { experimental = {} }

local file -- of the timeline that goes on

local function first_line(path)
  local f = io.open(path, "rb")
  local line = f and f:read "*l"
  if f then
    f:close()
  end
  return line or ""
end

-- As TensorBoard looks for them: one folder for each profile.
local function file_in(logdir)
  local folder = ("%s/plugins/profile/%s"):format(logdir,
    os.date "%Y_%m_%d_%H_%M_%S")
  raw.folder_make(folder)
  local host = first_line "/proc/sys/kernel/hostname":match "^[%w%.%-]+"
  local task = raw.task_name()
  local path = ("%s/%s%s.trace.json"):format(folder, host or "host",
    task ~= "" and "." .. task or "")
  local f, why = io.open(path, "wb") -- sooner than after hours of work
  if f == nil then
    errors.raise("Unavailable", ("profiler.start: cannot write %s: %s"):format(
      path, why))
  end
  f:close()
  return path
end

--- Begin a timeline that is written below `logdir`, in
--- plugins/profile/TIME/HOST.trace.json, that of one of several workers in
--- HOST.worker-1.trace.json. `options` is taken and has no effect.
--- Errors: AlreadyExists when there is one; the system's for the folder.
--- Source: tf.profiler.experimental.start
M.experimental.start = options.wrap("profiler.start", "logdir options=nil",
  function(logdir)
    files.path("profiler.start", "logdir", logdir)
    if raw.profiler_is_running() then
      errors.raise("AlreadyExists", "profiler.start: a profiler runs already",
        "tf.profiler.experimental.stop() ends it")
    end
    local path = file_in(logdir)
    raw.profiler_start()
    file = path
  end)

--- End the timeline and write it, unless save is false. Returns the table of
--- where the time went, for people.
--- Errors: Unavailable when there is none.
--- Source: tf.profiler.experimental.stop
---@return string
M.experimental.stop = options.wrap("profiler.stop", "save=true",
  function(save)
    local path = file
    file = nil
    raw.profiler_stop(save and path or "")
    if path ~= nil and not save then
      os.remove(path)
    end
    return raw.profiler_table()
  end)

local function replica_of_here()
  local mode = state.current.mode
  local replica = mode and mode.replica
  return replica and replica.replica_id_in_sync_group or -1
end

--- A range of the timeline: while fn runs, or until the result's close();
--- returns what fn returns. step_num: the number of a training step, which the
--- table counts. Costs a look at a flag while there is no timeline.
--- Source: tf.profiler.experimental.Trace
M.experimental.Trace = options.wrap("profiler.Trace",
  "name fn:body=nil step_num=-1", function(name, fn, step)
    if type(name) ~= "string" then
      errors.raise("TypeError", "profiler.Trace: name must be a string, got "
        .. text.describe(name))
    end
    options.integer("profiler.Trace", "step_num", step)
    if fn ~= nil then
      text.check_callable("profiler.Trace", "fn", fn)
    end
    local begin = raw.profiler_now()
    local replica = replica_of_here()
    local function note()
      raw.profiler_note(name, begin, step, replica)
    end
    if fn == nil then
      return state.closer("profiler.Trace", note)
    end
    return state.protect(note, fn)
  end)

text.watch("tf.profiler.experimental", M.experimental)

return M
