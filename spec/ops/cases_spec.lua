--- Every op against NumPy and against finite differences, on dense inputs, on
--- views with gaps, and on the last logical device.

local tf = require "tfdist"
local raw = require "tfdist.core.raw"
local cases = require "spec.support.cases"

-- In loops over elements: a global costs busted several calls.
local abs, ipairs = math.abs, ipairs

local TOLERANCE = {
  float32 = { abs = 2e-6, rel = 2e-5 },
  float64 = { abs = 1e-12, rel = 1e-10 },
  float16 = { abs = 4e-3, rel = 4e-3 },
  bfloat16 = { abs = 3e-2, rel = 3e-2 },
}
local EXACT = { abs = 0, rel = 0 }
local STEP = 1e-6 -- central differences: error about STEP^2 + 1e-16 / STEP
local GRADIENT = { abs = 2e-7, rel = 2e-5 }

local FLOAT = cases.FLOAT

local function tolerance(case, dtype)
  local own = case.tol and case.tol[dtype]
  local base = TOLERANCE[dtype] or EXACT
  if not own then return base end
  return { abs = math.max(own, base.abs), rel = math.max(own, base.rel) }
end

local function close(got, want, tol)
  if want ~= want then return got ~= got end
  if got == want then return true end
  return abs(got - want) <= tol.abs + tol.rel * abs(want)
end

local function dims_text(dims) return "{" .. table.concat(dims, ", ") .. "}" end

local function flat(t)
  local out = t:reshape { -1 }:totable()
  for i, v in ipairs(out) do
    if v == true then out[i] = 1 elseif v == false then out[i] = 0 end
  end
  return out
end

local function compare(case, dtype, outs, expected, how)
  assert(#outs == #expected, ("%s: %d outputs, expected %d"):format(
    case.name, #outs, #expected))
  for o, want in ipairs(expected) do
    local got = outs[o]
    local label = ("%s %s %s output %d"):format(case.name, dtype, how, o - 1)
    assert.are.equal(dims_text(want.dims), dims_text(got.shape), label)
    local tol = FLOAT[got.dtype] and tolerance(case, dtype) or EXACT
    local values = flat(got)
    for i, w in ipairs(want.values) do
      if not close(values[i], w, tol) then
        error(("%s: element %d is %.17g, NumPy has %.17g"):format(
          label, i - 1, values[i], w), 0)
      end
    end
  end
end

local function dense(spec, values, dtype)
  return tf.constant(values, { dtype = spec.dtype or dtype,
                               shape = spec.dims })
end

local function reversed(list)
  local out = {}
  for i, v in ipairs(list) do out[#list + 1 - i] = v end
  return out
end

--- The same values in memory with gaps or in another order.
local function gappy(t)
  local rank = #t.shape
  if rank == 0 then return t end
  if rank == 1 then
    local twice = tf.stack({ t, t }, { axis = 1 }):reshape { -1 }
    return twice[{ { 0, nil, 2 } }]
  end
  local perm = {}
  for i = 1, rank do perm[i] = rank - i end
  return tf.transpose(tf.transpose(t, perm) + tf.zeros(reversed(t.shape),
    { dtype = t.dtype }), perm)
end

local function gappy_any(t)
  if t.dtype ~= "bool" then return gappy(t) end
  return gappy(t:cast "int32"):cast "bool"
end

local function inputs(case, dtype, make)
  local out = {}
  for i, spec in ipairs(case.inputs) do
    local t = dense(spec, cases.values(spec, i - 1, dtype), dtype)
    out[i] = make and make(t) or t
  end
  return out
end

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

local function call(case, args)
  return { case.fn(tf, unpack(args, 1, #case.inputs)) }
end

local function check_values(case, expected)
  for _, dtype in ipairs(case.dtypes) do
    local want = expected[dtype]
    compare(case, dtype, call(case, inputs(case, dtype)), want, "dense")
    compare(case, dtype, call(case, inputs(case, dtype, gappy_any)), want,
      "view")
  end
end

-- Gradients --------------------------------------------------------------------

--- A fixed weight for each output element, so that no error can cancel.
local function weights_like(out, k)
  local spec = { kind = "normal", dims = out.shape }
  return tf.constant(cases.values(spec, 50 + k), { dtype = out.dtype,
                                                   shape = out.shape })
end

local function weighted(outs, weights)
  local total = 0
  for i, out in ipairs(outs) do
    if weights[i] then
      total = total + tf.reduce_sum(out * weights[i]):item()
    end
  end
  return total
end

local function float_outputs(outs)
  local weights, targets, grads = {}, {}, {}
  for i, out in ipairs(outs) do
    if FLOAT[out.dtype] then
      weights[i] = weights_like(out, i)
      targets[#targets + 1] = out
      grads[#grads + 1] = weights[i]
    end
  end
  return weights, targets, grads
end

local function numeric(case, args, which, weights)
  local spec = case.inputs[which]
  local values = cases.values(spec, which - 1)
  local out = {}
  for i, v in ipairs(values) do
    local sides = {}
    for side = 1, 2 do
      values[i] = v + (side == 1 and STEP or -STEP)
      local moved = {}
      for k = 1, #case.inputs do moved[k] = args[k] end
      moved[which] = dense(spec, values, "float64")
      sides[side] = weighted(call(case, moved), weights)
    end
    values[i] = v
    out[i] = (sides[1] - sides[2]) / (2 * STEP)
  end
  return out
end

local function to_dense(g)
  return tf.convert_to_tensor(g)
end

local function check_gradients(case)
  local args = inputs(case, "float64")
  local list = cases.differentiated(case)
  local sources = {}
  for i, which in ipairs(list) do sources[i] = args[which] end
  local outs
  local tape = tf.GradientTape(function(t)
    for _, s in ipairs(sources) do t:watch(s) end
    outs = call(case, args)
  end)
  local weights, targets, grads = float_outputs(outs)
  local got = tape:gradient(targets, sources, { output_gradients = grads })
  for i, which in ipairs(list) do
    local want = numeric(case, args, which, weights)
    local label = ("%s: gradient of input %d"):format(case.name, which - 1)
    if got[i] == nil then
      for _, w in ipairs(want) do
        assert(math.abs(w) < 1e-6, label .. " is missing")
      end
    else
      local values = flat(to_dense(got[i]))
      assert.are.equal(#want, #values, label)
      for e, w in ipairs(want) do
        local tol = GRADIENT
        if case.grad_tol then
          tol = { abs = case.grad_tol, rel = case.grad_tol }
        end
        if not close(values[e], w, tol) then
          error(("%s, element %d is %.12g, differences give %.12g"):format(
            label, e - 1, values[e], w), 0)
        end
      end
    end
  end
end

-- The table ----------------------------------------------------------------------

local function has_float64(case)
  for _, d in ipairs(case.dtypes) do
    if d == "float64" then return true end
  end
  return false
end

local function last_device()
  local devices = tf.config.list_logical_devices "CPU"
  return devices[#devices].name
end

for _, family in ipairs(cases.families) do
  local list = {}
  for _, case in ipairs(cases.load(family)) do
    if cases.is_chosen(case.name) then list[#list + 1] = case end
  end
  if #list > 0 then
    describe("ops of family " .. family, function()
      local expected = cases.reference(family, list)
      for _, case in ipairs(list) do
        it(case.name .. " agrees with NumPy", function()
          check_values(case, expected[case.name])
        end)
        it(case.name .. " agrees on the last device", function()
          tf.device(last_device(), function()
            local dtype = case.dtypes[1]
            compare(case, dtype, call(case, inputs(case, dtype)),
              expected[case.name][dtype], "last device")
          end)
        end)
        if case.grad and has_float64(case) then
          it(case.name .. " has the gradient of finite differences",
            function() check_gradients(case) end)
        end
      end
    end)
  end
end

describe("the case table", function()
  it("covers every op", function()
    local covered = {}
    for _, family in ipairs(cases.families) do
      for _, case in ipairs(cases.load(family)) do
        for op in case.op:gmatch "%S+" do covered[op] = true end
      end
    end
    local missing = {}
    for number = 0, raw.op_count() - 1 do
      local name = raw.op_name(number)
      if not covered[name] then missing[#missing + 1] = name end
    end
    assert.are.equal("", table.concat(missing, " "))
  end)
end)
