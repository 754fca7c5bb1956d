--- tf.keras.optimizers: rules of updating, with slots made by the strategy.
---
--- apply_gradients in a replica function is a sync point: gradients are summed
--- over replicas, then every copy of every variable is updated on its device.
--- A rule works on one copy and its slots and does not know of replicas.
local apply = require "tfdist.keras.apply"
local averages = require "tfdist.keras.averages"
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local hypers = require "tfdist.keras.hypers"
local kinds = require "tfdist.base.kinds"
local lists = require "tfdist.base.lists"
local notice = require "tfdist.base.notice"
local object_graph = require "tfdist.train.object_graph"
local objects = require "tfdist.keras.objects"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local replica = require "tfdist.distribute.replica"
local rules = require "tfdist.keras.update_rules"
local schedules = require "tfdist.keras.schedules"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"
local values = require "tfdist.distribute.values"
local variable = require "tfdist.core.variable"

local M = {
  schedules = text.watch("tf.keras.optimizers.schedules", schedules),
}

local type = type

-- Puts the default context in place.
require "tfdist.distribute"

local methods, getters = {}, {}

local is_optimizer = object_graph.is_optimizer

local function method(name, signature, fn)
  methods[name] = options.method("optimizer:" .. name, signature, fn,
    is_optimizer, "optimizer")
end

-- Arguments ------------------------------------------------------------------

local function is_variable(v)
  if type(v) ~= "userdata" then
    return false
  end
  local kind = raw.kind(v)
  return kind == "variable" or kind == "mirrored"
end

kinds.add("variable", "a variable", is_variable)

local function check_variable(v, what)
  text.check_open(v, what)
  if not is_variable(v) then
    errors.raise("TypeError", ("%s: expected variables, got %s"):format(what,
      text.describe(v)))
  end
end

-- The variables of a list, not their copies.
local function containers(what, vars)
  local _, n = options.list(what, "var_list", vars)
  local list = { n = n }
  for k = 1, n do
    list[k] = values.container(vars[k])
    check_variable(list[k], what)
  end
  return list
end

-- Slots ----------------------------------------------------------------------

local function own_of(self)
  return rawget(self, "own")
end

--- The slot of a variable, made on first use with a value like the variable's
--- (initializer: a number, a tensor or a function of shape and dtype).
--- Errors: ValueError in the scope of a strategy that is not the variable's.
--- Source: tf.keras.optimizers.Optimizer.add_slot
method("add_slot", "var:variable slot_name:string initializer=0", function(self, v, name,
    initial)
  return apply.add_slot(own_of(self), v, name, initial)
end)

--- The slot, nil if there is none yet.
method("get_slot", "var:variable slot_name:string", function(self, v, name)
  local slots = own_of(self).slots[v]
  return slots and slots[name]
end)

--- Names of the slots that every variable gets.
method("get_slot_names", "", function(self)
  local list, own = {}, own_of(self)
  for i, entry in ipairs(own.rule.slots(hypers.of(own))) do
    list[i] = entry[1]
  end
  return list
end)

--- Make the step count and the slots of these variables now rather than at
--- the first step. Source: tf.keras.optimizers.Optimizer.build
method("build", "var_list:list", function(self, vars)
  apply.build(own_of(self), containers("optimizer:build", vars),
    hypers.of(own_of(self)))
end)

--- Leave variables out of weight decay: those in var_list and those whose names
--- match one of var_names (Lua patterns).
--- Source: tf.keras.optimizers.Optimizer.exclude_from_weight_decay
method("exclude_from_weight_decay", "var_list:list=nil var_names:list=nil",
  function(self, vars, names)
    local excluded, what = { vars = {}, names = {} },
      "optimizer:exclude_from_weight_decay"
    for _, v in ipairs(containers(what, vars or {})) do
      excluded.vars[v] = true
    end
    for i, name in ipairs(names or {}) do
      kinds.check(what, "var_names[" .. i .. "]", "string", name)
      excluded.names[i] = name
    end
    own_of(self).excluded = excluded
  end)

--- With use_ema: put the running means in place of the variables, at the end
--- of training.
--- Source: tf.keras.optimizers.Optimizer.finalize_variable_values
method("finalize_variable_values", "var_list:list", function(self, vars)
  local own = own_of(self)
  local list = containers("optimizer:finalize_variable_values", vars)
  if own.hyper.use_ema then
    averages.overwrite(own, list)
  end
end)

-- Applying -------------------------------------------------------------------

local function check_strategy(v, strategy, what)
  local owner = values.strategy_of(v) or contexts.default_strategy
  if owner == strategy then
    return
  elseif strategy == contexts.default_strategy then
    errors.raise("RuntimeError", ("%s: the replicas of a %s update its "
      .. "variable %s together, and this call is outside of strategy:run")
      :format(what, owner.name, text.quote(v.name)), "call it in the function "
      .. "given to strategy:run")
  end
  local made = variable.origin(values.component_of(v, 0))
  errors.raise("ValueError", ("%s got variable %s %s that was made outside "
    .. "this strategy's scope%s"):format(what, text.quote(v.name),
    text.shape(v.shape), made and " (made at " .. made .. ")" or ""),
    "build the model inside strategy:scope(function() ... end)")
end

local WHAT = "optimizer:apply_gradients"

local function no_gradients(vars, n)
  local names = {}
  for k = 1, n do
    names[k] = vars[k].name
  end
  errors.raise("ValueError", WHAT .. ": No gradients provided for any "
    .. "variable: " .. table.concat(names, ", "),
    "is the loss computed from these variables inside the tape?")
end

-- The variables of the last call, where these are the same and all have dense
-- gradients: own.seen keeps what was given and the variables behind it.
local function seen_before(own, grads, vars, n, strategy)
  local seen = own.seen
  if seen ~= nil and seen.vars.n == n and seen.strategy == strategy
    and raw.operand_count(grads, true) == n
    and raw.same_elements(seen.given, vars, n) then
    return seen.vars
  end
  return nil
end

-- Said once of each variable: workers of which one leaves it out run apart.
local function warn_left_out(own, grads, vars, n)
  local left, names = own.left_out or {}, {}
  own.left_out = left
  for k = 1, n do
    local v = values.container(vars[k])
    if grads[k] == nil and not left[v] then
      left[v] = true
      names[#names + 1] = v.name
    end
  end
  if #names > 0 then
    notice.warn(WHAT .. ": Gradients do not exist for variables "
      .. table.concat(names, ", ") .. "; they stay as they are")
  end
end

-- Pairs that have a gradient, copies of variables as the variables.
local function filter(own, grads, vars, n, strategy)
  local seen = seen_before(own, grads, vars, n, strategy)
  if seen ~= nil then
    return { grads = grads, vars = seen }
  end
  local kept_grads, kept_vars, m = {}, {}, 0
  for k = 1, n do
    local v = values.container(vars[k])
    if own.checked[v] ~= strategy then
      check_variable(v, WHAT)
      check_strategy(v, strategy, WHAT)
      own.checked[v] = strategy
    end
    if grads[k] ~= nil then
      m = m + 1
      kept_grads[m], kept_vars[m] = apply.gradient(WHAT, grads[k], v.name), v
    end
  end
  if m < n then
    if m == 0 then
      no_gradients(vars, n)
    end
    warn_left_out(own, grads, vars, n)
  end
  kept_grads.n, kept_vars.n = m, m
  if m == n then
    own.seen = { strategy = strategy, vars = kept_vars,
      given = lists.copy(vars, 1, n) }
  end
  return { grads = kept_grads, vars = kept_vars }
end

-- number of variables -> name of the sync point
local points = {}

local function point_of(n)
  local point = points[n]
  if point == nil then
    point = "apply_gradients(" .. n .. " variables)"
    points[n] = point
  end
  return point
end

--- Update variables by gradients: two lists of the same length (or one list of
--- { gradient, variable }). In a replica function gradients are summed over
--- replicas first, unless experimental_aggregate_gradients is false (or
--- skip_gradients_aggregation true). Variables whose gradient is nil are left
--- out, of which a warning tells once. Returns the step count variable.
--- Errors: RuntimeError in cross-replica context, and outside of replica
---   functions for variables of a strategy; ValueError when no variable has a
---   gradient, or one is of another strategy.
--- Source: tf.keras.optimizers.Optimizer.apply_gradients
method("apply_gradients", "grads vars:table=nil name=nil "
  .. "experimental_aggregate_gradients=true skip_gradients_aggregation=false",
  function(self, grads, vars, name, aggregated, skipped)
    local named = vars == nil
      and apply.named(grads, name, aggregated, skipped)
    if named then
      return self:apply_gradients(named)
    elseif contexts.in_cross_replica_context() and contexts.has_strategy() then
      errors.raise("RuntimeError", "apply_gradients() cannot be called in "
        .. "cross-replica context", "call it in the function given to "
        .. "strategy:run")
    end
    local own, context = own_of(self), contexts.get_replica_context()
    local n
    grads, vars, n = apply.split_pairs(grads, vars)
    local kept = filter(own, grads, vars, n, context.strategy)
    kept.guard = own.guard
    if kept.vars.n == 0 then
      return apply.iterations(own)
    end
    replica.sync(context, point_of(kept.vars.n), kept,
      function(strategy, payloads)
        apply.apply(own, strategy, payloads, aggregated and not skipped)
      end)
    return own.iterations
  end)

--- apply_gradients of two lists, by Keras 3's name. Returns the step count
--- variable.
--- Source: keras.optimizers.Optimizer.apply
method("apply", "grads:table trainable_variables:table",
  function(self, grads, vars)
    return self:apply_gradients(grads, vars)
  end)

--- Gradient of loss (a function without arguments) for vars, then
--- apply_gradients.
--- Source: tf.keras.optimizers.Optimizer.minimize
method("minimize", "loss var_list:table grad_loss=nil name=nil tape:tape=nil",
  function(self, loss, vars, grad_loss, _, tape)
    if text.is_callable(loss) then
      tape, loss = tf.GradientTape(loss)
      if loss == nil then
        errors.raise("TypeError", "optimizer:minimize: the function loss "
          .. "returned nothing; it must return the loss", "return loss")
      end
    elseif tape == nil then
      errors.raise("ValueError", "optimizer:minimize: a loss that is a tensor "
        .. "needs the tape that recorded it", "pass a function, or tape = tape")
    end
    if type(vars) == "function" then
      vars = vars()
    end
    options.list("optimizer:minimize", "var_list", vars)
    local grads = tape:gradient(loss, vars, { output_gradients = grad_loss })
    return self:apply_gradients(grads, vars)
  end)

-- Access ---------------------------------------------------------------------

--- Number of steps taken, an int64 variable.
function getters.iterations(self)
  return apply.iterations(own_of(self))
end

--- iterations, then slots in the order they were made.
function getters.variables(self)
  local own = rawget(self, "own")
  local list = { apply.iterations(own_of(self)) }
  for i, v in ipairs(own.order) do
    list[i + 1] = v
  end
  return list
end

getters.weights = getters.variables

-- A tensor of what a schedule gives for the steps taken when it is read.
local function rate_at_calls(own)
  return tf.py_function(function(step)
    return hypers.learning_rate(own, step:item())
  end, { apply.iterations(own):read_value() },
    { { dtype = "float32", shape = {} } })
end

--- As given or set; of a schedule or a function, what it gives for the step
--- that comes next: a number, in a traced function a tensor.
--- Source: keras.optimizers.Optimizer.learning_rate
function getters.learning_rate(self)
  local own = own_of(self)
  local lr = own.hyper.learning_rate
  if not hypers.follows_steps(lr) then
    return lr
  elseif tracing.current() ~= nil then
    return rate_at_calls(own)
  end
  return hypers.learning_rate(own, hypers.steps(own))
end

function getters.name(self)
  return rawget(self, "own").name
end

--- Do the replicas share out the slots?
function getters.is_sharded(self)
  return own_of(self).sharded == true
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
    checked = setmetatable({}, { __mode = "k" }),
    strategy = contexts.mode() and contexts.get_strategy() or nil,
  } }, meta)
end

local function make_class(name, known)
  local meta = { __name = name, is_tf_optimizer = true }
  local function no_field(key, near)
    errors.raise("KeyError", ("%s has no field or method %s"):format(name,
      text.quote(key)), "did you mean " .. near .. "?")
  end
  local check = text.slips(function()
    return text.names(methods, getters, known)
  end, no_field)
  function meta.__index(self, key)
    if methods[key] ~= nil then
      return methods[key]
    elseif getters[key] ~= nil then
      return getters[key](self)
    elseif key == "lr" then
      no_field(key, "learning_rate")
    end
    local value = rawget(self, "own").hyper[key]
    if value == nil and not known[key] then
      check(key)
    end
    return value
  end
  function meta.__names() -- for the prompt
    return text.names(methods, getters, known)
  end
  function meta.__newindex(self, key, value)
    local own = rawget(self, "own")
    if not known[key] then
      errors.raise("KeyError", ("%s has no hyperparameter %s"):format(name,
        text.name(key)), type(key) == "string"
        and text.suggestion(key, text.names(known), "hyperparameter") or nil)
    end
    rules.check_one(name, key, value)
    hypers.set(own, key, value)
  end
  function meta.__tostring(self)
    if tracing.current() ~= nil then -- no numbers yet
      return name .. " (in a traced function)"
    end
    local step = hypers.steps(own_of(self))
    return ("%s (learning rate %s, %d steps%s)"):format(name,
      text.number(hypers.learning_rate(own_of(self), step)), step,
      own_of(self).sharded and ", sharded" or "")
  end
  return meta
end

local COMMON = "clipnorm=nil clipvalue=nil global_clipnorm=nil "
  .. "use_ema=false ema_momentum=0.99 ema_overwrite_frequency=nil decay=nil"

local function define(name, rule)
  local known = {}
  local sig = options.signature(name, rule.signature .. " name=nil "
    .. (rule.signature:find "weight_decay" and "" or "weight_decay=nil ")
    .. COMMON)
  for i = 1, sig.n do
    known[sig.names[i]] = true
  end
  known.name, known.decay = nil, nil
  local meta = make_class(name, known)
  M[name] = options.wrap_signature(sig, function(...)
    local hyper, given = {}, { ... }
    for i = 1, sig.n do
      hyper[sig.names[i]] = given[i]
    end
    local own_name = hyper.name or name
    if hyper.decay ~= nil then
      notice.warn(name .. ": argument decay is no longer supported and is "
        .. "ignored; schedules.InverseTimeDecay lowers a learning rate")
    end
    hyper.decay, hyper.name = nil, nil
    rules.check(name, hyper)
    return new(meta, rule, own_name, hyper)
  end)
end

local NO_CLASS = "update rules of one's own are not there; change gradients "
  .. "before apply_gradients, or assign variables in a train_step"

for name, rule in pairs(rules.rules) do
  objects.not_a_class(name, NO_CLASS)
  define(name, rule)
end

local function no_class()
  errors.raise("NotImplementedError", "optimizers.Optimizer: classes of one's "
    .. "own are not implemented", NO_CLASS)
end

--- Not a class to derive from: says so.
M.Optimizer = setmetatable({ extend = no_class, subclass = no_class }, {
  __call = no_class,
})

-- What makes one, given in its place: Adam for Adam().
local function maker_hint(x)
  for name in pairs(rules.rules) do
    if M[name] == x then
      return ("%s() makes one"):format(name)
    end
  end
  return nil
end

local function unknown(identifier)
  local names = text.names(rules.rules)
  if type(identifier) ~= "string" then
    errors.raise("TypeError", "an optimizer is a name or an "
      .. "object of tf.keras.optimizers, got " .. text.describe(identifier),
      maker_hint(identifier))
  end
  local both = {}
  for i = 1, #names do
    both[2 * i - 1], both[2 * i] = names[i], names[i]:lower()
  end
  local near = text.nearest(identifier, both)
  errors.raise("ValueError", "unknown optimizer " .. text.quote(identifier),
    near and "did you mean " .. near .. "?"
    or "there are " .. table.concat(names, ", "))
end

-- Sharded --------------------------------------------------------------------

local function check_fresh(what, optimizer, own)
  if own.rule == nil then
    errors.raise("TypeError", ("%s: %s has no slots of its own"):format(what,
      text.describe(optimizer)), "wrap the inner optimizer: "
      .. "LossScaleOptimizer(ShardedOptimizer(optimizer))")
  elseif own.sharded then
    errors.raise("ValueError", what .. ": the optimizer is one already")
  elseif next(own.slots) ~= nil or hypers.steps(own) > 0 then
    errors.raise("ValueError", ("%s: the optimizer %s has slots already"):format(
      what, own.name), "give it a new one; a checkpoint of the old one can be "
      .. "restored into it")
  end
end

--- The same optimizer, whose slots are shared out: of every variable that has a
--- copy for each replica, each replica keeps and updates the slots of a part,
--- and all get the result. Weights are those of the optimizer itself, bit by
--- bit; memory of slots is divided by the number of replicas. Clipping by norms
--- needs whole gradients: then all gradients are summed whole. Slots are saved
--- whole, and restored into any number of parts.
--- Errors: ValueError for one that has slots already; TypeError.
--- Source: stage 1 of ZeRO (Rajbhandari and others, 2020); not in TensorFlow
M.sharded = options.wrap("ShardedOptimizer", "optimizer:table",
  function(optimizer)
    optimizer = M.get(optimizer)
    local own = rawget(optimizer, "own")
    check_fresh("ShardedOptimizer", optimizer, own)
    local hyper = {}
    for name, value in pairs(own.hyper) do
      hyper[name] = value
    end
    local made = new(getmetatable(optimizer), own.rule, own.name, hyper)
    local its = own_of(made)
    its.sharded, its.excluded = true, own.excluded
    its.strategy = its.strategy or own.strategy
    return made
  end)

--- An optimizer from its name in any case, or the optimizer itself.
--- Errors: ValueError naming the nearest one, TypeError.
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
  unknown(identifier)
end

options.functions(M, "optimizers.", { get = "identifier:nest=nil" })

return M
