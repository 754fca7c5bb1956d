--- Random programs of strategies: scopes, runs, merges, reductions, coroutines,
--- errors at random places. After each one everything is as before it.
---
--- In specs: `programs.run(n, seed)`; as a program:
---   lua5.4 spec/support/random_programs.lua [N [SEED]]
--- A program is made first (all replicas must decide alike) and then executed.
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local tf = require "tfdist"
local on_device = require "spec.support.on_device"

local at = on_device.at
local D = tf.distribute
local M = {}

-- Park and Miller's generator: the same numbers on both engines.
local function generator(seed)
  local x = seed % 2147483646 + 1
  return function(n)
    x = x * 16807 % 2147483647
    return x % n
  end
end

-- Making ---------------------------------------------------------------------

local OUTSIDE = { "scope", "object", "run", "run", "run", "reduce", "write",
  "read", "update", "device", "tape", "name", "creator", "coroutine", "try",
  "raise", "stranger", "yield", "careless", "variable", "foreign", "install",
  "gather", "collect" }
local REPLICA = { "merge", "merge", "all_reduce", "all_reduce", "all_gather",
  "write", "read", "update", "device", "tape", "name", "creator", "coroutine",
  "try", "raise", "yield", "variable", "some", "nested", "escape", "lonely",
  "careless", "scatter", "collect" }

local BODIES = { scope = "outside", object = "outside", run = "replica",
  device = true, tape = true, name = true, creator = true, coroutine = true,
  try = true, merge = "outside", some = true, careless = true }

local function make(random, kind, depth)
  local body = {}
  local names = kind == "replica" and REPLICA or OUTSIDE
  for i = 1, 1 + random(3) do
    local name = names[random(#names) + 1]
    local step = { name = name, n = random(1000) }
    local inner = BODIES[name]
    if inner ~= nil then
      if depth == 0 then
        step.name = "reduce"
      else
        step.body = make(random, inner == true and kind or inner, depth - 1)
      end
    end
    -- Errors and yields are rarer than what they disturb.
    if (name == "raise" or name == "yield" or name == "lonely"
      or name == "some") and random(3) > 0 then
      step.name = "read"
    end
    body[i] = step
  end
  return body
end

-- Executing ------------------------------------------------------------------

local steps = {}
local execute

local function id()
  local ctx = D.get_replica_context()
  return ctx and ctx.replica_id_in_sync_group or 0
end

execute = function(env, body)
  for i = 1, #body do
    env.count = env.count + 1
    steps[body[i].name](env, body[i])
  end
end

function steps.scope(env, step)
  env.s:scope(function() execute(env, step.body) end)
end

function steps.object(env, step)
  local scope = env.s:scope()
  local ok, e = pcall(execute, env, step.body)
  scope:close()
  if not ok then error(e, 0) end
end

function steps.run(env, step)
  local x = env.s:run(function(a, t)
    execute(env, step.body)
    return a, t.x, id()
  end, { tf.constant(1.0), { x = step.n } })
  if tf.identity(x):item() ~= 1 then error("a result is wrong", 0) end
end

function steps.reduce(env, step)
  local op = step.n % 2 == 0 and "SUM" or "MEAN"
  if D.in_cross_replica_context() or not D.has_strategy() then
    local x = env.s:run(function() return tf.constant(id() + 1.0) end)
    local n = env.s.num_replicas_in_sync
    local want = n * (n + 1) / 2 / (op == "MEAN" and n or 1)
    if env.s:reduce(op, x):item() ~= want then
      error("a sum is wrong", 0)
    end
  else
    D.get_replica_context():all_reduce(op, 1.0)
  end
end

function steps.gather(env)
  local x = env.s:run(function() return tf.ones { id() + 1 } end)
  env.s:gather(x, 0)
end

function steps.write(env, step)
  local v = env.variables[step.n % #env.variables + 1]
  if step.n % 3 == 0 or v == env.variables[3] then
    v:assign(tf.constant(id() + 1.0))
  else
    v:assign_add(tf.constant(1.0))
  end
end

function steps.read(env, step)
  local v = env.variables[step.n % #env.variables + 1]
  tf.identity(v + 1)
end

function steps.update(env, step)
  env.s.extended:update(env.variables[1], function(copy, x)
    if step.n % 17 == 0 then error("in update", 0) end
    copy:assign(x)
  end, { tf.constant(2.0) })
end

function steps.device(env, step)
  tf.device(at(step.n % raw.device_count(on_device.type)), function()
    execute(env, step.body)
  end)
end

function steps.tape(env, step)
  local v = env.variables[1]
  local tape, y = tf.GradientTape(function()
    execute(env, step.body)
    return v * v
  end)
  tape:gradient(y, { v })
end

function steps.name(env, step)
  tf.name_scope("n" .. step.n, function() execute(env, step.body) end)
end

function steps.creator(env, step)
  tf.variable_creator_scope(function(next_creator, kwargs)
    return next_creator(kwargs)
  end, function() execute(env, step.body) end)
end

-- A coroutine of the user's: driven to its end, or left in the middle.
function steps.coroutine(env, step)
  local thread = coroutine.create(function()
    execute(env, step.body)
    coroutine.yield(1)
    execute(env, step.body)
  end)
  for _ = 1, 2 + step.n % 3 do
    local ok, e = coroutine.resume(thread)
    if not ok then
      if e == "cannot resume dead coroutine" then return end
      error(e, 0)
    elseif coroutine.status(thread) == "dead" then
      return
    end
  end
end

function steps.try(env, step)
  local ok, e = pcall(execute, env, step.body)
  if not ok then env.caught = env.caught + 1 end
  -- A replica that is stopped must not go on.
  if not ok and errors.kind(e) == "Cancelled" then error(e, 0) end
end

function steps.raise(_, step)
  local way = step.n % 4
  if way == 0 then
    error "a text"
  elseif way == 1 then
    error({ "a table" }, 0)
  elseif way == 2 then
    errors.raise("ValueError", "an error object")
  end
  return tf.zeros { 2 } + tf.zeros { 3 }
end

-- Only some replicas do it: they disagree about what comes next.
function steps.some(env, step)
  if id() == step.n % 2 then execute(env, step.body) end
end

function steps.lonely(_, step)
  if id() == step.n % 2 then
    D.get_replica_context():all_reduce("SUM", tf.ones { step.n % 3 })
  end
end

-- What must fail, and does no harm.
local function must_fail(fn)
  if pcall(fn) then error("a mistake went through, which is wrong", 0) end
end

function steps.stranger(env)
  must_fail(function()
    env.other:scope(function() env.s:scope(function() end) end)
  end)
end

function steps.foreign(env)
  if raw.kind(env.variables[1]) == "mirrored" then
    must_fail(function()
      env.other:scope(function() env.variables[1]:assign(1.0) end)
    end)
  end
end

function steps.yield() coroutine.yield(2) end

function steps.nested(env)
  must_fail(function() env.s:run(function() end) end)
end

-- Something opened and not closed, in something that ends.
function steps.careless(env, step)
  if step.n % 2 == 0 and D.in_cross_replica_context() then
    env.s:scope(function()
      env.s:scope()
      tf.device(at(0))
      execute(env, step.body)
      error("left open", 0)
    end)
  end
  execute(env, step.body)
end

function steps.variable(env, step)
  local v = tf.Variable(step.n + 0.0, { aggregation = "MEAN",
    name = "v" .. step.n % 3 })
  v:assign(2.0)
end

function steps.install(env)
  if D.has_strategy() then
    return must_fail(function() D.experimental_set_strategy(env.s) end)
  end
  D.experimental_set_strategy(env.s)
  D.experimental_set_strategy(nil)
end

function steps.merge(env, step)
  local got = D.get_replica_context():merge_call(function(strategy, x)
    execute(env, step.body)
    return strategy:experimental_local_results(x)[1]
  end, { tf.constant(id() + 0.0) })
  if got:item() ~= 0 then error("a merge is wrong", 0) end
end

function steps.all_reduce(env)
  local n = env.s.num_replicas_in_sync
  local ctx = D.get_replica_context()
  if ctx:all_reduce("SUM", tf.constant(id() + 1.0)):item()
    ~= (ctx.strategy == env.s and n * (n + 1) / 2 or 1) then
    error("a sum is wrong", 0)
  end
end

function steps.all_gather()
  D.get_replica_context():all_gather({ tf.ones { id() + 1 } }, 0)
end

function steps.scatter(env)
  D.get_replica_context():reduce_scatter("SUM",
    tf.ones { env.s.num_replicas_in_sync })
end

-- A context kept from an earlier run is of no use.
function steps.escape(env)
  local kept = env.kept
  env.kept = D.get_replica_context()
  if kept ~= nil and kept ~= env.kept then
    must_fail(function() kept:all_reduce("SUM", 1.0) end)
  end
end

function steps.collect() collectgarbage "step" end

-- Checking -------------------------------------------------------------------

local function snapshot()
  return {
    state = state.current, mode = state.current.mode,
    creators = state.current.creators, name_scope = state.current.name_scope,
    devices = raw.device_depth(), tapes = raw.tape_active(),
    update = raw.context_set_update(-1),
  }
end

local function check(before, env, seed)
  local now = snapshot()
  for _, key in ipairs { "state", "mode", "creators", "name_scope", "devices",
    "tapes", "update" } do
    if now[key] ~= before[key] then
      error(("program %d: %s was %s and is %s"):format(seed, key,
        tostring(before[key]), tostring(now[key])), 0)
    end
  end
  if D.has_strategy() or D.get_replica_context() ~= contexts.default_context
  then
    error(("program %d: a strategy is still in force"):format(seed), 0)
  end
  local n = env.s.num_replicas_in_sync
  local sum = env.s:reduce("MEAN", (env.s:run(function()
    return D.get_replica_context():all_reduce("SUM", tf.constant(id() + 1.0))
  end))):item()
  if sum ~= n * (n + 1) / 2 then
    error(("program %d: the strategy adds up to %s"):format(seed, sum), 0)
  end
end

local function strategies()
  local list = {}
  for n = 1, math.min(5, raw.device_count(on_device.type)) do
    local names = {}
    for i = 1, n do names[i] = at(i - 1) end
    list[#list + 1] = D.MirroredStrategy { devices = names }
    list[#list + 1] = D.experimental.CentralStorageStrategy {
      compute_devices = names }
  end
  return list
end

--- Run n programs; returns how many steps they took, how many failed and the
--- kinds of their errors.
---@param n integer
---@param seed integer
function M.run(n, seed)
  local all, other = strategies(), D.OneDeviceStrategy(at(0))
  local total = { steps = 0, failed = 0, caught = 0, kinds = {} }
  for i = 1, n do
    local own = seed + i
    local random = generator(own)
    for _ = 1, 5 do random(7) end
    local s = all[random(#all) + 1]
    local env = { s = s, other = other, count = 0, caught = 0 }
    env.variables = { s:scope(function()
      return tf.Variable(1.0, { aggregation = "MEAN" }),
        tf.Variable(1.0, { aggregation = "SUM" }),
        tf.Variable(1.0, { synchronization = "ON_READ", aggregation = "SUM" })
    end) }
    local program = make(random, "outside", 3)
    local before = snapshot()
    local ok, e = pcall(execute, env, program)
    check(before, env, own)
    if not ok then
      local kind = errors.kind(e) or type(e)
      if kind == "Internal" or tostring(e):find " is wrong$" then
        error(("program %d: %s"):format(own, tostring(e)), 0)
      end
      if os.getenv "SHOW" then print(own, (tostring(e):gsub("\n.*", ""))) end
      total.failed = total.failed + 1
      total.kinds[kind] = (total.kinds[kind] or 0) + 1
    end
    total.steps = total.steps + env.count
    total.caught = total.caught + env.caught
  end
  return total
end

if rawget(_G, "arg") and tostring(arg[0]):find "random_programs%.lua$" then
  local total = M.run(tonumber(arg[1] or 1000), tonumber(arg[2] or 1))
  print(("%d steps, %d programs failed, %d errors caught inside"):format(
    total.steps, total.failed, total.caught))
  local kinds = {}
  for kind, count in pairs(total.kinds) do
    kinds[#kinds + 1] = kind .. " " .. count
  end
  table.sort(kinds)
  print(table.concat(kinds, ", "))
end

return M
