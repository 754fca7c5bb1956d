--- Lua values that a model's steps read and scripts may change between two of
--- them: fields of layers, losses, metrics, regularizers and the optimizer.
---
--- A trace has read them once; where they are no longer what they were then, its
--- graph is not what the step would do. A script writes fields without telling
--- anybody, so that they are compared before each step, in C: one look at a table
--- for each field. What a script keeps elsewhere (upvalues, globals) counts as it was
--- at the trace.
local errors = require "tfdist.base.errors"
local layers = require "tfdist.keras.layers.base"
local losses = require "tfdist.keras.losses"
local metric_base = require "tfdist.keras.metrics.base"
local module = require "tfdist.core.module"
local objects = require "tfdist.keras.objects"
local raw = require "tfdist.core.raw"

local M = {}

local getmetatable, ipairs, rawget, type = getmetatable, ipairs, rawget, type
local following = next -- by this name LuaJIT compiles a loop as base.pairs says

-- Fields. A look at them all takes 4 ms, where they are one map 20 ms on Lua 5.4.
local MOST = 65536

-- Fields that steps do not read. The learning rate is asked for at each call.
local IGNORED = {
  _own = true, _training = true, history = true, stop_training = true,
  learning_rate = true,
}

-- Of a layer's private state what can be assigned.
local STATE = { "activation", "activity_regularizer", "trainable", "metrics",
  "policy" }

local function is_small_object(x)
  local meta = getmetatable(x)
  return type(meta) == "table" and (rawget(meta, "family") ~= nil
    or objects.is_own(x, "regularizer") or objects.is_own(x, "constraint"))
end

-- Has it fields that steps read? Variables are tables, too.
local function is_read(x)
  return getmetatable(x) == nil or is_small_object(x) or losses.is_loss(x)
    or metric_base.is_metric(x)
    or module.is_module(x) and not module.is_variable(x)
end

local add

local function add_table(watch, t)
  local copy, n = {}, 0
  for key, value in following, t do
    if not IGNORED[key] then
      n = n + 1
      copy[key] = value
    end
    if watch.fields_n + n > MOST then
      break
    end
  end
  watch.fields_n = watch.fields_n + n
  local at = watch.n + 1
  watch.n = at
  watch.tables[at], watch.copies[at], watch.counts[at] = t, copy, n
  for _, value in following, watch.fields_n <= MOST and copy or {} do
    add(watch, value)
  end
end

local function add_value(watch, t, key)
  local at = watch.values_n + 1
  watch.values_n = at
  watch.owners[at], watch.keys[at], watch.values[at] = t, key, t[key]
end

local function add_layer(watch, layer)
  local own = rawget(layer, "_own")
  if type(own) ~= "table" or type(own.config) ~= "table" then
    return
  end
  for _, key in ipairs(STATE) do
    add_value(watch, own, key)
  end
  add_table(watch, own.config)
  add_table(watch, own.weights)
  add(watch, own.metrics)
  add(watch, own.activity_regularizer)
end

function add(watch, x)
  if type(x) ~= "table" or watch.seen[x] or not is_read(x) then
    return
  end
  watch.seen[x] = true
  add_table(watch, x)
  if layers.is_layer(x) then
    add_layer(watch, x)
  end
end

local function add_optimizer(watch, optimizer)
  local own = rawget(optimizer, "own")
  if own == nil then
    return
  elseif own.inner ~= nil then
    add_optimizer(watch, own.inner) -- it wraps another one
  elseif own.hyper ~= nil then
    add_table(watch, own.hyper)
    add_value(watch, own, "excluded")
  end
end

--- What a step of the model would read now; nil where that is too much to be
--- looked at before each step. All that is in the layers' fields is watched, so
--- that their variables and metrics stay the same with them.
---@param model table
---@param own table  its training state
---@param mode string  "train", "test", "predict"
---@return table?  for M.same
function M.of(model, own, mode)
  local watch = { n = 0, tables = {}, copies = {}, counts = {}, values_n = 0,
    owners = {}, keys = {}, values = {}, fields_n = 0, seen = {} }
  layers.each_layer(model, function(layer)
    add(watch, layer)
  end)
  if mode ~= "predict" then
    add(watch, own.losses)
    add(watch, own.metrics_made)
  end
  if mode == "train" and own.optimizer ~= nil then
    add_optimizer(watch, own.optimizer)
  end
  watch.seen = nil
  return watch.fields_n <= MOST and watch or nil
end

--- The error that stands for what M.of has nothing for.
function M.too_many()
  return errors.new("ValueError", ("its layers, losses, metrics and optimizer "
    .. "have more than %d fields, too many to see a change in"):format(MOST),
    "a step does not look at what a function keeps in a local")
end

--- Would a step read now what it would have read then?
---@param watch table  what M.of returned
---@return boolean
function M.same(watch)
  return raw.same_fields(watch.tables, watch.copies, watch.counts, watch.n,
    IGNORED) and raw.same_values(watch.owners, watch.keys, watch.values,
    watch.values_n)
end

return M
