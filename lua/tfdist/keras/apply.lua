--- How an optimizer's rule reaches every copy of every variable.
---
--- What is the same from step to step (the op, copies and slots of the
--- variables in the op's order) is a plan, made anew when the variables or the
--- op change; a step is then one call of the runtime for all variables. `own`
--- is an optimizer's private table: rule, name, hyper, slots (variable -> name
--- -> slot), order, excluded, strategy, iterations, plan, and sharded for one
--- whose slots lie with the replicas in parts (shared_slots).
local averages = require "tfdist.keras.averages"
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local guarded = require "tfdist.keras.guarded"
local hypers = require "tfdist.keras.hypers"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local shared_slots = require "tfdist.keras.shared_slots"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"

local M = {}

local rawequal, type = rawequal, type
local kind_of, tensor_dim, tensor_dtype, tensor_rank = raw.kind, raw.tensor_dim,
  raw.tensor_dtype, raw.tensor_rank

-- Slots ----------------------------------------------------------------------

-- Call fn where variables belong to the strategy that was current when the
-- optimizer was made.
local function in_scope_of(strategy, fn)
  local mode = contexts.mode()
  if strategy == nil or strategy == contexts.default_strategy
    or (mode ~= nil and mode.strategy == strategy) then
    return fn()
  end
  return strategy:scope(fn)
end

local function check_optimizer_scope(own)
  local mode = contexts.mode()
  if mode ~= nil and own.strategy ~= nil and mode.strategy ~= own.strategy
    and own.strategy ~= contexts.default_strategy then
    errors.raise("RuntimeError", ("Mixing different tf.distribute.Strategy "
      .. "objects: optimizer %s was made in the scope of a %s and is used with "
      .. "a %s"):format(own.name, own.strategy.name, mode.strategy.name),
      "make it in the scope where its variables are made")
  end
end

--- The step count, made on first use.
function M.iterations(own)
  if own.iterations == nil then
    check_optimizer_scope(own)
    own.iterations = in_scope_of(own.strategy, function()
      return tf.Variable(0, {
        dtype = "int64", trainable = false, name = own.name .. "/iterations",
        aggregation = "ONLY_FIRST_REPLICA",
      })
    end)
  end
  return own.iterations
end

local function count_step(own, step)
  local copies = hypers.copies_of(M.iterations(own))
  local ones = own.ones
  if ones == nil then
    ones = {}
    for i = 1, #copies do
      raw.device_push(raw.tensor_device(raw.operand_tensor(copies[i])))
      ones[i] = tf.keep(raw.tensor_from_values({ 1 }, "int64", {}))
      raw.device_pop()
    end
    own.ones = ones
  end
  for i = 1, #copies do
    raw.variable_assign_add(copies[i], ones[i])
  end
  if tracing.current() ~= nil then
    own.step_version = nil -- the count goes on at the calls
    return
  end
  own.step, own.step_version = step + 1, raw.variable_version(copies[1])
end

-- The strategy whose variables the slots of v are: that of v.
local function slot_strategy(v)
  local owner = values.strategy_of(v)
  local mode = contexts.mode()
  if owner ~= nil and owner ~= contexts.default_strategy and mode ~= nil
    and mode.strategy ~= owner then
    errors.raise("ValueError", ("optimizer: Trying to create optimizer slot "
      .. "variable under the scope of a %s, which is different from the "
      .. "strategy (%s) of variable %s"):format(mode.strategy.name, owner.name,
      text.quote(v.name)), "leave that scope: outside of all scopes slots go "
      .. "where their variable is")
  end
  return owner
end

--- The slot of a variable, made on first use from a number, a tensor or a
--- function of shape and dtype, in the scope of the variable's strategy.
--- Errors: ValueError in the scope of another strategy.
function M.add_slot(own, v, name, initial)
  local slots = own.slots[v]
  if slots == nil then
    slots = {}
    own.slots[v] = slots
  end
  if slots[name] == nil then
    local owner = slot_strategy(v)
    slots[name] = own.sharded and shared_slots.can(v)
      and shared_slots.new(v, name, initial) or in_scope_of(owner, function()
        return tf.Variable(function()
          if type(initial) == "number" then
            return tf.fill(v.shape, tf.constant(initial, v.dtype))
          elseif type(initial) == "function" then
            return initial(v.shape, v.dtype)
          end
          return initial
        end, { trainable = false, name = v.name .. "/" .. name })
      end)
    own.order[#own.order + 1] = slots[name]
    if own.on_slot ~= nil then
      own.on_slot() -- a checkpoint may have a value that waits for it
    end
  end
  return slots[name]
end

--- Step count and slots for the variables.
function M.build(own, vars, h)
  -- Whoever asked for the step count first may have been outside of all scopes.
  check_optimizer_scope(own)
  M.iterations(own)
  local list = own.rule.slots(h)
  for k = 1, vars.n do
    for i = 1, #list do
      M.add_slot(own, vars[k], list[i][1], list[i][2])
    end
    if h.use_ema then
      M.add_slot(own, vars[k], "average", vars[k])
    end
  end
end

-- Plans ----------------------------------------------------------------------

local op_number = raw.op_find

-- For each copy of a variable, the copy and its slots.
local function targets_of(own, v, list)
  local copies, targets = hypers.copies_of(v), {}
  for i = 1, #copies do
    local own_targets = { copies[i] }
    for s = 1, #list do
      local slot = shared_slots.part(own.slots[v][list[s][1]], i - 1)
      own_targets[s + 1] = values.component_of(slot, i - 1)
    end
    targets[i] = own_targets
  end
  return targets
end

-- Variables that one call can update: as many copies, all with or all without
-- weight decay, all or none with slots in parts, none twice.
local function group_of(plan, key, copies, decays, shared)
  local group = plan.by_key[key]
  if group == nil then
    group = { members = {}, targets = {}, copies = copies, decays = decays,
      shared = shared }
    plan.by_key[key] = group
    plan.groups[#plan.groups + 1] = group
  end
  return group
end

local function excluded(own, v)
  if own.excluded == nil then
    return false
  elseif own.excluded.vars[v] then
    return true
  end
  for _, pattern in ipairs(own.excluded.names) do
    if v.name:find(pattern) then
      return true
    end
  end
  return false
end

-- What gradients of a variable must be: sizes and the field dtype.
local function form_of(copy)
  local value = raw.operand_tensor(copy)
  local form = raw.tensor_dims(value)
  form.dtype = tensor_dtype(value)
  return form
end

local function make_plan(own, vars, h, name)
  M.build(own, vars, h)
  local plan = {
    name = name, op = op_number(name), n = vars.n, ema = h.use_ema,
    excluded = own.excluded, targets = {}, groups = {}, by_key = {},
    constraints = {}, forms = {}, decays = {}, copies = 0,
  }
  local list, times = own.rule.slots(h), {}
  for k = 1, vars.n do
    local v = vars[k]
    local targets = targets_of(own, v, list)
    local decays = not excluded(own, v)
    times[v] = (times[v] or 0) + 1
    local shared = shared_slots.is_slot(own.slots[v]
      and own.slots[v][list[1] and list[1][1]])
    local group = group_of(plan, ("%d %s %d %s"):format(#targets,
      tostring(decays), times[v], tostring(shared)), #targets, decays, shared)
    group.members[#group.members + 1] = k
    for i = 1, #targets do
      for s = 1, #targets[i] do
        group.targets[#group.targets + 1] = targets[i][s]
      end
    end
    plan[k], plan.targets[k], plan.decays[k] = v, targets, decays
    plan.copies = math.max(plan.copies, #targets)
    plan.forms[k] = form_of(targets[1][1])
    plan.constraints[k] = targets[1][1].constraint
  end
  return plan
end

local function still_fits(plan, own, vars, h, name)
  if plan == nil or plan.name ~= name or plan.n ~= vars.n
    or plan.ema ~= h.use_ema or plan.excluded ~= own.excluded then
    return false
  end
  for k = 1, vars.n do
    if not rawequal(plan[k], vars[k]) then
      return false
    end
  end
  return true
end

local function plan_of(own, vars, h)
  local name = own.rule.op(h)
  if not still_fits(own.plan, own, vars, h, name) then
    own.plan = make_plan(own, vars, h, name)
  end
  return own.plan
end

-- The op's attributes, and the same without weight decay.
local function reals_of(own, h)
  local reals = { (h.weight_decay or 0) * h.learning_rate }
  own.rule.reals(h, reals)
  if reals[1] == 0 or own.excluded == nil then
    return reals, reals
  end
  local plain = { 0 }
  for i = 2, #reals do
    plain[i] = reals[i]
  end
  return reals, plain
end

-- Updates --------------------------------------------------------------------

local function wrong_form(v, form, x)
  errors.raise("InvalidArgument", ("apply_gradients: variable %s: its gradient "
    .. "is %s %s, the variable %s %s; expected the same"):format(
    text.quote(v.name), raw.tensor_dtype(x), text.shape(raw.tensor_dims(x)),
    form.dtype, text.shape(form)))
end

-- Raise unless a gradient has the dtype and the shape of variable k, rows of
-- slices those of a row.
local function check_form(plan, k, grad)
  local form, first = plan.forms[k], 1
  if kind_of(grad) == "slices" then
    grad, first = raw.slices_values(grad), 2
  end
  local rank = tensor_rank(grad)
  local same = rank == #form and tensor_dtype(grad) == form.dtype
  for axis = first, rank do
    if tensor_dim(grad, axis - 1) ~= form[axis] then
      same = false
    end
  end
  if not same then
    wrong_form(plan[k], form, grad)
  end
end

-- Lists [k][i], with the field replicas, of what the payloads have as [i][k].
local function by_variable(payloads, count)
  local grads = { replicas = payloads.n }
  for k = 1, count do
    local list = {}
    for i = 1, payloads.n do
      list[i] = payloads[i].grads[k]
    end
    grads[k] = list
  end
  return grads
end

-- A call updates all or nothing; what would stop a later one is to be known
-- before the first.
local function check_groups(plan, first, given, n)
  for g = first, #plan.groups do
    for _, k in ipairs(plan.groups[g].members) do
      for i = 1, n do
        check_form(plan, k, given[i][k])
      end
    end
  end
end

-- given[i][k] of the members, variable by variable.
local function gradients_of(members, given, n)
  local list, at = {}, 0
  for m = 1, #members do
    local k = members[m]
    for i = 1, n do
      at = at + 1
      list[at] = given[i][k]
    end
  end
  return list
end

local function dense(grad)
  return raw.kind(grad) == "slices" and raw.slices_to_dense(grad) or grad
end

-- Clip complete gradients, all of one copy.
local function clip(h, grads)
  if h.clipvalue then
    for k = 1, grads.n do
      grads[k] = tf.clip_by_value(dense(grads[k]), -h.clipvalue, h.clipvalue)
    end
  end
  if h.clipnorm then
    for k = 1, grads.n do
      grads[k] = tf.clip_by_norm(dense(grads[k]), h.clipnorm)
    end
  end
  if h.global_clipnorm then
    grads = tf.clip_by_global_norm(grads, h.global_clipnorm)
  end
  return grads
end

-- Call fn with new tensors on a device and no recording.
local function on_device(device, fn)
  raw.device_push(device)
  local depth = raw.device_depth() - 1
  raw.tape_pause_all(true)
  return state.protect(function()
    raw.tape_pause_all(false)
    while raw.device_depth() > depth do
      raw.device_pop()
    end
  end, fn)
end

local function place_of(copy)
  return raw.tensor_device(raw.operand_tensor(copy))
end

local function inputs_of(grad)
  if raw.kind(grad) == "slices" then
    return { raw.slices_values(grad), raw.slices_indices(grad), n = 2 }
  end
  return { grad, n = 2 }
end

-- Whether a step counts that a guard or a branch decides on, nobody knows before
-- the call runs: the number of the next one neither.
local function check_steps(own, certain)
  local trace = tracing.current()
  trace = trace.root or trace
  trace.optimizers = trace.optimizers or {}
  if trace.optimizers[own] == "guarded"
    or trace.optimizers[own] and not certain then
    errors.raise("NotImplementedError", "apply_gradients: a step that a loss "
      .. "scale or a branch may leave out cannot be traced beside another one of "
      .. "the same optimizer, whose numbers depend on how many were taken")
  end
  trace.optimizers[own] = certain and "certain" or "guarded"
end

-- Not told by the numbers of two steps: a learning rate of 0 makes them equal.
local function depends_on_step(own, h)
  local depends = not hypers.are_constant(own)
  own.rule.reals(setmetatable({}, { __index = function(_, name)
    depends = depends or name == "step"
    return h[name]
  end }), { 0 })
  return depends
end

-- While a function is traced: each of its calls has numbers of its own. Where
-- those of variables with and without weight decay lie.
local function numbers_of_calls(own, h, n)
  if tracing.current() == nil then
    return nil
  end
  local certain = h.guard == nil and not tracing.is_part()
  local depends = depends_on_step(own, h)
  if depends then
    check_steps(own, certain)
  end
  local last, list -- constants, whose table is another when one is set
  local first = tracing.numbers(2 * n, function()
    local now = hypers.of_call(own)
    own.call_step = now.step
    -- What the call will have written, so that nobody waits to read it.
    own.step, own.step_version = now.step + 1,
      certain and own.step_version + 1 or nil
    own.prepared = certain and tracing.preparation or nil
    if depends or not rawequal(now, last) then
      local plain
      list, plain = reals_of(own, now)
      last = now
      for i = 1, n do
        list[n + i] = plain[i]
      end
    end
    return list
  end, not certain)
  return first, first + n
end

-- payloads[i].grads[k]: the gradient of replica i for variable k. Sums and
-- updates in one call of the runtime.
local function update_together(own, plan, strategy, payloads, h)
  local decaying, plain = reals_of(own, h)
  local at_decaying, at_plain = numbers_of_calls(own, h, #decaying)
  local given, n = {}, payloads.n
  for i = 1, n do
    given[i] = payloads[i].grads
  end
  if plan.groups[2] or plan.groups[1].shared then
    check_groups(plan, plan.groups[1].shared and 1 or 2, given, n)
  end
  for _, group in ipairs(plan.groups) do
    local numbers = group.decays and decaying or plain
    if group.shared then
      shared_slots.update(strategy, plan, group.members,
        by_variable(payloads, plan.n), false, numbers,
        group.decays and at_decaying or at_plain)
    else
      raw.strategy_update(strategy.handle, plan.op, group.targets,
        gradients_of(group.members, given, n), numbers)
      if at_decaying ~= nil then
        tracing.takes_numbers(group.decays and at_decaying or at_plain)
      end
    end
  end
end

-- grads[k][i]: the complete gradient for copy i of variable k.
local function update_one_by_one(own, plan, strategy, grads, h)
  local decaying, plain = reals_of(own, h)
  local at_decaying, at_plain = numbers_of_calls(own, h, #decaying)
  for k = 1, plan.n do
    for i = 1, #grads[k] do
      check_form(plan, k, grads[k][i])
    end
  end
  local shared = {}
  for _, group in ipairs(plan.groups) do
    for _, k in ipairs(group.shared and group.members or {}) do
      shared[k] = {}
    end
  end
  for i = 1, plan.copies do
    local mine = { n = plan.n }
    for k = 1, plan.n do
      mine[k] = grads[k][i] or grads[k][1]
    end
    on_device(place_of((plan.targets[1][i] or plan.targets[1][1])[1]),
      function()
        mine = clip(h, mine)
        for k = 1, plan.n do
          local targets = plan.targets[k][i]
          if shared[k] ~= nil then
            shared[k][i] = mine[k]
          elseif targets ~= nil then
            raw.variables_update(targets, plan.op, inputs_of(mine[k]), nil,
              plan.decays[k] and decaying or plain)
            if at_decaying ~= nil then
              tracing.takes_numbers(plan.decays[k] and at_decaying or at_plain)
            end
          end
        end
      end)
  end
  for _, group in ipairs(plan.groups) do
    if group.shared then
      shared_slots.update(strategy, plan, group.members, shared, true,
        group.decays and decaying or plain,
        group.decays and at_decaying or at_plain)
    end
  end
end

-- The only replica's payload for variables without copies, clipped.
local function clipped(plan, payloads, h)
  local grads = lists.copy(payloads[1].grads, 1, plan.n)
  grads.n = plan.n
  return on_device(place_of(plan.targets[1][1][1]), function()
    return { { grads = clip(h, grads) }, n = 1 }
  end)
end

-- Sum of each variable's gradients over replicas, a component per copy.
local function aggregate(strategy, grads, plan)
  if not M.is_central(strategy) then
    local sent, about = { n = grads.replicas }, {}
    for i = 1, grads.replicas do
      sent[i] = { n = plan.n }
      for k = 1, plan.n do
        sent[i][k] = grads[k][i]
        about[k] = plan.targets[k][1][1]
      end
    end
    return reduce.about(strategy, about, reduce.all_reduce, strategy, "SUM",
      sent, "apply_gradients")
  end
  local sums = {}
  for k = 1, plan.n do
    local parts = { n = grads.replicas }
    for i = 1, parts.n do
      parts[i] = grads[k][i]
    end
    local devices = {}
    for i, targets in ipairs(plan.targets[k]) do
      devices[i] = place_of(targets[1])
    end
    sums[k] = values.components(raw.strategy_reduce(strategy.handle, "sum",
      "apply_gradients", parts, devices, 0))
  end
  return sums
end

--- True for strategies that keep each variable once for several replicas.
function M.is_central(strategy)
  return strategy.local_count > 1
    and raw.strategy_parameter_count(strategy.handle) == 1
end

-- After the updates ----------------------------------------------------------

local function constrain(plan)
  for k = 1, plan.n do
    local constraint = plan.constraints[k]
    if constraint ~= nil then
      for _, targets in ipairs(plan.targets[k]) do
        on_device(place_of(targets[1]), function()
          targets[1]:assign(constraint(targets[1]:read_value()))
        end)
      end
    end
  end
end

-- Checks ---------------------------------------------------------------------

local function check_clipping(h, strategy)
  if (h.clipnorm or h.clipvalue or h.global_clipnorm)
    and M.is_central(strategy) then
    errors.raise("ValueError", "apply_gradients: gradient clipping in the "
      .. "optimizer (clipnorm, clipvalue, global_clipnorm) is not supported by "
      .. strategy.name, "clip the gradients yourself")
  end
end

local function check_constraints(plan, payloads)
  for k = 1, plan.n do
    if plan.constraints[k] ~= nil then
      for i = 1, payloads.n do
        if raw.kind(payloads[i].grads[k]) == "slices" then
          errors.raise("RuntimeError", ("apply_gradients: cannot use a "
            .. "constraint function on a sparse variable; %s has one and its "
            .. "gradient is IndexedSlices"):format(text.quote(plan[k].name)))
        end
      end
    end
  end
end

local function same_variables(strategy, payloads, vars)
  for i = 2, payloads.n do
    local other = payloads[i].vars
    for k = 1, rawequal(other, vars) and 0 or vars.n do
      if not rawequal(vars[k], other[k]) then
        errors.raise("RuntimeError", ("apply_gradients: variable %d is %s on "
          .. "replica %d and %s on replica %d"):format(k,
          text.quote(other[k].name), strategy.first_replica + i - 1,
          text.quote(vars[k].name), strategy.first_replica),
          "all replicas must update the same variables in the same order")
      end
    end
  end
end

-- May the runtime sum and update at once? Gradients that a user's own
-- cross-device ops add up, or a strategy by a rule of its own, take the long
-- way.
local function in_one_pass(strategy)
  local reducer = strategy.cross_device_ops
  return (reducer == nil or reducer.native)
    and raw.strategy_adds_up(strategy.handle)
end

local function has_slices(grads)
  for k = 1, #grads do
    for i = 1, grads.replicas do
      if kind_of(grads[k][i]) == "slices" then
        return true
      end
    end
  end
  return false
end

-- The updates, and what follows them.
local function take_step(own, strategy, plan, payloads, h, how)
  if how.together then
    update_together(own, plan, strategy, payloads, h)
  else
    local grads = by_variable(payloads, plan.n)
    update_one_by_one(own, plan, strategy, how.aggregated
      and aggregate(strategy, grads, plan) or grads, h)
  end
  constrain(plan)
  if h.use_ema then
    averages.update(own, plan, h)
  end
  count_step(own, h.step)
end

--- One step: payloads[i] has the gradients and variables of replica i as lists
--- with n; gradients are summed over replicas if `aggregated`. A `guard` of
--- replica 0's is a symbolic boolean: the step is taken where it holds.
function M.apply(own, strategy, payloads, aggregated)
  local vars = payloads[1].vars
  same_variables(strategy, payloads, vars)
  local h = hypers.of(own)
  check_clipping(h, strategy)
  if not aggregated and M.is_central(strategy) then
    errors.raise("NotImplementedError", "apply_gradients: "
      .. "experimental_aggregate_gradients = false is not supported by "
      .. strategy.name)
  end
  local plan = plan_of(own, vars, h)
  if next(plan.constraints) ~= nil then
    check_constraints(plan, payloads)
  end
  local clips = h.clipnorm or h.clipvalue or h.global_clipnorm
  aggregated = aggregated and not strategy.one_copy
  local at_once = in_one_pass(strategy)
  local alone, traced = strategy.num_replicas_in_sync == 1,
    tracing.current() ~= nil
  if clips and at_once and alone and plan.copies == 1 and not traced then
    payloads, clips = clipped(plan, payloads, h), nil
  end
  local together = not clips and at_once and (aggregated or alone)
  if traced then
    together = together and not alone and (strategy.over_workers
      or not has_slices(by_variable(payloads, vars.n)))
  end
  local how = { together = together,
    aggregated = aggregated and not (traced and alone) }
  h.guard = payloads[1].guard
  if h.guard == nil then
    return take_step(own, strategy, plan, payloads, h, how)
  end
  guarded.when(h.guard, function()
    take_step(own, strategy, plan, payloads, h, how)
  end)
end

-- What callers give ----------------------------------------------------------

local WHAT = "optimizer:apply_gradients"

-- How many gradients there are for n variables. A list without its length in
-- it may have holes for variables that are left out.
local function count(grads, n)
  local size = options.length(WHAT, "gradients", grads)
  if size == n or grads.n ~= nil then
    return size
  end
  size = 0
  for key in pairs(grads) do
    size = type(key) == "number" and math.max(size, key) or size
  end
  -- No gradient at all has a message of its own.
  return size == 0 and n or size
end

--- Arguments by TensorFlow's name of the first, as they are named here, with
--- those that were given beside them; nil for any others.
function M.named(given, name, aggregated, skipped)
  local list = text.is_plain(given) and given.grads_and_vars
  if not list or type(list) == "table" and rawget(list, "grads_and_vars") then
    return nil
  end
  local named = { name = name, experimental_aggregate_gradients = aggregated,
    skip_gradients_aggregation = skipped }
  for key, x in pairs(given) do
    named[key == "grads_and_vars" and "grads" or key] = x
  end
  return named
end

--- Lists of gradients and variables from either form of call, and how many.
--- Errors: TypeError, ValueError.
function M.split_pairs(grads, vars)
  if not text.is_plain(grads) or (vars ~= nil and not text.is_plain(vars)) then
    errors.raise("TypeError", ("%s: expected lists of gradients and variables, "
      .. "got %s"):format(WHAT, text.describe(text.is_plain(grads) and vars
      or grads)), "optimizer:apply_gradients({ gradient }, { variable })")
  elseif vars ~= nil then
    local n = options.length(WHAT, "variables", vars)
    local given = count(grads, n)
    if given ~= n then
      errors.raise("ValueError", ("%s: %d gradients for %d variables"):format(
        WHAT, given, n), given < n and "n = " .. n .. " in the list of "
        .. "gradients says that the last ones are nil" or nil)
    end
    return grads, vars, n
  end
  local left, right = {}, {}
  local n = options.length(WHAT, "gradients", grads)
  for k = 1, n do
    local pair = grads[k]
    if not text.is_plain(pair) then
      errors.raise("TypeError", ("%s: expected gradients and variables, or a "
        .. "list of { gradient, variable }; entry %d is %s"):format(WHAT, k,
        text.describe(pair)), "optimizer:apply_gradients(grads, vars)")
    end
    left[k], right[k] = pair[1], pair[2]
  end
  return left, right, n
end

--- The gradient of a variable as the runtime takes it: a tensor or slices.
--- Errors: TypeError that begins with `what`.
function M.gradient(what, g, name)
  local kind = type(g) == "userdata" and raw.kind(g) or nil
  if kind == "slices" or (kind == "tensor" and raw.is_operand(g)) then
    return g
  elseif kind ~= nil and raw.is_operand(g) then
    return raw.operand_tensor(g)
  end
  errors.raise("TypeError", ("%s: the gradient of %s must be a tensor or "
    .. "IndexedSlices, got %s"):format(what, text.quote(name),
    text.describe(g)))
end

return M
