--- Lua values that a model's steps read and scripts may change between two of
--- them: fields of layers, losses, metrics, regularizers and the optimizer.
---
--- A trace has read them once; where they are no longer what they were then, its
--- graph is not what the step would do. A script writes fields without telling
--- anybody, so that they are compared before each step, in C: one look at a table
--- for each field. What a script keeps elsewhere (upvalues, globals) counts as it was
--- at the trace.
local layers = require "tfdist.keras.layers.base"
local losses = require "tfdist.keras.losses"
local metric_base = require "tfdist.keras.metrics.base"
local module = require "tfdist.core.module"
local objects = require "tfdist.keras.objects"
local raw = require "tfdist.core.raw"

local M = {}

local getmetatable, ipairs, next, rawget, type = getmetatable, ipairs, next,
  rawget, type

local MOST = 64 -- plain values in one table; larger ones are data

-- Fields that steps do not read. The learning rate is asked for at each call.
local IGNORED = {
  _own = true, _training = true, history = true, stop_training = true,
  learning_rate = true,
}

-- Of a layer's private state what can be assigned.
local STATE = { "activation", "activity_regularizer", "trainable", "metrics" }

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

-- The fields that count, and how many; nil for data.
local function fields_of(t)
  local copy, n, plain = {}, 0, 0
  for key, value in next, t do
    if not IGNORED[key] then
      n = n + 1
      copy[key] = value
      plain = plain + (type(value) == "table" and is_read(value) and 0 or 1)
      if plain > MOST then
        return nil
      end
    end
  end
  return copy, n
end

local add

local function add_table(watch, t)
  local copy, n = fields_of(t)
  if copy == nil then
    watch.whole = false
    return
  end
  local at = watch.n + 1
  watch.n = at
  watch.tables[at], watch.copies[at], watch.counts[at] = t, copy, n
  for _, value in next, copy do
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

--- What a step of the model would read now. `whole` in it: all that is in the
--- layers' fields is watched, so that their variables and metrics stay the same
--- with them.
---@param model table
---@param own table  its training state
---@param mode string  "train", "test", "predict"
---@return table  for M.same
function M.of(model, own, mode)
  local watch = { n = 0, tables = {}, copies = {}, counts = {}, values_n = 0,
    owners = {}, keys = {}, values = {}, whole = true, seen = {} }
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
  return watch
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
