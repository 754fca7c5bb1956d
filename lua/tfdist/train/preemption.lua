--- tf.distribute.experimental.PreemptionCheckpointHandler: save and end when a
--- worker is asked to end.
---
--- After each step the workers tell each other whether one of them was asked
--- (SIGTERM), so that all save after the same one. Cost: a message of one
--- number between all workers in each step.
local checkpoints = require "tfdist.train"
local cluster = require "tfdist.distribute.cluster"
local errors = require "tfdist.base.errors"
local graphs = require "tfdist.train.object_graph"
local notice = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local together = require "tfdist.train.together"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

--- What a process ends with that has saved because it was asked to end.
M.EXIT_PREEMPTED = 42

--- Note SIGTERM from now on rather than end.
function M.watch()
  raw.termination_watch()
end

--- Was any worker asked to end? Every worker calls it.
---@param strategy table|nil
---@param asked? boolean      this one was
function M.agreed(strategy, asked)
  return together.any(strategy, asked or raw.termination_seen())
end

--- Epochs to train before workers that were left out come back; nil = there are
--- none that could.
function M.epochs_until_return()
  return tonumber(os.getenv "TFDIST_RETURN_AFTER")
end

--- The chief's word for the end that lets them come back; what: "epoch 3 is over
--- and backed up".
function M.say_return(what)
  notice.say(what .. ": ending, for workers that were left out to come back")
end

--- End this process, with all that hangs on it.
function M.exit()
  os.exit(M.EXIT_PREEMPTED, true)
end

-- TerminationConfig ------------------------------------------------------------

local Config = { __name = "TerminationConfig" }

local function check_function(what, name, fn)
  if fn ~= nil then
    text.check_callable(what, name, fn)
  end
  return fn
end

--- What a PreemptionCheckpointHandler does otherwise than by default:
---   termination_watcher_fn  returns true when this worker has to end (default:
---                           SIGTERM was sent)
---   exit_fn                 called when all is saved (default: status 42)
---   grace_period            seconds to train on after the first save; it saves
---                           again before they are over (default 0)
---   save_fn                 saves, on every worker
--- Source: tf.distribute.experimental.TerminationConfig
M.TerminationConfig = options.wrap("TerminationConfig",
  "termination_watcher_fn=nil exit_fn=nil grace_period:number=nil save_fn=nil",
  function(watcher, exit_fn, grace, save_fn)
    local what = "TerminationConfig"
    if grace ~= nil and not (grace >= 0 and grace < math.huge) then
      errors.raise("ValueError", ("%s: grace_period must be seconds from 0 on, "
        .. "got %s"):format(what, text.number(grace)))
    end
    return setmetatable({
      termination_watcher_fn = check_function(what, "termination_watcher_fn",
        watcher),
      exit_fn = check_function(what, "exit_fn", exit_fn),
      grace_period = grace or 0,
      save_fn = check_function(what, "save_fn", save_fn),
    }, Config)
  end)

local function read_config(given)
  if given == nil then
    return M.TerminationConfig()
  elseif getmetatable(given) == Config then
    return given
  elseif text.is_plain(given) then
    return M.TerminationConfig(given)
  end
  errors.raise("TypeError", "PreemptionCheckpointHandler: termination_config "
    .. "must be a TerminationConfig, got " .. text.describe(given))
end

-- The handler --------------------------------------------------------------------

local Handler = { __name = "PreemptionCheckpointHandler" }
local methods = {}

local function is_handler(x)
  return getmetatable(x) == Handler
end

local unknown = text.unknown_fields("PreemptionCheckpointHandler", {},
  function()
    return text.names(methods, { total_run_calls = true })
  end)

function Handler:__index(key)
  if methods[key] ~= nil then
    return methods[key]
  elseif key == "total_run_calls" then
    return rawget(self, "counter"):read_value():item()
  end
  return unknown(key)
end

function Handler:__tostring()
  return ("PreemptionCheckpointHandler (%d runs, %s)"):format(
    self.total_run_calls, tostring(rawget(self, "manager")))
end

local function manager_of(given, directory)
  local meta = type(given) == "table" and getmetatable(given) or {}
  if meta.__name == "CheckpointManager" then
    return given
  elseif meta.__name ~= "Checkpoint" then
    errors.raise("TypeError", "PreemptionCheckpointHandler: "
      .. "checkpoint_or_checkpoint_manager must be a tf.train.Checkpoint or a "
      .. "tf.train.CheckpointManager, got " .. text.describe(given))
  elseif directory == nil then
    errors.raise("ValueError", "PreemptionCheckpointHandler: a Checkpoint "
      .. "needs checkpoint_dir, the folder to save it in")
  end
  return checkpoints.CheckpointManager(given, directory, { max_to_keep = 1 })
end

--- Restores the newest checkpoint when it is made, and saves one when a worker
--- is asked to end. The steps go through run. total_run_calls counts them, those
--- before the restart too. end_epoch says that an epoch of the loop is over, where
--- workers that were left out can come back.
--- Errors: ValueError for a Checkpoint without checkpoint_dir; TypeError.
--- Source: tf.distribute.experimental.PreemptionCheckpointHandler
M.PreemptionCheckpointHandler = options.wrap("PreemptionCheckpointHandler",
  "cluster_resolver:table checkpoint_or_checkpoint_manager:table "
  .. "checkpoint_dir:string=nil termination_config:table=nil",
  function(resolver, given, directory, config)
    if not cluster.is_resolver(resolver) then
      errors.raise("TypeError", "PreemptionCheckpointHandler: cluster_resolver "
        .. "must be a cluster resolver, got " .. text.describe(resolver),
        "strategy.cluster_resolver")
    end
    config = read_config(config)
    local manager = manager_of(given, directory)
    local checkpoint = manager.checkpoint
    local strategy = together.strategy_of(graphs.walk(checkpoint))
    local counter = tf.Variable(0, { dtype = "int64", trainable = false,
      name = "total_run_calls", aggregation = "ONLY_FIRST_REPLICA" })
    checkpoint.total_run_calls = counter
    M.watch()
    manager:restore_or_initialize()
    return setmetatable({ manager = manager, counter = counter,
      config = config, strategy = strategy or false, deadline = false,
      took = 0, epochs = 0, return_after = M.epochs_until_return() or false },
      Handler)
  end)

local function save(self)
  local began = raw.monotonic()
  local path
  if self.config.save_fn ~= nil then
    self.config.save_fn()
  else
    path = self.manager:save()
  end
  rawset(self, "took", raw.monotonic() - began)
  return path
end

local function is_told(self)
  local strategy = rawget(self, "strategy")
  return not strategy or strategy.extended.should_save_summary ~= false
end

local function finish(self)
  local path = save(self)
  if is_told(self) then
    notice.say(("asked to end: saved%s after %d runs"):format(
      path and " " .. path or "", self.total_run_calls))
  end
  local exit = self.config.exit_fn or M.exit
  exit()
end

-- Twice the time of a save is kept for it.
local function is_over(self)
  return raw.monotonic() + 2 * self.took >= self.deadline
end

local function look(self)
  local watcher, strategy = self.config.termination_watcher_fn,
    rawget(self, "strategy")
  if not self.deadline then
    if not M.agreed(strategy, watcher ~= nil and watcher() and true) then
      return
    elseif self.config.grace_period <= 0 then
      return finish(self)
    end
    rawset(self, "deadline", raw.monotonic() + self.config.grace_period)
    save(self)
  elseif together.any(strategy, is_over(self)) then
    finish(self)
  end
end

local function after(self, ...)
  self.counter:assign_add(tf.constant(1, "int64"))
  look(self)
  return ...
end

--- Call fn(args...) (kwargs as a last table) as one step; then save and end when
--- a worker was asked to. Returns what fn returns. Every worker calls it.
--- Source: tf.distribute.experimental.PreemptionCheckpointHandler.run
methods.run = options.method("PreemptionCheckpointHandler.run",
  "fn args:table=nil kwargs:table=nil", function(self, fn, args, kwargs)
    text.check_callable("PreemptionCheckpointHandler.run", "fn", fn)
    local list, n = {}, args and (args.n or #args) or 0
    for i = 1, n do
      list[i] = args[i]
    end
    if kwargs ~= nil then
      n = n + 1
      list[n] = kwargs
    end
    return after(self, fn(unpack(list, 1, n)))
  end, is_handler, "handler")

--- An epoch of the script's own loop is over. Where `tfdist run --min-workers` has
--- left workers out (and TFDIST_RETURN_AFTER epochs are over) all save and end with
--- status 42, and are started again with them; else nothing happens. What the loop
--- needs to go on with the next epoch, its number say, is in variables of the
--- checkpoint. Every worker calls it.
methods.end_epoch = options.method("PreemptionCheckpointHandler.end_epoch", "",
  function(self)
    local left = rawget(self, "return_after")
    rawset(self, "epochs", self.epochs + 1)
    if not left or self.epochs < left then
      return
    end
    save(self)
    if is_told(self) then
      M.say_return "an epoch is over and saved"
    end
    local exit = self.config.exit_fn or M.exit
    exit()
  end, is_handler, "handler")

return M
