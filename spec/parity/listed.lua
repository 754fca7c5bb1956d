--- What differs from TensorFlow on purpose, or is TensorFlow's own fault.
---
--- An entry: the names of cases it is for (a pattern), what the message says (a
--- pattern, where only that is meant), `when(case, out)`: whether the program,
--- the inputs and what came out here make it such a case; how many bounds the
--- difference may be (any, where not given), and why.
local tf = require "tfdist"

local M = {}

-- The first call of `path`, or of a method, in a program; nil without one.
local function call_of(x, path)
  if type(x) ~= "table" then return nil end
  if x.call == path then return x end
  for _, each in pairs(x) do
    local found = call_of(each, path)
    if found ~= nil then return found end
  end
  return nil
end

local function shape_of(case, i)
  return case.inputs[i][3]
end

-- The first number here under a label.
local function number_of(out, label)
  for _, each in ipairs(out) do
    if each.label == label then return tonumber(tostring(each.value)) end
  end
  return nil
end

local function counts_right(_, out)
  return number_of(out, "cardinality") == number_of(out, "elements")
end

-- Steps that leave two elements or more between windows padded as "SAME".
local function leaps(window, step, padding)
  return type(window) == "number" and type(step) == "number"
    and step >= window + 2 and tostring(padding):upper() == "SAME"
end

local function leaping_pool(case)
  for _, kind in ipairs { "max", "avg" } do
    local call = call_of(case.program, "nn." .. kind .. "_pool3d")
    if call ~= nil then
      return leaps(call.args[2], call.args[3], call.args[4])
    end
  end
  return false
end

local function leaping_layer(case)
  for _, kind in ipairs { "Max", "Average" } do
    local call = call_of(case.program, "keras.layers." .. kind .. "Pooling3D")
    if call ~= nil then
      return leaps(call.args[1], call.options.strides, call.options.padding)
    end
  end
  return false
end

local function one_example(case)
  return shape_of(case, 2)[1] == 1 and #shape_of(case, 2) == 2
end

local function has_no_outputs(case)
  for _, size in ipairs(case.outputs[1][2][3]) do
    if size == 0 then return true end
  end
  return false
end

local function normalizes_one(case)
  local shape = shape_of(case, 1)
  local dot = call_of(case.program, "keras.layers.Dot")
  if dot ~= nil then
    return dot.options.normalize and shape[dot.options.axes + 1] == 1
  end
  return shape[#shape] == 1
end

local function divides_by_itself(case)
  for _, name in ipairs { "divide", "divide_no_nan" } do
    local call = call_of(case.program, "math." .. name)
    if call ~= nil then
      return call.args[1]["in"] ~= nil
        and call.args[1]["in"] == call.args[2]["in"]
    end
  end
  return false
end

local function saturates(case)
  return call_of(case.program, "saturate_cast") ~= nil
end

-- A term that has elements along one axis only, where the sum before it has as
-- many along its second or last: to Keras's add it is a bias of that axis.
local function taken_for_bias(case)
  local sum = shape_of(case, 1)
  for i = 2, #case.inputs do
    local term, wide, axis, next_sum = shape_of(case, i), 0, nil, {}
    for a, size in ipairs(term) do
      next_sum[a] = math.max(size, sum[a])
      if size > 1 then wide, axis = wide + 1, a end
    end
    local n = wide == 1 and term[axis]
    if n and (n == sum[#sum] and axis ~= #sum or n == sum[2] and axis ~= 2) then
      return true
    end
    sum = next_sum
  end
  return false
end

-- 1 - y^2 of a saturated tanh.
local function saturates_tanh(case, out)
  if call_of(case.program, "tanh") == nil then return false end
  local y = tf.abs(out[1].value)
  return tf.reduce_any(tf.logical_and(tf.greater(y, 0.99), tf.less(y, 1)))
    :item()
end

local function steps_as_heads(case)
  local call = call_of(case.program, "keras.layers.MultiHeadAttention")
  local heads, size = call.args[1], call.args[2]
  local other = call.options.value_dim or size
  return (size == 1 or other == 1)
    and (shape_of(case, 1)[2] == heads or shape_of(case, 2)[2] == heads)
end

local BIAS = "Keras takes a term with one axis for a bias of the second or the "
  .. "last axis"
local LATE = "TensorFlow's windows are one element late there; its own pool2d, and "
  .. "its pool3d with oneDNN, are not"
local ONE = "a vector of one element has length 1 whatever it is: the gradient is "
  .. "0, and what is printed is rounding"

M.list = {
  { name = "^data: ", message = "^cardinality: element 0 is %d+, not %-2",
    when = counts_right,
    why = "what comes of nothing, or of one element, is known; TensorFlow does "
      .. "not know" },
  { name = "^math: math%.divide", message = "^gradient: ", most = 100,
    when = divides_by_itself,
    why = "x / x is 1 whatever x is: the gradient is 0, and what is printed is "
      .. "rounding" },
  { name = "^math: cast int64 to int64$", message = "not %-9223372036854775808$",
    when = saturates,
    why = "TensorFlow's saturate_cast rounds the limits of int64, and what it "
      .. "clips overflows" },
  { name = "^math: chain", message = "^[%a ]*gradient: ", most = 100,
    when = saturates_tanh,
    why = "1 - y * y of a saturated tanh has few digits, here and there" },
  { name = "^nn: image%.resize bicubic", most = 500,
    why = "TensorFlow reads cubic weights from a table of 1,024 places" },
  { name = "^nn: %a+_pool3d$", when = leaping_pool, why = LATE },
  { name = "^layers: %a+Pooling3D$", when = leaping_layer, why = LATE },
  { name = "^nn: depthwise_conv2d$", message = "^gradient: ",
    when = has_no_outputs,
    why = "without outputs TensorFlow's gradient of the filter is memory that "
      .. "nobody has written" },
  { name = "^losses: %S+ none, weights of rank 0 of 1",
    message = "^value: shape {1}, not {}$", when = one_example,
    why = "Keras drops the axis of a single example beside a scalar weight" },
  { name = "^losses: %S+ mean_with_sample_weight, weights of rank 0 of 1",
    when = one_example,
    why = "Keras drops the axis of a single example beside a scalar weight, "
      .. "and then does not divide by the weight" },
  { name = "^layers: Dot$", message = "^gradient: ", most = 100,
    when = normalizes_one, why = ONE },
  { name = "^layers: UnitNormalization$", message = "^gradient: ", most = 100,
    when = normalizes_one, why = ONE },
  { name = "^layers: MultiHeadAttention", when = steps_as_heads,
    why = "Keras adds a bias of {heads, 1} along the steps where there are as "
      .. "many as heads" },
  { name = "^layers: Add$", when = taken_for_bias, why = BIAS },
  { name = "^layers: Average$", when = taken_for_bias, why = BIAS },
  { name = "^fit: .*Adam", most = 5,
    why = "TensorFlow rounds 1 - beta to float32, which is 1e-5 of each step" },
}

--- Why an output of a case may differ; nil when it may not.
---@param case table
---@param message string  what differs
---@param over number     by how many bounds
---@param out table       what came out here: { label, value } each
function M.reason(case, message, over, out)
  for _, entry in ipairs(M.list) do
    if (case.family .. ": " .. case.name):find(entry.name)
      and message:find(entry.message or "")
      and over <= (entry.most or math.huge)
      and (entry.when == nil or entry.when(case, out)) then
      return entry.why
    end
  end
  return nil
end

return M
