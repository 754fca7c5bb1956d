--- The cases of cases.lua here and at a peer: plan, training, comparison.
---
--- A folder takes plan, images and first weights to the peer's program and its
--- answers back; scripts/parity/plan.py says what lies where.
local cases = require "spec.parity.cases"
local json = require "tfdist.core.json"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local M = {}

--- Bound of relative differences where a case has none of its own.
M.BOUND = 1e-4

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function is_object(x)
  return type(x) == "table" and type(x[1]) == "string"
    and x[1]:find "^%l[%w_]*%.[%w_.]+$" ~= nil
end

-- The plan --------------------------------------------------------------------

-- Fields of a layer in a graph that are not its options.
local PLACE = { at = true, each = true }

local function plain(x)
  if type(x) ~= "table" then return x end
  local out = {}
  if not is_object(x) then
    for key, value in pairs(x) do
      out[type(key) == "number" and x[0] ~= nil and tostring(key) or key] =
        plain(value)
    end
    return out
  end
  out.class, out.options, out.args = x[1], {}, { n = #x - 1 }
  for i = 2, #x do out.args[i - 1] = plain(x[i]) end
  for key, value in pairs(x) do
    if PLACE[key] then
      out[key] = plain(value)
    elseif type(key) == "string" then
      out.options[key] = plain(value)
    end
  end
  return out
end

local function write(path, contents)
  local file = assert(io.open(path, "wb"))
  file:write(contents)
  file:close()
end

--- Rows that training of the case reads, 320 more for fit's evaluation.
local function rows_of(case)
  return case.fit and case.rows + 320 or case.steps * case.batch
end

--- Put the plan and the data into a folder.
---@param folder string
---@param list table[]  cases
---@param replicas integer[]
---@return table? data  { images, labels, weights }; nil and a message without
---   the data set
function M.plan(folder, list, replicas)
  local x, y = tf.keras.datasets.fashion_mnist.load_data()
  if x == nil then return nil, y end
  local rows = 0
  for _, case in ipairs(list) do rows = math.max(rows, rows_of(case)) end
  local first = { { 0, rows } }
  local data = { images = x[first], labels = y[first], rows = rows }
  -- Weights of examples, 0.25 to 2 by 0.25.
  data.weights = tf.cast(tf.range(rows) % 8 + 1, "float32") / 4
  for _, name in ipairs { "images", "labels", "weights" } do
    tf.io.write_npy(("%s/%s.npy"):format(folder, name), data[name])
  end
  write(folder .. "/plan.json", json.encode({ cases = plain(list),
    replicas = replicas }, true))
  return data
end

--- What the peer found when it ran last; nil and a message before.
function M.answers(folder)
  local file, why = io.open(folder .. "/answers.json", "rb")
  if file == nil then return nil, why end
  local found = json.decode(file:read "*a")
  file:close()
  return found
end

--- Run a peer's program; what it found, or nil and what it said.
---@param command string  interpreter and program
---@param folder string
---@param seconds integer
function M.ask(command, folder, seconds)
  local result = process.run(("%s %s"):format(command, process.quote(folder)),
    nil, seconds)
  if result.code ~= 0 then
    return nil, ("exit status %d\n%s"):format(result.code, result.err)
  end
  return M.answers(folder)
end

-- Here ------------------------------------------------------------------------

local function make(x)
  if type(x) ~= "table" then return x end
  local values, named = {}, {}
  local object = is_object(x)
  for key, value in pairs(x) do
    if object and type(key) == "string" then
      if not PLACE[key] then named[key] = make(value) end
    else
      values[key] = make(value)
    end
  end
  if not object then return values end
  local found = tf.keras
  for name in x[1]:gmatch "[^.]+" do found = found[name] end
  values[#values + 1] = next(named) ~= nil and named or nil
  return found(unpack(values, 2))
end

local SHAPES = { flat = { 784 }, image = { 28, 28, 1 }, rows = { 28, 28 },
  tokens = { 28 }, ids = { 4 } }

local function examples(data, form, first, last)
  local images = data.images[{ { first, last } }]
  if form == "tokens" then
    return tf.cast(images[{ {}, 14, {} }], "int32")
  elseif form == "ids" then
    local place = tf.expand_dims(tf.range(first, last) % 16 * 4, 1)
      + tf.expand_dims(tf.range(4), 0)
    return place * 8
      + tf.math.floordiv(tf.cast(images[{ {}, 14, { 0, 28, 7 } }], "int32"), 32)
  end
  return tf.reshape(tf.cast(images, "float32") / 255,
    { -1, unpack(SHAPES[form]) })
end

local targets
function targets(data, form, first, last)
  if type(form) == "table" then
    local list = {}
    for i, each in pairs(form) do
      list[i] = targets(data, each, first, last)
    end
    return list
  end
  local labels = tf.cast(data.labels[{ { first, last } }], "int32")
  if form == "classes" then
    return labels
  elseif form == "onehot" then
    return tf.one_hot(labels, 10)
  elseif form == "upper" then
    return tf.cast(tf.reshape(tf.greater_equal(labels, 5), { -1, 1 }),
      "float32")
  end
  return examples(data, "flat", first, last)
end

local function graph(case, x)
  local outputs = { [0] = x }
  for i, entry in ipairs(case.layers) do
    local inputs = {}
    for k, at in ipairs(entry.at or { i - 1 }) do inputs[k] = outputs[at] end
    local layer = make(entry)
    if #inputs == 1 or entry.each then
      outputs[i] = layer(unpack(inputs))
    else
      outputs[i] = layer(inputs)
    end
  end
  local chosen = outputs[#case.layers]
  if case.outputs then
    chosen = {}
    for i, at in pairs(case.outputs) do chosen[i] = outputs[at] end
  end
  return tf.keras.Model(x, chosen)
end

-- The model with the peer's first weights.
local function build(case, folder)
  local x = tf.keras.Input(SHAPES[case.x], {
    dtype = (case.x == "tokens" or case.x == "ids") and "int32" or "float32" })
  local model
  if case.graph then
    model = graph(case, x)
  else
    local layers = make(case.layers)
    table.insert(layers, 1, x)
    model = tf.keras.Sequential(layers)
  end
  local weights = {}
  for k = 1, #model.weights do
    weights[k] = assert(tf.io.read_npy(("%s/w%d.npy"):format(folder, k - 1)))
  end
  assert(tf.io.read_npy(("%s/w%d.npy"):format(folder, #weights)) == nil,
    "the peer's model has more weights")
  model:set_weights(weights)
  return model
end

local function strategy_of(n)
  if n == 1 then return tf.distribute.get_strategy() end
  local devices = {}
  for i = 1, n do devices[i] = "/cpu:" .. i - 1 end
  return tf.distribute.MirroredStrategy { devices = devices }
end

local function scope(strategy, n, fn)
  if n == 1 then return fn() end
  return strategy:scope(fn)
end

local function train(case, data, folder, n)
  local strategy = strategy_of(n)
  local model, optimizer, loss_fn = scope(strategy, n, function()
    local loss = { reduction = "none" }
    for key, value in pairs(case.loss) do loss[key] = value end
    return build(case, folder), make(case.optimizer), make(loss)
  end)
  local function step(x, y)
    local tape, loss = tf.GradientTape(function()
      local sum = tf.nn.compute_average_loss(
        loss_fn(y, model(x, { training = true })),
        { global_batch_size = case.batch })
      if #model.losses > 0 then
        sum = sum + tf.nn.scale_regularization_loss(tf.add_n(model.losses))
      end
      return sum
    end)
    local variables = model.trainable_variables
    optimizer:apply_gradients(tape:gradient(loss, variables), variables)
    return loss
  end
  local function share(form, fn, first)
    local size = case.batch / n
    return strategy:experimental_distribute_values_from_function(
      function(context)
        local from = first + context.replica_id_in_sync_group * size
        return fn(data, form, from, from + size)
      end)
  end
  local losses = {}
  for i = 1, case.steps do
    local first = (i - 1) * case.batch
    local x, y = share(case.x, examples, first), share(case.y, targets, first)
    losses[i] = strategy:reduce("SUM", strategy:run(step, { x, y })):item()
  end
  return model, { losses = losses }
end

local function callbacks_of(case)
  local list = make(case.callbacks or {})
  if case.halve then
    list[#list + 1] = tf.keras.callbacks.LearningRateScheduler(
      function(_, rate) return rate * 0.5 end)
  end
  return list
end

local function fit(case, data, folder, n)
  local rows = case.rows
  local strategy = strategy_of(n)
  local model = scope(strategy, n, function()
    local built = build(case, folder)
    built:compile { optimizer = make(case.optimizer), loss = make(case.loss),
      loss_weights = case.loss_weights, metrics = make(case.metrics),
      weighted_metrics = make(case.weighted_metrics) }
    return built
  end)
  local options = { y = targets(data, case.y, 0, rows), verbose = 0,
    callbacks = callbacks_of(case),
    sample_weight = case.weights and data.weights[{ { 0, rows } }] or nil }
  for key, value in pairs(case.fit) do options[key] = value end
  local history = model:fit(examples(data, case.x, 0, rows), options)
  local found = model:evaluate(examples(data, case.x, rows, rows + 300),
    targets(data, case.y, rows, rows + 300),
    { verbose = 0, batch_size = 100, return_dict = true })
  local predicted = model:predict(examples(data, case.x, rows, rows + 20),
    { verbose = 0 })
  if type(predicted) == "table" then
    predicted = predicted.kind or predicted[1]
  end
  return model, { history = history.history, evaluate = found,
    predict = predicted[{ {}, 0 }]:totable() }
end

-- Comparison ------------------------------------------------------------------

-- Is b more than a? NaN is more than all numbers.
local function more(a, b)
  return a == a and (b > a or b ~= b)
end

-- Numbers that are smaller than this are compared with it.
local SMALL = 1e-3

--- Largest relative difference in two structures of numbers.
--- Errors: what is not on both sides.
function M.difference(ours, theirs, where)
  if type(theirs) ~= "table" then
    if type(ours) ~= "number" then
      error(("%s is not there on our side"):format(where), 0)
    end
    return math.abs(ours - theirs) / math.max(math.abs(theirs), SMALL), where
  elseif type(ours) ~= "table" then
    error(("%s has no list on our side"):format(where), 0)
  end
  local most, at = 0, where
  for key in pairs(ours) do
    if key ~= "n" and theirs[key] == nil then
      error(("%s %s is there on our side only"):format(where, key), 0)
    end
  end
  for key, value in pairs(theirs) do
    if key ~= "n" then
      local d, place = M.difference(ours[key], value, where .. " " .. key)
      if more(most, d) then most, at = d, place end
    end
  end
  return most, at
end

-- Predictions, relative to the largest: logits cross 0.
local function predictions_difference(ours, theirs)
  local most, scale = 0, SMALL
  for i, value in ipairs(theirs) do
    local d = math.abs(ours[i] - value)
    if more(most, d) then most = d end
    scale = math.max(scale, math.abs(value))
  end
  return most / scale, " predict"
end

-- Last weights, relative to the norm of each; nil when the peer kept none.
local function weights_difference(model, folder, n)
  local most
  for k, variable in ipairs(model.weights) do
    local theirs = tf.io.read_npy(("%s/%d-f%d.npy"):format(folder, n, k - 1))
    if theirs ~= nil then
      local ours = variable:read_value()
      local norm = tf.norm(theirs):item()
      local d = tf.norm(ours - theirs):item() / math.max(norm, SMALL)
      if most == nil or more(most, d) then most = d end
    end
  end
  return most
end

--- Train a case on n replicas and compare it with the peer's answers.
---@return table { name, replicas, steps, difference, where, weights, bound,
---   ok, message }
function M.compare(case, data, folder, n, answers)
  local peer_n = case.alone and 1 or n
  local answer = answers[case.name] and answers[case.name][tostring(peer_n)]
  local row = { name = case.name, replicas = n, bound = case.bound or M.BOUND,
    steps = case.steps or case.fit.epochs .. " ep." }
  local place = ("%s/%d"):format(folder, case.id)
  local ok, why = pcall(function()
    if answer == nil then error("no answer of the peer", 0) end
    if answer.error then error("the peer: " .. answer.error, 0) end
    local model, found = (case.fit and fit or train)(case, data, place, n)
    local predict, d, where = found.predict, 0, nil
    if predict then
      d, where = predictions_difference(predict, answer.predict)
    end
    row.difference, row.where = M.difference({ losses = found.losses,
      history = found.history, evaluate = found.evaluate },
      { losses = answer.losses, history = answer.history,
        evaluate = answer.evaluate }, "")
    if more(row.difference, d) then
      row.difference, row.where = d, where
    end
    row.weights = weights_difference(model, place, peer_n)
  end)
  row.ok = ok and row.difference <= row.bound
  row.message = not ok and tostring(why) or nil
  return row
end

--- The cases whose names contain one of the words; all without words.
function M.cases(words, choose)
  local list = {}
  for _, case in ipairs(cases.list) do
    local wanted = #words == 0
    for _, word in ipairs(words) do
      wanted = wanted or case.name:find(word, 1, true) ~= nil
    end
    if wanted and (choose == nil or choose(case)) then
      list[#list + 1] = case
    end
  end
  return list
end

--- Counts of replicas that the devices here allow.
function M.replicas()
  return raw.device_count "CPU" >= 2 and { 1, 2 } or { 1 }
end

return M
