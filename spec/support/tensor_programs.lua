--- Random tensor programs, traced against run line by line: the same bits.
---
--- In specs: programs.run(n, seed); as a program:
---   lua5.4 spec/support/tensor_programs.lua [N [SEED]] [--show] [--devices=N]
--- A program that fails is made as short as it can be and printed with the seed
--- that repeats it.
local errors = require "tfdist.base.errors"
local generate = require "spec.support.programs.generate"
local helpers = require "spec.support.programs.helpers"
local raw = require "tfdist.core.raw"
local rng = require "spec.fuzz.rng"
local tf = require "tfdist"

local M = {}

local FLOAT = require "spec.support.programs.moves".FLOAT
local unpack = table.unpack or unpack -- luacheck: ignore 143 113

-- Running --------------------------------------------------------------------

-- Do NaN of other signs and payloads count as others?
local strict = os.getenv "TFDIST_FUSION" == "0"
local one_nan = false

local function bits(t)
  if one_nan and FLOAT[raw.tensor_dtype(t)] then
    t = tf.where(tf.math.is_nan(t), tf.cast(0 / 0, t.dtype), t)
  end
  return ("%s {%s} %s"):format(raw.tensor_dtype(t),
    table.concat(raw.tensor_dims(t), ", "), raw.tensor_bytes(t))
end

local function pack(...)
  return { n = select("#", ...), ... }
end

local function is_float(x)
  return helpers.is_tensor(x) and FLOAT[x.dtype]
end

-- What a call gives: results, and all variables after it.
local function outcome(variables, fn, args)
  tf.random.set_seed(7)
  local list = {}
  local ok, e = pcall(function()
    for i, t in ipairs { fn(unpack(args)) } do list[i] = bits(t) end
    for _, v in ipairs(variables) do list[#list + 1] = bits(v:read_value()) end
    helpers.settle()
  end)
  if ok then return list end
  pcall(helpers.settle) -- what fails late is no fault of the next call
  return { kind = errors.kind(e) or "no error object", text = tostring(e) }
end

-- fn with a tape around: its results and gradients.
local function around(variables, fn)
  return function(...)
    local given, outs = { ... }, nil
    local sources = {}
    for _, x in ipairs(given) do
      if is_float(x) then sources[#sources + 1] = x end
    end
    for _, v in ipairs(variables) do sources[#sources + 1] = v end
    local tape = tf.GradientTape(function(t)
      t:watch(sources)
      outs = pack(fn(unpack(given)))
    end)
    local targets = {}
    for i = 1, outs.n do
      if is_float(outs[i]) then targets[#targets + 1] = outs[i] end
    end
    if #targets == 0 or #sources == 0 then return unpack(outs, 1, outs.n) end
    local grads = pack(helpers.gradients(tape, targets, sources))
    for i = 1, grads.n do outs[outs.n + i] = grads[i] end
    return unpack(outs, 1, outs.n + grads.n)
  end
end

local function resized(specs, dims)
  local out = {}
  for i, s in ipairs(specs) do
    out[i] = { dtype = s.dtype, dims = dims[i] }
  end
  return out
end

local function calls_of(program)
  local calls = {}
  for k = 1, 3 do
    calls[k] = { args = helpers.inputs(program.inputs, k, program.has_tape) }
  end
  calls[4] = { args = calls[1].args, around = program.around }
  calls[5] = { args = calls[2].args }
  if program.sizes ~= nil then
    calls[6] = { args = helpers.inputs(resized(program.inputs,
      program.sizes.other), 1) }
  end
  return calls
end

-- A call with NaN, after which nothing of it may be left: memory of a graph has
-- NaN wherever the next call does not write first. Whatever it gives or raises.
local function poison(variables, fn, args)
  local kept, given = {}, {}
  for i, v in ipairs(variables) do kept[i] = tf.identity(v) end
  for i, t in ipairs(args) do
    given[i] = is_float(t) and tf.fill(t.shape, tf.cast(0 / 0, t.dtype)) or t
  end
  pcall(fn, unpack(given))
  pcall(helpers.settle)
  for i, v in ipairs(variables) do v:assign(kept[i]) end
end

-- All calls in one way of running. They end at the first error: what was
-- written before it may differ.
local function run(program, way)
  local v, variables = {}, helpers.variables(program.variables)
  local chunk = generate.compile(generate.source(program))
  local function plain(...)
    for key in pairs(v) do v[key] = nil end
    for i = 1, select("#", ...) do v[i] = (select(i, ...)) end
    return chunk(tf, helpers, variables, v, unpack)
  end
  local fn = plain
  if way.traced then fn = tf.function_(plain) end
  if way.open then
    local specs = {}
    for i, s in ipairs(program.inputs) do
      specs[i] = tf.TensorSpec(program.sizes.open[i], s.dtype)
    end
    fn = tf.function_(plain, { input_signature = specs })
  end
  helpers.trace_inner = way.inner == true
  helpers.unsigned = program.taped
  local list = {}
  for k, call in ipairs(calls_of(program)) do
    if k == 2 and way.traced then poison(variables, fn, call.args) end
    list[k] = outcome(variables, call.around and around(variables, fn) or fn,
      call.args)
    if list[k].kind ~= nil then break end
  end
  return list
end

local WAYS = {
  { name = "traced", traced = true, inner = true },
  { name = "traced inside", inner = true },
  { name = "traced for open sizes", open = true, inner = true },
}

-- Sizes that an input signature leaves open, and others for them.
local function choose_sizes(program)
  local r, open, other = rng.new(program.seed, 77), {}, {}
  for i, s in ipairs(program.inputs) do
    open[i], other[i] = {}, {}
    for k, size in ipairs(s.dims) do
      local is_open = r:one_in(2)
      open[i][k] = is_open and -1 or size
      other[i][k] = is_open and r:one_in(2) and r:int(0, 4) or size
    end
  end
  program.sizes = { open = open, other = other }
end

local function describe(x)
  if x == nil then return "nothing" end
  if x.kind ~= nil then return x.kind .. ": " .. x.text end
  return #x .. " values"
end

-- The first difference between two lists of outcomes, nil = none. What nobody
-- uses fails line by line and is not computed at all in a graph. `kinds`: do
-- the kinds of errors count? Sizes that only a call knows are checked later.
local function difference(want, got, kinds)
  for k = 1, math.max(#want, #got) do
    local a, b = want[k], got[k]
    if a ~= nil and a.kind ~= nil and b ~= nil and b.kind == nil then
      return nil
    end
    if a == nil or b == nil or #a ~= #b
      or kinds and k < 6 and a.kind ~= b.kind
      or (a.kind == nil) ~= (b.kind == nil) then
      return ("call %d: %s run line by line, %s traced"):format(k, describe(a),
        describe(b))
    end
    for i = 1, #a do
      if a[i] ~= b[i] then
        return ("call %d: value %d differs: %s, %s"):format(k, i,
          a[i]:match "^%S+ %b{}", b[i]:match "^%S+ %b{}")
      end
    end
  end
end

local function compare(program)
  local want = run(program, {})
  for _, way in ipairs(WAYS) do
    local may = way.traced or way.open and program.sizes ~= nil
      or way.name == "traced inside" and program.has_inner
    if may then
      local wrong = difference(want, run(program, way), not way.open)
      if wrong then return way.name .. ": " .. wrong end
    end
  end
end

-- What is wrong with a program, nil = nothing. The processor takes the NaN of
-- the first operand, and a fused group may have the operands in another order.
local function verdict(program)
  local wrong = compare(program)
  if wrong == nil or strict then return wrong end
  one_nan = true
  local ok, still = pcall(compare, program)
  one_nan = false
  return ok and still or not ok and wrong or nil
end

-- Shrinking ------------------------------------------------------------------

-- Without the statement that `out` names and all that need it.
local function without(statements, out, gone)
  local list = {}
  for _, s in ipairs(statements) do
    local keep = s ~= out
    local text = table.concat(generate.render { s }, "\n")
    for id in text:gmatch "v%[(%d+)%]" do
      if gone[tonumber(id)] then keep = false end
    end
    if keep then
      list[#list + 1] = s
    else
      for _, id in ipairs(s.defs) do gone[id] = true end
      for line in text:gmatch "[^\n]+" do
        local left = line:match "^%s*(v%[[^=]*%]) = " or ""
        for id in left:gmatch "%d+" do gone[tonumber(id)] = true end
      end
    end
  end
  return list
end

local function copy(program)
  local out = {}
  for key, value in pairs(program) do out[key] = value end
  return out
end

local function shorter(program, k)
  local small, gone = copy(program), {}
  small.statements = without(program.statements, program.statements[k], gone)
  small.results = {}
  for _, id in ipairs(program.results) do
    if not gone[id] then small.results[#small.results + 1] = id end
  end
  return small
end

local function fewer_results(program, k)
  local small = copy(program)
  small.results = { unpack(program.results) }
  table.remove(small.results, k)
  return small
end

local function pass_over(program, n, make)
  for k = n, 1, -1 do
    local small = make(program, k)
    local ok, wrong = pcall(verdict, small)
    if ok and wrong ~= nil then program = small end
  end
  return program
end

local function shrink(program)
  for _ = 1, 3 do
    local before = #program.statements
    program = pass_over(program, #program.results, fewer_results)
    program = pass_over(program, #program.statements, shorter)
    if #program.statements == before then break end
  end
  return program
end

local function spec_text(list)
  local parts = {}
  for i, s in ipairs(list) do
    parts[i] = ("%s {%s}"):format(s.dtype, table.concat(s.dims, ", "))
  end
  return table.concat(parts, ", ")
end

local function report(program, wrong, devices)
  return ("program %d, %s\ninputs v[1]...: %s\nvariables V[1]...: %s\n%s\n"
    .. "again: lua5.4 spec/support/tensor_programs.lua 1 %d --devices=%d")
    :format(program.seed, wrong, spec_text(program.inputs),
      spec_text(program.variables), generate.source(program), program.seed,
      devices)
end

-- Many -----------------------------------------------------------------------

--- Run n programs with seeds from `seed` on; raises at the first that differs.
--- Returns how many steps they had and how many ended in an error.
---@param options table?  devices (default: what there are), show
function M.run(n, seed, options)
  options = options or {}
  local devices = options.devices or raw.device_count "CPU"
  local total = { steps = 0, failed = 0 }
  for k = seed, seed + n - 1 do
    if options.show then print("program " .. k) io.flush() end
    local program = generate.program(k, { devices = devices })
    if program.open then choose_sizes(program) end
    local wrong = verdict(program)
    if wrong ~= nil then
      local small = shrink(program)
      error(report(small, verdict(small) or wrong, devices), 0)
    end
    total.steps = total.steps + #program.statements
    total.failed = total.failed + (program.failed and 1 or 0)
  end
  return total
end

if rawget(_G, "arg") and tostring(arg[0]):find "tensor_programs%.lua$" then
  local numbers, options = {}, {}
  for _, word in ipairs(arg) do
    numbers[#numbers + 1] = tonumber(word)
    options.show = options.show or word == "--show"
    options.devices = options.devices or tonumber(word:match "^--devices=(.*)$")
  end
  local ok, e = pcall(M.run, numbers[1] or 1000, numbers[2] or 1, options)
  if not ok then
    print(e)
    os.exit(1)
  end
  print(("%d steps, %d programs ended in an error"):format(e.steps, e.failed))
end

return M
