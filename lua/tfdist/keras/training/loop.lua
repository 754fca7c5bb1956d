--- The loops of fit, evaluate and predict.
---
--- Steps are queued, not waited for: the host stays one step ahead of the
--- devices. What is shown while training is the state at the step before.
local contexts = require "tfdist.distribute.contexts"
local counted = require "tfdist.core.counted"
local course = require "tfdist.keras.training.course"
local distributed = require "tfdist.distribute.variables"
local errors = require "tfdist.base.errors"
local execution = require "tfdist.keras.training.execution"
local failures = require "tfdist.keras.training.failures"
local feed = require "tfdist.keras.training.feed"
local nest = require "tfdist.base.nest"
local pairs = require "tfdist.base.pairs"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local shortage = require "tfdist.keras.training.shortage"
local state = require "tfdist.keras.training.state"
local steps = require "tfdist.keras.training.steps"
local text = require "tfdist.base.text"
local traced = require "tfdist.keras.training.traced"
local values = require "tfdist.distribute.values"

local M = {}

local type = type

-- Values ---------------------------------------------------------------------

--- A result as Lua numbers: a number, or a list for a vector.
function M.number(x)
  if values.is_value(x) then
    x = values.component(x, 0)
  end
  if type(x) == "userdata" and raw.is_operand(x) then
    local t = raw.operand_tensor(x)
    return raw.tensor_rank(t) == 0 and raw.item(t) or raw.tensor_to_table(t)
  end
  return x
end

--- The list model.metrics right after a step: that of the step before where a
--- graph ran and no field has changed.
function M.metrics_after(model, own)
  local ran = own.ran
  if ran ~= nil and ran.metrics ~= nil then
    return ran.metrics
  end
  local list = steps.metrics_of(model)
  if ran ~= nil and not steps.lists_metrics(model) then
    ran.metrics = list
  end
  return list
end

--- Results of metrics (those of the model) as pairs { name, tensor }, queued, not
--- waited for.
function M.results(model, metrics)
  local list, own = {}, state.of(model)
  for _, metric in ipairs(metrics or steps.metrics_of(model)) do
    local name, result = steps.result_name(own, metric), metric:result()
    if result == nil then
      errors.raise("TypeError", ("metric %s: result must return a tensor or a "
        .. "number, got nothing"):format(text.quote(name)))
    end
    list[#list + 1] = { name, result }
  end
  return list
end

local function from_table(t)
  local list = {}
  local _, keys = nest.layout(t)
  for _, key in ipairs(keys or {}) do
    list[#list + 1] = { key, t[key] }
  end
  -- The loss first, as everywhere.
  for i, entry in ipairs(list) do
    if entry[1] == "loss" then
      table.insert(list, 1, table.remove(list, i))
    end
  end
  return list
end

--- The pairs with numbers instead of tensors. Blocks until they are there.
function M.numbers(list)
  local out = {}
  for i, entry in ipairs(list) do
    out[i] = { entry[1], M.number(entry[2]) }
  end
  return out
end

--- Pairs as a table by name, names with a prefix.
function M.logs(list, prefix, into)
  local logs = into or {}
  for _, entry in ipairs(list) do
    logs[(prefix or "") .. entry[1]] = entry[2]
  end
  return logs
end

-- One pass over a feed -------------------------------------------------------

-- The next batch; a failure says in which step.
local function pull(pass, step)
  local ok, pack = pcall(pass.next)
  if not ok then
    failures.raise(pass, pack, step + 1)
  end
  return pack
end

--- Run the body once on every replica, or the graph that it was traced to, as
--- pcall does. What it queues is blamed
--- on the line that called fit, unless a function of the user's computes it.
function M.run_body(model, own, mode, body, pack)
  local place = own.place
  if place ~= nil then
    raw.set_position(place.file, place.line)
  end
  own.step_examples = feed.count(pack)
  local rows, call = pack.rows, pcall
  pack.rows = nil -- no argument of the body's
  if own.builds_apart then
    own.builds_apart, call = false, random_seed.builds_apart
  end
  local ok, result = pcall(traced.runner, model, own, mode, body, pack)
  if ok and result ~= nil then
    ok, result = pcall(result)
    if not ok and errors.is_error(result)
      and own.strategy.num_replicas_in_sync == 1 then
      result.replica = result.replica or 0 -- a graph of one does not count them
    end
  elseif ok then
    ok, result = call(own.strategy.run, own.strategy, body, pack)
  end
  own.step_examples, pack.rows = nil, rows
  return ok, result
end

local function begin_batch(pass, step)
  if pass.callbacks ~= nil then
    pass.callbacks:batch("begin", pass.mode, step)
  end
end

local function put_out(pass, ticket)
  local held = pass.held
  if held ~= nil then
    held[#held + 1] = ticket
  elseif pass.on_output ~= nil then
    pass.on_output(ticket)
  end
end

local function run_step(pass, pack, step)
  local ok, ticket = M.run_body(pass.model, pass.own, pass.mode, pass.body, pack)
  if not ok then
    failures.raise_first(pass, ticket, step + 1, step)
  end
  failures.settle(pass, step)
  pass.ticket = ticket
  pass.examples = pass.examples + feed.count(pack)
  put_out(pass, ticket)
end

-- Workers ask each other for batches and gather results: all of them fetch all
-- batches of an execution, then run its steps, then gather, though not all may
-- join the same ones. Returns what gives the batch of a step.
local function batches_of(pass, first, most)
  if not pass.own.strategy.over_workers then
    return function(step) return pull(pass, step) end
  end
  local packs, ok, pack = {}, true, nil
  while ok and #packs < most do
    ok, pack = pcall(pull, pass, first + #packs)
    if not ok or pack == nil then
      break
    end
    packs[#packs + 1] = pack
  end
  return function(step)
    local found = packs[step - first + 1]
    if found == nil and not ok then
      error(pack, 0)
    end
    return found
  end
end

-- One step by itself; returns as execute.
local function one_step(pass, step)
  local pack = pull(pass, step)
  if pack == nil then
    return step, true
  end
  begin_batch(pass, step)
  run_step(pass, pack, step)
  return step + 1, false
end

-- Run the steps in a group, the first of which is step `first`, from 0.
local function run_group(pass, group, first)
  if group.n == 0 then
    return
  end
  local calls = execution.run(group)
  calls.first = first
  failures.settle(pass, first)
  pass.calls = calls
  if calls.failed ~= nil then
    failures.settle(pass)
    failures.raise(pass, calls.failed, first + calls.done + 1)
  end
  for i = pass.on_output ~= nil and 1 or calls.n, calls.n do
    pass.ticket = execution.ticket(calls, i)
    put_out(pass, pass.ticket)
  end
  calls.inputs = nil -- batches; only the results are waited for
  pass.examples = pass.examples + calls.examples
end

-- Add step `step`, from 0, to the group; true when it has joined.
local function add_step(pass, group, pack, step, examples)
  local ok, joined = pcall(execution.add, group, pack, examples)
  if not ok then
    failures.raise_first(pass, joined, step + 1, step - group.n)
  end
  return joined
end

-- The step joins the group, or runs after it.
local function join_group(pass, group, pack, step)
  local rows, examples = pack.rows, feed.count(pack)
  pack.rows = nil -- no argument of the body's
  local joined = add_step(pass, group, pack, step, examples)
  if not joined and group.n > 0 then
    run_group(pass, group, step - group.n)
    joined = add_step(pass, group, pack, step, examples)
  end
  pack.rows = rows
  if not joined then
    run_step(pass, pack, step)
    execution.interrupted(group)
  end
end

-- Up to `most` steps of one execution from `step` on; returns the number of the
-- next one, and whether the feed has ended.
local function execute(pass, step, most)
  local group = execution.new(pass.model, pass.own, pass.mode)
  local first, pack = step, nil
  local held = pass.own.strategy.over_workers and {} or nil
  pass.held = held
  local ok, why = pcall(function()
    local next_batch = batches_of(pass, first, most)
    while step < first + most do
      pack = next_batch(step)
      if pack == nil then
        break
      elseif step == first then
        begin_batch(pass, step)
      end
      join_group(pass, group, pack, step)
      step = step + 1
    end
  end)
  run_group(pass, group, step - group.n) -- those before one that failed have run
  if not ok then
    error(why, 0)
  end
  pass.held = nil
  for i = 1, held and #held or 0 do
    put_out(pass, held[i])
  end
  return step, pack == nil
end

local function read_results(pass, ticket)
  if pass.custom and nest.is_nested(ticket) then
    return from_table(ticket)
  elseif pass.custom and type(ticket) ~= "userdata" then
    errors.raise("TypeError", ("%s_step must return a table of results by name, "
      .. "got %s"):format(pass.mode, ticket == nil and "nothing"
      or text.describe(ticket)), "return { loss = loss }")
  end
  return M.results(pass.model)
end

-- Show where the pass is; the values are those asked for at the step before,
-- which the devices have done by now.
local function show(pass, step)
  local progress = pass.progress
  if progress == nil then
    return
  end
  if pass.own.strategy.over_workers then
    -- Results are all workers', who have other clocks: none until the end.
    progress:update(step, pass.examples, {})
  elseif pass.asked ~= nil then
    progress:update(step, pass.examples, failures.reading(pass, step,
      M.numbers, pass.asked))
    pass.asked = nil
  elseif progress:due() then
    pass.asked = failures.reading(pass, step, read_results, pass,
      pass.ticket)
  end
end

local function end_batch(pass, step, ticket)
  local callbacks = pass.callbacks
  if callbacks ~= nil and callbacks:wants_batch(pass.mode) then
    local logs
    if pass.mode == "predict" then
      logs = { outputs = failures.reading(pass, step + 1, pass.outputs) }
    elseif callbacks:wants_logs(pass.mode) then
      logs = M.logs(failures.reading(pass, step + 1, function()
        return M.numbers(read_results(pass, ticket))
      end))
    else
      logs = {}
    end
    callbacks:batch("end", pass.mode, step, logs)
  end
end

local function run_steps(pass, limit, group)
  local step, ended = pass.start or 0, false
  while limit == nil or step < limit do
    local first = step
    pass.at = first + 1
    if group == 1 then
      step, ended = one_step(pass, step)
    else
      step, ended = execute(pass, step, math.min(group, limit and limit - step
        or math.huge))
    end
    if step > first then
      pass.at = step
      end_batch(pass, step - 1, pass.ticket)
      show(pass, step)
    end
    raw.check_interrupt()
    if ended or pass.mode == "train" and pass.model.stop_training then
      break
    end
  end
  failures.settle(pass, step)
  return step, ended
end

--- Run steps until the feed ends or `limit` steps are done. `group` steps make
--- one batch for callbacks (steps_per_execution).
--- pass: model, own, next, body, mode ("train", "test", "predict"), custom,
---   callbacks?, progress?, epoch?, on_output?, start?: number of the first step
---@return integer steps, boolean ended  steps: start among them; ended: the
---   feed had no more
function M.pass(pass, limit, group)
  pass.examples, group = 0, group or 1
  if pass.own.strategy.over_workers then
    return failures.placed(pass, run_steps, pass, limit, group)
  end
  return run_steps(pass, limit, group)
end

-- Bodies ---------------------------------------------------------------------

local function body_of(model, name, default)
  local method = model[name]
  if method ~= model.training_defaults[name] then
    return function(...)
      return method(model, ...)
    end, true
  end
  return function(...)
    return default(model, ...)
  end, name ~= "predict_step" and steps.own_metrics(model)
end

--- The function of a step of training, and whether the user wrote it.
function M.train_body(model)
  return body_of(model, "train_step", steps.train)
end

function M.test_body(model)
  return body_of(model, "test_step", steps.test)
end

function M.predict_body(model)
  return body_of(model, "predict_step", steps.predict)
end

-- Evaluate -------------------------------------------------------------------

--- One evaluation: results as pairs { name, number }.
---@param model table
---@param source table    feed
---@param opts table      { steps, callbacks, progress, what }
function M.evaluate(model, source, opts)
  local own = state.of(model)
  local body, custom = M.test_body(model)
  local callbacks = opts.callbacks
  callbacks:call("on_test_begin", {})
  model:reset_metrics()
  local pass = {
    model = model, own = own, next = source.open(), body = body, mode = "test",
    custom = custom, callbacks = callbacks, progress = opts.progress,
    validates = opts.what ~= "evaluate",
  }
  local count = M.pass(pass, opts.steps, own.steps_per_execution)
  if count == 0 then
    errors.raise("ValueError", opts.what .. ": the dataset has no elements")
  end
  shortage.note(opts.what, source, count, opts.steps)
  local list = M.numbers(read_results(pass, pass.ticket))
  callbacks:call("on_test_end", M.logs(list))
  return list, count, pass.examples
end

-- Predict --------------------------------------------------------------------

local function components(x)
  return values.is_value(x) and values.components(x) or { x, n = 1 }
end

--- A batch's outputs of all workers' replicas.
function M.gathered(own, ticket)
  return own.strategy.over_workers and own.strategy:gather(ticket, 0) or ticket
end

-- Batches' outputs, replica by replica, along axis 0.
local function joined(batches, tf)
  local first = batches[1]
  if nest.is_nested(first) then
    local out = {}
    for key in pairs(first) do
      if key ~= "n" then
        local list = {}
        for i = 1, #batches do
          list[i] = batches[i][key]
        end
        out[key] = joined(list, tf)
      end
    end
    return out
  end
  local parts = {}
  for i = 1, #batches do
    local list = components(batches[i])
    for k = 1, list.n do
      -- Replicas without data add nothing, whatever their shape.
      if steps.examples(list[k]) > 0 then
        parts[#parts + 1] = list[k]
      end
    end
  end
  if #parts == 0 then
    return components(first)[1]
  end
  return tf.concat(parts, 0)
end

M.join = joined

--- Outputs for the whole feed, in the order of the examples.
function M.predict(model, source, opts)
  local own = state.of(model)
  local body = M.predict_body(model)
  opts.callbacks:call("on_predict_begin", {})
  local batches, shown = {}, 0
  local pass = {
    model = model, own = own, next = source.open(), mode = "predict",
    callbacks = opts.callbacks, progress = opts.progress,
    body = function(x)
      return body(x)
    end,
    on_output = function(ticket)
      batches[#batches + 1] = M.gathered(own, ticket)
    end,
    outputs = function() -- of the batches since it was called last
      local list = {}
      for i = shown + 1, #batches do
        list[#list + 1] = batches[i]
      end
      shown = #batches
      return joined(list, opts.tf)
    end,
  }
  -- Nothing else than the count is shown.
  local count = M.pass(pass, opts.steps, own.steps_per_execution)
  if count == 0 then
    errors.raise("ValueError", "predict: the dataset has no elements")
  end
  shortage.note("predict", source, count, opts.steps)
  opts.callbacks:call("on_predict_end", {})
  return joined(batches, opts.tf), count, pass.examples
end

-- Fit ------------------------------------------------------------------------

local function validation_due(freq, epoch)
  if type(freq) == "number" then
    return (epoch + 1) % freq == 0
  end
  for _, at in ipairs(freq) do
    if at == epoch + 1 then
      return true
    end
  end
  return false
end

local function by_name(list)
  local seen = {}
  for _, entry in ipairs(list) do
    seen[entry[1]] = true
  end
  return seen
end

-- What callbacks added to logs, behind what was there.
local function with_additions(list, logs)
  local seen, more = by_name(list), {}
  for name, value in pairs(logs) do
    if not seen[name] and type(name) == "string" then
      more[#more + 1] = { name, value }
    end
  end
  table.sort(more, function(a, b)
    return a[1] < b[1]
  end)
  for i, entry in ipairs(list) do
    list[i] = { entry[1], logs[entry[1]] }
  end
  for _, entry in ipairs(more) do
    list[#list + 1] = entry
  end
  return list
end

-- Does the feed begin anew with each epoch?
local function begins_anew(run)
  return run.source.restarts
    and (run.limit == nil or run.limit == run.source.steps)
end

-- The reader of a feed from its beginning, less the batches that were done.
local function passed_over(run, done)
  local reader = run.source.open()
  for _ = 1, done do
    reader()
  end
  return reader
end

-- A reader that gives one more batch first.
local function with_first(pack, reader)
  return function()
    local given = pack
    pack = nil
    if given == nil then
      return reader()
    end
    return given
  end
end

-- Go on where a fit was interrupted: resume.epoch is the epoch to begin with,
-- of which resume.step steps were made, resume.data where its feed was (see
-- M.position), resume.random the state of the random numbers. Returns the
-- epoch: the next one when nothing of it is left.
local function go_on(run, resume)
  local epoch, done, data = resume.epoch, resume.step, resume.data or {}
  local anew = begins_anew(run)
  -- What is passed over draws by the seeds it drew by, and counts for nothing.
  local function set_random()
    if resume.random ~= nil then
      random_seed.restore(resume.random)
    end
  end
  set_random()
  if data.orders ~= nil and run.source.restore ~= nil then
    run.source.restore(data)
  else
    data = {}
  end
  if run.steps ~= nil and done >= run.steps then
    epoch, done = epoch + 1, 0
  end
  if data.iterator ~= nil and (done > 0 or not anew) then
    run.next = run.source.open(data.iterator)
  elseif anew and done > 0 then
    run.next = passed_over(run, done)
  end
  set_random()
  if anew and done > 0 then
    local pack = run.next()
    if pack == nil then
      run.next = nil
      return epoch + 1
    end
    run.next = with_first(pack, run.next)
  end
  run.start = done > 0 and done or nil
  return epoch
end

--- Where fit's feed is, plain values for resume.data; nil where that cannot be
--- said. `within`: in an epoch, not at its end.
function M.position(own, within)
  local run = own.run
  return run.source.state
    and run.source.state(within or run.next ~= nil) or nil
end

-- A pass through what the epoch has; from the feed's beginning where nothing
-- was left behind the epoch before.
local function pass_of(run, pass)
  local is_new = run.next == nil
  run.next = run.next or run.source.open()
  pass.next = run.next
  local count, ended = M.pass(pass, run.limit, run.own.steps_per_execution)
  if ended and count == 0 and not is_new and run.source.restarts then
    run.next = nil
    return pass_of(run, pass)
  end
  return count, ended
end

local function train_epoch(run, epoch)
  local own, progress, model = run.own, run.progress, run.model
  own.variables = nil
  if run.start == nil then -- else they hold what was counted
    model:reset_metrics()
    own.on_metrics = nil
  end
  course.call(run, "on_epoch_begin", epoch, {})
  course.before_epoch(run, epoch)
  progress:begin(run.steps, epoch, run.epochs)
  local pass = {
    model = model, own = own, body = run.body, mode = "train",
    custom = run.custom, callbacks = run.callbacks, progress = progress,
    epoch = epoch, start = run.start,
  }
  run.start = nil
  local count, ended = pass_of(run, pass)
  progress:done(count, pass.examples)
  if count == 0 then
    return nil, true
  end
  -- A data set that ends with the epoch begins anew in the next one.
  if begins_anew(run) then
    run.steps = run.steps or count
    run.next = nil
  elseif ended and run.source.restarts then
    run.next = nil
  end
  local short = run.limit ~= nil and count < run.limit
    or ended and not run.source.restarts and epoch + 1 < run.epochs
  return M.numbers(read_results(pass, pass.ticket)),
    short and not model.stop_training, count
end

local function validate(run, list)
  local val = run.validation
  -- What it draws must not matter to training.
  local found = random_seed.aside(M.evaluate, run.model, val.source, {
    steps = val.steps, callbacks = run.callbacks, what = "fit: validation_data",
  })
  for _, entry in ipairs(found) do
    list[#list + 1] = { "val_" .. entry[1], entry[2] }
  end
end

-- One epoch with all that belongs to it; returns false when it is the last.
local function epoch_of(run, epoch)
  local list, short, count = train_epoch(run, epoch)
  if list == nil then
    if epoch == run.initial_epoch then
      shortage.no_data(run)
    end
    shortage.ran_out(run, 0)
    return false
  elseif short then
    shortage.ran_out(run, count)
  end
  if run.validation ~= nil and validation_due(run.validation.freq, epoch) then
    validate(run, list)
  end
  local logs = M.logs(list)
  course.call(run, "on_epoch_end", epoch, logs)
  run.progress:finish(with_additions(list, logs))
  run.logs = logs
  return not run.ran_out and not run.model.stop_training
end

-- Copies that differ at the start would differ ever after.
local function check_copies(run)
  distributed.check_copies("fit", run.model.variables)
  distributed.check_copies("fit", run.own.optimizer.variables, true)
end

--- Train. run: model, own, source, limit (steps_per_epoch or nil), epochs,
---   initial_epoch, callbacks, progress, validation? { source, steps, freq }
function M.fit(run)
  local model, own = run.model, run.own
  run.body, run.custom = M.train_body(model)
  run.steps = run.limit or run.source.steps
  model.stop_training = false
  own.run = run
  course.call(run, "on_train_begin", {})
  course.begin(run) -- who failed in a callback is waited for there
  check_copies(run)
  local first, resume = run.initial_epoch, own.resume
  own.resume, own.builds_apart = nil, resume ~= nil
  if resume ~= nil then
    first = go_on(run, resume)
  end
  run.initial_epoch = first
  local done = first
  for epoch = first, run.epochs - 1 do
    done = epoch + 1
    if not course.explained(run, epoch, epoch_of) then
      break
    end
  end
  course.leave(run, done)
  if run.epochs > 0 then
    own.optimizer:finalize_variable_values(model.trainable_variables)
  end
  course.call(run, "on_train_end", run.logs or {})
  course.finish(run)
end

-- The line of the script that called fit, or nil at the prompt.
local function calling_place()
  local file, line = (errors.position() or ""):match "^(.*):(%d+)$"
  return file and { file = file, line = tonumber(line) }
end

local in_scope = counted.method("fit, evaluate and predict",
  function(strategy, fn)
    return strategy:scope(fn)
  end)

--- Call fn with the strategy's scope around it; a line that is being drawn is
--- left when it fails.
--- Errors: RuntimeError in a replica function.
function M.inside(own, progress, fn)
  local mode = contexts.mode()
  if mode ~= nil and mode.replica ~= nil and mode.replica.thread ~= nil then
    errors.raise("RuntimeError", "fit, evaluate and predict run their steps on "
      .. "all replicas; they cannot be called in a replica function",
      "call them outside of strategy:run")
  end
  -- fit's, while a callback evaluates or trains on a batch
  local outer, run, weights = own.place, own.run, own.class_weight
  own.place = calling_place()
  local function protected()
    local ok, e = pcall(fn)
    own.place, own.run, own.class_weight = outer, run, weights
    if not ok then
      progress:interrupt()
      errors.raise_again(e)
    end
    return e
  end
  if own.strategy == contexts.default_strategy then
    return protected()
  end
  return in_scope(own.strategy, protected)
end

return M
