--- Callbacks: the base class and the list that fit calls.
---
--- A callback is an object of a subclass of Callback, or a plain table with
--- on_* functions: { on_epoch_end = function(self, epoch, logs) end }. Epochs
--- and batches count from 0. fit sets the fields `model` and `params`.
local classes = require "tfdist.base.classes"
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local module = require "tfdist.core.module"
local notice = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

local type, rawget, rawset = type, rawget, rawset

local HOOKS = {
  "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end",
  "on_train_batch_begin", "on_train_batch_end", "on_batch_begin",
  "on_batch_end", "on_test_begin", "on_test_end", "on_test_batch_begin",
  "on_test_batch_end", "on_predict_begin", "on_predict_end",
  "on_predict_batch_begin", "on_predict_batch_end",
}

local IS_HOOK = {}
for _, name in ipairs(HOOKS) do
  IS_HOOK[name] = true
end

--- Base class: `local Mine = tf.keras.callbacks.Callback:subclass "Mine"`,
--- then functions Mine:on_epoch_end(epoch, logs) and the like; Mine:init(...) is
--- the constructor and calls tf.keras.callbacks.Callback.init(self).
--- Source: tf.keras.callbacks.Callback
local Callback = module.Module:subclass "Callback"
Callback.is_tf_callback = true
M.Callback = Callback

function Callback:init() end

function Callback:set_model(model)
  rawset(self, "model", model)
end

function Callback:set_params(params)
  rawset(self, "params", params)
end

function Callback:__tostring()
  return self.__name
end

--- True for objects of Callback and its subclasses.
function M.is_callback(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  return type(meta) == "table" and meta.is_tf_module == true
    and x.is_tf_callback == true
end

classes.guard(Callback, M.is_callback, "callback")

--- A class of this library.
---@param name string
---@param signature string
---@param init fun(self, ...)
function M.define(name, signature, init)
  local class = Callback:subclass(name)
  classes.guard(class, M.is_callback, "callback")
  class.init = options.method(name, signature, init, M.is_callback, "callback")
  return class
end

-- Monitors -------------------------------------------------------------------

local MODES = { "auto", "min", "max" }

--- Comparison of a monitored value by mode: function(a, b) -> a is better, and
--- the worst value there is.
---@param callback table  its `monitor` names the value
function M.comparison(callback, mode)
  mode = options.choice(callback.__name, "mode", mode, MODES)
  if mode == "auto" then
    local name = callback.monitor
    local rising = name:find("acc", 1, true) or name:find("auc", 1, true)
      or name:find("precision", 1, true) or name:find("recall", 1, true)
      or name:find("f1", 1, true) or name:find("^fmeasure")
      or name:find("io_u", 1, true)
    mode = rising and "max" or "min"
  end
  if mode == "max" then
    return function(a, b)
      return a > b
    end, -math.huge, "max"
  end
  return function(a, b)
    return a < b
  end, math.huge, "min"
end

--- Make room for a line on stderr.
function M.step_aside(callback)
  local trainer = rawget(callback, "trainer")
  if trainer ~= nil and trainer.progress ~= nil then
    trainer.progress:interrupt()
  end
end

--- A line on stderr.
function M.say(callback, format, ...)
  M.step_aside(callback)
  io.stderr:write("tfdist: " .. format:format(...) .. "\n")
end

--- The monitored value in logs; a name that is not there gives nil and, once,
--- a warning that names what there is.
function M.monitored(callback, logs)
  local value = logs[callback.monitor]
  if type(value) == "number" then
    return value
  elseif not rawget(callback, "warned") then
    rawset(callback, "warned", true)
    M.step_aside(callback)
    notice.warn(("%s: %s is %s; available are %s"):format(callback.__name,
      text.quote(callback.monitor), value == nil and "not among the logs"
      or "no number", table.concat(text.names(logs), ", ")))
  end
  return nil
end

function M.check_string(callback, name, x)
  if type(x) ~= "string" then
    errors.raise("TypeError", ("%s: %s must be a string, got %s"):format(
      callback.__name, name, text.describe(x)))
  elseif x == "" then
    errors.raise("ValueError", ("%s: %s is empty; expected some text"):format(
      callback.__name, name))
  end
  return x
end

function M.check_path(callback, name, x)
  return files.path(callback.__name, name, M.check_string(callback, name, x))
end

-- The list -------------------------------------------------------------------

local List = { __name = "CallbackList" }
List.__index = List

-- What fit sets on a callback.
local OWN = { model = true, params = true, trainer = true }

local EXPECTED = "a list of callbacks, or one table with on_* functions, expected"

local function is_like_hook(key)
  return type(key) == "string" and key:find "^on_" ~= nil
end

-- The first key that is no hook, no position unless they count as such, and
-- nothing that fit sets: whoever gives it means something by it.
local function stray_key(x, positions)
  for key in pairs(x) do
    if not OWN[key] and not (positions and text.is_whole(key) and key >= 1) then
      return key
    end
  end
  return nil
end

local function has_hooks(x)
  for key in pairs(x) do
    if is_like_hook(key) then
      return true
    end
  end
  return false
end

local function stray(what, key, expected)
  errors.raise("TypeError", ("callbacks: %s has the key %s and no hook; %s")
    :format(what, type(key) == "number" and text.number(key) or text.name(key),
    expected), type(key) == "string"
    and text.suggestion(key, HOOKS, "hook") or nil)
end

-- The name of x's first hook, with those of its class.
local function first_hook(x)
  for i = 1, #HOOKS do
    if x[HOOKS[i]] ~= nil then
      return HOOKS[i]
    end
  end
  return nil
end

-- A table with hooks is one callback: others among its positions would never be
-- called.
local function check_alone(x)
  for i, each in ipairs(x) do
    local found, other = false, nil
    if type(each) == "table" then
      found, other = errors.attempt(first_hook, each)
    end
    if M.is_callback(each) or found and other ~= nil then
      local hook = first_hook(x)
      errors.raise("TypeError", ("callbacks: a table with %s is one callback, "
        .. "and nobody would call %s at position %d of it"):format(hook,
        text.describe(each), i), ("two callbacks are { callback, { %s = ... } "
        .. "}; a callback that keeps another gives it a name, { inner = "
        .. "callback, %s = ... }"):format(hook, hook))
    end
  end
end

-- Objects of the user's own classes may get their hooks later; modules and
-- optimizers are here by mistake, as are lists of callbacks with methods.
local function check_object(what, x)
  local meta = getmetatable(x)
  local read, hook = errors.attempt(first_hook, x)
  if read and hook ~= nil then
    return
  end
  local first = rawget(x, 1)
  local is_list = M.is_callback(first) or text.is_plain(first)
    and has_hooks(first)
  if not read or is_list or type(meta) == "table"
    and (meta.is_tf_module or meta.is_tf_optimizer) then
    errors.raise("TypeError", ("callbacks: %s must be a callback or a table "
      .. "with on_* functions, got %s"):format(what, text.describe(x)),
      not read and "asked for its hooks it says: " .. tostring(hook)
      or is_list and "a list of callbacks is a plain table" or nil)
  end
end

local function check_table(x)
  for key in pairs(x) do
    if is_like_hook(key) and not IS_HOOK[key] then
      errors.raise("ValueError", "callbacks: there is no hook "
        .. text.quote(key), text.suggestion(key, HOOKS, "hook"))
    end
  end
  for i = 1, #HOOKS do
    local hook = x[HOOKS[i]]
    if hook ~= nil and not text.is_callable(hook) then
      errors.raise("TypeError", ("callbacks: %s must be a function, got %s")
        :format(HOOKS[i], text.describe(hook)))
    end
  end
  if text.is_plain(x) then
    check_alone(x)
  end
end

local function check_entry(what, x)
  text.refuse_class("callbacks", what, x)
  if M.is_callback(x) then
    return x
  elseif type(x) ~= "table" then
    errors.raise("TypeError", ("callbacks: %s must be a callback or a table "
      .. "with on_* functions, got %s"):format(what, text.describe(x)))
  elseif not text.is_plain(x) then
    check_object(what, x)
  elseif not has_hooks(x) then
    local key = stray_key(x)
    if key ~= nil then
      stray(what, key, "a callback, or a table with on_* functions, expected")
    end
  end
  return x
end

local function entries_of(given)
  if given == nil then
    return {}
  elseif type(given) == "table" and (not text.is_plain(given)
    or has_hooks(given)) then
    return { check_entry("the callback", given) }
  elseif not text.is_plain(given) then
    errors.raise("TypeError", "callbacks: a list of callbacks expected, got "
      .. text.describe(given))
  end
  local key = stray_key(given, true)
  if key ~= nil and key ~= "n" then
    stray("the table", key, EXPECTED)
  end
  local list = {}
  for i = 1, #given do
    list[i] = check_entry("entry " .. i, given[i])
  end
  return list
end

--- The callbacks of one call of fit, evaluate or predict.
---@param given any      what the user gave
---@param model table
---@param params table   { epochs, steps, verbose }
---@param trainer table  { progress }
---@param more? table[]  callbacks that come after them
function M.list(given, model, params, trainer, more)
  local list = entries_of(given)
  local count = #list
  for _, each in ipairs(more or {}) do
    list[#list + 1] = each
  end
  for _, each in ipairs(list) do
    check_table(each)
    rawset(each, "trainer", M.is_callback(each) and trainer or nil)
    if M.is_callback(each) then
      each:set_model(model)
      each:set_params(params)
    else
      each.model, each.params = model, params
    end
  end
  return setmetatable({ list = list, given = count }, List)
end

--- From now on note in whose hook the model is told to stop.
function List:watch(model)
  self.watched, self.stopper = model, nil
end

local function name_of(callback, hook)
  local name = callback.__name
  return type(name) == "string" and ("%s of %s"):format(hook, name) or hook
end

--- Call a hook of every callback that has it.
function List:call(name, ...)
  local watched = self.watched
  for i, each in ipairs(self.list) do
    local hook = each[name]
    if hook ~= nil then
      self.at = i
      hook(each, ...)
      if watched ~= nil and self.stopper == nil and watched.stop_training then
        self.stopper = name_of(each, name)
      end
    end
  end
end

--- Has none of the user's callbacks this hook behind the one that was called
--- last?
function List:called_last(name)
  for i = (self.at or 0) + 1, self.given do
    if self.list[i][name] ~= nil then
      return false
    end
  end
  return true
end

-- Names of the hooks of a batch.
local BATCH = {
  train = { ["begin"] = { "on_train_batch_begin", "on_batch_begin" },
    ["end"] = { "on_train_batch_end", "on_batch_end" } },
  test = { ["begin"] = { "on_test_batch_begin" },
    ["end"] = { "on_test_batch_end" } },
  predict = { ["begin"] = { "on_predict_batch_begin" },
    ["end"] = { "on_predict_batch_end" } },
}

--- Call the batch hooks.
function List:batch(phase, mode, step, logs)
  for _, name in ipairs(BATCH[mode][phase]) do
    self:call(name, step, logs or {})
  end
end

--- True when some callback has a hook for the end of a batch, which it may have
--- got since the last one, or another worker's reads the logs.
function List:wants_batch(mode)
  if self.agreed ~= nil and self.agreed[mode] then
    return true
  end
  for _, each in ipairs(self.list) do
    for _, name in ipairs(BATCH[mode]["end"]) do
      if each[name] ~= nil then
        return true
      end
    end
  end
  return false
end

--- True when one of them reads the logs: they then are read after each batch,
--- which waits for the devices. Also when another worker's does: `agreed`, by
--- mode, where workers have settled that.
function List:wants_logs(mode)
  if self.agreed ~= nil and self.agreed[mode] then
    return true
  end
  for _, each in ipairs(self.list) do
    for _, name in ipairs(BATCH[mode]["end"]) do
      if each[name] ~= nil and not (M.is_callback(each)
        and each.ignores_batch_logs) then
        return true
      end
    end
  end
  return false
end

--- The modes in which callbacks here read the logs of batches; those of
--- predictions are no worker's alone.
function List:modes_with_logs()
  local list = {}
  self.agreed = nil
  for _, mode in ipairs { "train", "test" } do
    if self:wants_logs(mode) then
      list[#list + 1] = mode
    end
  end
  return list
end

return M
