--- tf.keras.optimizers: rules of updating, with slots made by the strategy.
---
--- apply_gradients in a replica function is a sync point: gradients are summed
--- over replicas, then every copy of every variable is updated on its device.
--- A rule works on one copy and its slots and does not know of replicas.
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.errors"
local options = require "tfdist.options"
local raw = require "tfdist.raw"
local reduce = require "tfdist.distribute.reduce"
local replica = require "tfdist.distribute.replica"
local rules = require "tfdist.keras.update_rules"
local schedules = require "tfdist.keras.schedules"
local state = require "tfdist.state"
local text = require "tfdist.text"
local tf = require "tfdist"
local values = require "tfdist.distribute.values"
local variable = require "tfdist.variable"

local M = { schedules = schedules }

local type = type

-- Puts the default context in place.
require "tfdist.distribute"

local methods, getters = {}, {}

local function is_optimizer(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  return type(meta) == "table" and meta.is_tf_optimizer == true
end

M.is_optimizer = is_optimizer

local function method(name, signature, fn)
  methods[name] = options.method("optimizer:" .. name, signature, fn,
    is_optimizer, "optimizer")
end

-- Hyperparameters ------------------------------------------------------------

local function number_of(x)
  if type(x) == "userdata" and raw.is_operand(x) then
    return raw.item(raw.operand_tensor(x))
  end
  return x
end

-- Steps taken; read from the variable only when somebody else wrote it.
local function steps(self)
  local own = rawget(self, "own")
  local v = own.iterations
  if v == nil then
    return 0
  elseif own.step_version ~= v.version then
    own.step, own.step_version = v:read_value():item(), v.version
  end
  return own.step
end

local function learning_rate(self, step)
  local own = rawget(self, "own")
  local lr = own.hyper.learning_rate
  if schedules.is_schedule(lr) or type(lr) == "function" then
    lr = number_of(lr(step))
  end
  lr = number_of(lr)
  local decay = number_of(own.hyper.decay or 0)
  return decay > 0 and lr / (1 + decay * step) or lr
end

-- The rule's numbers for this step, plain.
local function hyper_of(self)
  local own = rawget(self, "own")
  local step = steps(self)
  local h = { step = step }
  for name, value in pairs(own.hyper) do
    if name ~= "learning_rate" then
      h[name] = number_of(value)
    end
  end
  h.learning_rate = learning_rate(self, step)
  return h
end

-- Slots ----------------------------------------------------------------------

-- Call fn where variables belong to the strategy that was current when the
-- optimizer was made (nil: to the one of `like`).
local function in_scope_of(strategy, fn)
  local mode = contexts.mode()
  if strategy == nil or strategy == contexts.default_strategy
    or (mode ~= nil and mode.strategy == strategy) then
    return fn()
  end
  return strategy:scope(fn)
end

local function make_iterations(self)
  local own = rawget(self, "own")
  if own.iterations == nil then
    own.iterations = in_scope_of(own.strategy, function()
      return tf.Variable(0, {
        dtype = "int64", trainable = false, name = own.name .. "/iterations",
        aggregation = "ONLY_FIRST_REPLICA",
      })
    end)
  end
  return own.iterations
end

local function check_slot_scope(v)
  local owner = values.strategy_of(v) or contexts.default_strategy
  local current = contexts.get_strategy()
  if owner ~= current and owner ~= contexts.default_strategy then
    errors.raise("ValueError", ("optimizer: Trying to create optimizer slot "
      .. "variable under the scope of a %s, which is different from the "
      .. "strategy (%s) of variable %s"):format(current.name, owner.name,
      text.quote(v.name)), "create it in strategy:scope(function() ... end)")
  end
end

--- The slot of a variable, made on first use with a value like the variable's
--- (initializer: a number, a tensor or a function of the shape).
--- Errors: ValueError outside of the variable's strategy.
--- Source: tf.keras.optimizers.Optimizer.add_slot
method("add_slot", "var slot_name initializer=0", function(self, v, name,
    initial)
  local own = rawget(self, "own")
  local slots = own.slots[v]
  if slots == nil then
    slots = {}
    own.slots[v] = slots
  end
  if slots[name] == nil then
    check_slot_scope(v)
    slots[name] = tf.Variable(function()
      if type(initial) == "number" then
        return tf.fill(v.shape, tf.constant(initial, v.dtype))
      elseif type(initial) == "function" then
        return initial(v.shape, v.dtype)
      end
      return initial
    end, { trainable = false, name = v.name .. "/" .. name })
    own.order[#own.order + 1] = slots[name]
  end
  return slots[name]
end)

--- The slot, nil if there is none yet.
method("get_slot", "var slot_name", function(self, v, name)
  local slots = rawget(self, "own").slots[v]
  return slots and slots[name]
end)

method("get_slot_names", "", function(self)
  local list = {}
  for i, entry in ipairs(rawget(self, "own").rule.slots(
    rawget(self, "own").hyper)) do
    list[i] = entry[1]
  end
  return list
end)

-- Applying -------------------------------------------------------------------

-- The copies of a variable and where they are.
local function copies_of(v)
  local list = values.is_mirrored(v) and values.components(v) or { v, n = 1 }
  local devices = {}
  for i = 1, list.n do
    devices[i] = raw.tensor_device(raw.operand_tensor(list[i]))
  end
  return list, devices
end

local function dense(grad)
  return raw.kind(grad) == "slices" and raw.slices_to_dense(grad) or grad
end

-- Clip summed gradients, all of one copy.
local function clip(hyper, grads)
  if hyper.clipvalue then
    for k = 1, grads.n do
      grads[k] = tf.clip_by_value(dense(grads[k]), -hyper.clipvalue,
        hyper.clipvalue)
    end
  end
  if hyper.clipnorm then
    for k = 1, grads.n do
      grads[k] = tf.clip_by_norm(dense(grads[k]), hyper.clipnorm)
    end
  end
  if hyper.global_clipnorm then
    local clipped = tf.clip_by_global_norm(grads, hyper.global_clipnorm)
    for k = 1, grads.n do
      grads[k] = clipped[k]
    end
  end
  return grads
end

-- Update copy i of every variable: grads[k] is variable k's.
local function update_copies(self, hyper, vars, grads, i, devices)
  local own = rawget(self, "own")
  raw.device_push(devices[1])
  local depth = raw.device_depth() - 1
  raw.tape_pause_all(true)
  state.protect(function()
    raw.tape_pause_all(false)
    while raw.device_depth() > depth do
      raw.device_pop()
    end
  end, function()
    clip(hyper, grads)
    for k = 1, vars.n do
      local slots = {}
      for _, entry in ipairs(own.rule.slots(own.hyper)) do
        slots[entry[1]] = values.component_of(own.slots[vars[k]][entry[1]],
          i - 1)
      end
      local v = values.component_of(vars[k], i - 1)
      if raw.kind(grads[k]) == "slices" and own.rule.sparse ~= nil then
        own.rule.sparse(tf, v, grads[k], slots, hyper)
      else
        own.rule.dense(tf, v, dense(grads[k]), slots, hyper)
      end
      local constraint = v.constraint
      if constraint ~= nil then
        v:assign(constraint(v:read_value()))
      end
    end
  end)
end

local function make_slots(self, vars)
  local own = rawget(self, "own")
  make_iterations(self)
  for k = 1, vars.n do
    for _, entry in ipairs(own.rule.slots(own.hyper)) do
      self:add_slot(vars[k], entry[1], entry[2])
    end
  end
end

local function check_clipping(hyper, strategy)
  if (hyper.clipnorm or hyper.clipvalue or hyper.global_clipnorm)
    and M.is_central(strategy) then
    errors.raise("ValueError", "apply_gradients: gradient clipping in the "
      .. "optimizer (clipnorm, clipvalue, global_clipnorm) is not supported by "
      .. strategy.name, "clip the gradients yourself")
  end
end

--- True for strategies that keep each variable once for several replicas.
function M.is_central(strategy)
  return strategy.num_replicas_in_sync > 1
    and raw.strategy_parameter_count(strategy.handle) == 1
end

-- grads[k][i]: the gradient for copy i of variable k.
local function update_all(self, vars, grads)
  local own = rawget(self, "own")
  make_slots(self, vars)
  local hyper = hyper_of(self)
  -- Copy 0 of everything, then copy 1: the devices work at once.
  local _, devices = copies_of(vars[1])
  for i = 1, #devices do
    local mine = { n = vars.n }
    for k = 1, vars.n do
      mine[k] = grads[k][i] or grads[k][1]
    end
    update_copies(self, hyper, vars, mine, i, { devices[i] })
  end
  own.iterations:assign_add(1)
  own.step, own.step_version = hyper.step + 1, own.iterations.version
end

-- Sum of each variable's gradients over replicas, a component per copy.
local function aggregate(strategy, payloads, vars)
  if not M.is_central(strategy) then
    local lists = { n = payloads.n }
    for i = 1, payloads.n do
      lists[i] = payloads[i].grads
    end
    return reduce.all_reduce(strategy, "SUM", lists, "apply_gradients")
  end
  local grads = {}
  for k = 1, vars.n do
    local parts = { n = payloads.n }
    for i = 1, payloads.n do
      parts[i] = payloads[i].grads[k]
    end
    local _, devices = copies_of(vars[k])
    grads[k] = values.components(raw.strategy_reduce(strategy.handle, "sum",
      "apply_gradients", parts, devices))
  end
  return grads
end

local function as_they_are(strategy, payloads, vars)
  if M.is_central(strategy) then
    errors.raise("NotImplementedError", "apply_gradients: "
      .. "experimental_aggregate_gradients = false is not supported by "
      .. strategy.name)
  end
  local grads = {}
  for k = 1, vars.n do
    grads[k] = {}
    for i = 1, payloads.n do
      grads[k][i] = payloads[i].grads[k]
    end
  end
  return grads
end

local function check_strategy(v, strategy, what)
  local owner = values.strategy_of(v) or contexts.default_strategy
  if owner == strategy or strategy == contexts.default_strategy then
    return
  end
  local made = variable.origin(values.component_of(v, 0))
  errors.raise("ValueError", ("%s got variable %s %s that was made outside "
    .. "this strategy's scope%s"):format(what, text.quote(v.name),
    text.shape(v.shape), made and " (made at " .. made .. ")" or ""),
    "build the model inside strategy:scope(function() ... end)")
end

local function check_variable(v, what)
  if type(v) ~= "userdata"
    or (raw.kind(v) ~= "variable" and raw.kind(v) ~= "mirrored") then
    errors.raise("TypeError", ("%s: expected variables, got %s"):format(what,
      text.describe(v)))
  end
end

-- Lists of gradients and variables from either form of call.
local function split_pairs(grads, vars)
  local what = "optimizer:apply_gradients"
  if vars ~= nil then
    local n = vars.n or #vars
    if (grads.n or n) ~= n then
      errors.raise("ValueError", ("%s: %d gradients for %d variables"):format(
        what, grads.n, n))
    end
    return grads, vars, n
  end
  local left, right = {}, {}
  local n = grads.n or #grads
  for k = 1, n do
    local pair = grads[k]
    if not text.is_plain(pair) then
      errors.raise("TypeError", ("%s: expected gradients and variables, or a "
        .. "list of { gradient, variable }; entry %d is %s"):format(what, k,
        text.describe(pair)), "optimizer:apply_gradients(grads, vars)")
    end
    left[k], right[k] = pair[1], pair[2]
  end
  return left, right, n
end

-- Without the pairs that have no gradient.
local function filter(grads, vars, n, strategy)
  local what = "optimizer:apply_gradients"
  local kept = { grads = { n = 0 }, vars = { n = 0 } }
  local names = {}
  for k = 1, n do
    check_variable(vars[k], what)
    check_strategy(vars[k], strategy, what)
    names[k] = vars[k].name
    local g = grads[k]
    if g ~= nil then
      if type(g) ~= "userdata"
        or not (raw.is_operand(g) or raw.kind(g) == "slices") then
        errors.raise("TypeError", ("%s: the gradient of %s must be a tensor or "
          .. "IndexedSlices, got %s"):format(what, text.quote(names[k]),
          text.describe(g)))
      end
      local m = kept.grads.n + 1
      kept.grads.n, kept.vars.n = m, m
      kept.grads[m], kept.vars[m] = g, vars[k]
    end
  end
  if n > 0 and kept.vars.n == 0 then
    errors.raise("ValueError", what .. ": No gradients provided for any "
      .. "variable: " .. table.concat(names, ", "),
      "is the loss computed from these variables inside the tape?")
  end
  return kept
end

--- Update variables by gradients: two lists of the same length (or one list of
--- { gradient, variable }). In a replica function gradients are summed over
--- replicas first, unless experimental_aggregate_gradients is false. Variables
--- whose gradient is nil are left out. Returns the step count variable.
--- Errors: RuntimeError in cross-replica context; ValueError when no variable
---   has a gradient, or one is of another strategy.
--- Source: tf.keras.optimizers.Optimizer.apply_gradients
method("apply_gradients", "grads vars:table=nil name=nil "
  .. "experimental_aggregate_gradients=true",
  function(self, grads, vars, _, aggregated)
    if contexts.in_cross_replica_context() and contexts.has_strategy() then
      errors.raise("RuntimeError", "`apply_gradients() cannot be called in "
        .. "cross-replica context", "call it in the function given to "
        .. "strategy:run")
    end
    local context = contexts.get_replica_context()
    local n
    grads, vars, n = split_pairs(grads, vars)
    local kept = filter(grads, vars, n, context.strategy)
    if kept.vars.n == 0 then
      return make_iterations(self)
    end
    replica.sync(context, "apply_gradients("
      .. kept.vars.n .. " variables)", kept, function(strategy, payloads)
        local first = payloads[1].vars
        check_clipping(rawget(self, "own").hyper, strategy)
        if strategy.one_copy then
          local own = {}
          for k = 1, first.n do
            own[k] = { payloads[1].grads[k] }
          end
          update_all(self, first, own)
        else
          update_all(self, first, (aggregated and aggregate or as_they_are)(
            strategy, payloads, first))
        end
      end)
    return rawget(self, "own").iterations
  end)

--- Gradient of loss (a function without arguments) for vars, then
--- apply_gradients.
--- Source: tf.keras.optimizers.Optimizer.minimize
method("minimize", "loss var_list:table grad_loss=nil name=nil tape=nil",
  function(self, loss, vars, grad_loss, _, tape)
    if type(loss) == "function" then
      tape, loss = tf.GradientTape(loss)
    elseif tape == nil then
      errors.raise("ValueError", "optimizer:minimize: a loss that is a tensor "
        .. "needs the tape that recorded it", "pass a function, or tape = tape")
    end
    if type(vars) == "function" then
      vars = vars()
    end
    local grads = tape:gradient(loss, vars, { output_gradients = grad_loss })
    return self:apply_gradients(grads, vars)
  end)

-- Access ---------------------------------------------------------------------

--- Number of steps taken, an int64 variable.
function getters.iterations(self)
  return make_iterations(self)
end

--- iterations, then slots in the order they were made.
function getters.variables(self)
  local own = rawget(self, "own")
  local list = { make_iterations(self) }
  for i, v in ipairs(own.order) do
    list[i + 1] = v
  end
  return list
end

getters.weights = getters.variables

function getters.name(self)
  return rawget(self, "own").name
end

--- Hyperparameters as given, with the name.
method("get_config", "", function(self)
  local own = rawget(self, "own")
  local config = { name = own.name }
  for name, value in pairs(own.hyper) do
    config[name] = value
  end
  return config
end)

local function new(meta, rule, name, hyper)
  return setmetatable({ own = {
    rule = rule, name = name, hyper = hyper, order = {},
    slots = setmetatable({}, { __mode = "k" }),
    strategy = contexts.mode() and contexts.get_strategy() or nil,
  } }, meta)
end

local ALIASES = { lr = "learning_rate" }

local function make_class(name)
  local meta = { __name = name, is_tf_optimizer = true }
  function meta.__index(self, key)
    if methods[key] ~= nil then
      return methods[key]
    elseif getters[key] ~= nil then
      return getters[key](self)
    end
    return rawget(self, "own").hyper[ALIASES[key] or key]
  end
  function meta.__newindex(self, key, value)
    local hyper = rawget(self, "own").hyper
    key = ALIASES[key] or key
    if hyper[key] == nil and not rules.COMMON[key] then
      errors.raise("KeyError", ("%s has no hyperparameter %s"):format(name,
        text.describe(key)))
    end
    hyper[key] = value
  end
  function meta.__tostring(self)
    return ("%s (learning rate %s, %d steps)"):format(name,
      text.number(learning_rate(self, steps(self))), steps(self))
  end
  return meta
end

local function define(name, rule)
  local meta = make_class(name)
  local sig = options.signature(name, rule.signature .. " name=nil decay=0 "
    .. "clipnorm=nil clipvalue=nil global_clipnorm=nil lr=nil")
  local parse = options.wrap_signature(sig, function(...)
    local hyper, given = {}, { ... }
    for i = 1, sig.n do
      hyper[sig.names[i]] = given[i]
    end
    hyper.learning_rate = hyper.lr or hyper.learning_rate
    local own_name = hyper.name or name
    hyper.lr, hyper.name = nil, nil
    rules.check(name, hyper)
    if hyper.clipnorm and hyper.global_clipnorm then
      errors.raise("ValueError", name .. ": give one of clipnorm and "
        .. "global_clipnorm")
    end
    return new(meta, rule, own_name, hyper)
  end)
  M[name] = parse
end

for name, rule in pairs(rules.rules) do
  define(name, rule)
end

--- An optimizer from its name in any case, or the optimizer itself.
--- Source: tf.keras.optimizers.get
function M.get(identifier)
  if is_optimizer(identifier) then
    return identifier
  elseif type(identifier) == "string" then
    for name in pairs(rules.rules) do
      if name:lower() == identifier:lower() then
        return M[name]()
      end
    end
  end
  local names = {}
  for name in pairs(rules.rules) do
    names[#names + 1] = name
  end
  table.sort(names)
  errors.raise("ValueError", "optimizers.get: unknown optimizer "
    .. text.describe(identifier), "there are " .. table.concat(names, ", "))
end

return M
