--- tf.cond, tf.while_loop, tf.map_fn and the like. Ops run at the call, so
--- these are loops of Lua; they exist for programs written with them.
---
--- Where TensorFlow passes a tuple, a plain list becomes several arguments, and
--- several results become a list.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local check_function = text.check_callable

-- A Lua boolean from a boolean or a scalar boolean tensor.
local function truth(what, name, x)
  if type(x) == "boolean" then
    return x
  end
  local t = raw.operand_tensor(convert.operand(x, nil, what, name))
  tracing.refuse(what, t)
  if raw.tensor_dtype(t) ~= "bool" or raw.tensor_size(t) ~= 1 then
    errors.raise("TypeError", ("%s: %s must be one boolean, got a %s tensor of "
      .. "%d elements"):format(what, name, raw.tensor_dtype(t),
      raw.tensor_size(t)))
  end
  return raw.item(t)
end

local function pack(...)
  return { n = select("#", ...), ... }
end

-- Arguments for a structure: the elements of a list, else the thing itself.
local function arguments(x)
  if nest.is_nested(x) then
    local n, keys = nest.layout(x)
    if keys == nil then
      return n, x
    end
  end
  return 1, { x }
end

local function call(fn, x)
  local n, list = arguments(x)
  return fn(unpack(list, 1, n))
end

-- Several results as one structure.
local function structure(results)
  if results.n == 1 then
    return results[1]
  end
  return results
end

local function give(x)
  local n, list = arguments(x)
  return unpack(list, 1, n)
end

-- Leaves of elems as tensors, and their common size of axis 0.
local function rows(what, elems)
  local size
  local tensors = nest.map_structure(function(x)
    local t = convert.tensor(x, nil, what, "elems")
    if raw.tensor_rank(t) == 0 then
      errors.raise("ValueError", what .. ": elems must have an axis 0, got a "
        .. "scalar")
    end
    local n = raw.tensor_dim(t, 0)
    if size ~= nil and n ~= size then
      errors.raise("InvalidArgument", ("%s: elems differ in axis 0: %d and %d")
        :format(what, size, n))
    end
    size = n
    return t
  end, elems)
  if size == nil then
    errors.raise("ValueError", what .. ": elems hold no tensor")
  end
  return tensors, size
end

local function row(tensors, i)
  return nest.map_structure(function(t)
    return t[i]
  end, tensors)
end

-- Stack equal structures, one for each row.
local function stack(tf, what, list)
  if #list == 0 then
    errors.raise("ValueError", what .. ": elems are empty, so the result's "
      .. "shape is not known")
  end
  local flats = {}
  for i = 1, #list do
    nest.assert_same_structure(list[1], list[i])
    flats[i] = nest.flatten(list[i])
  end
  local out = { n = flats[1].n }
  for leaf = 1, out.n do
    local parts = {}
    for i = 1, #list do
      parts[i] = flats[i][leaf]
    end
    out[leaf] = tf.stack(parts, 0)
  end
  return nest.pack_sequence_as(list[1], out)
end

local function clock(def)
  --- Seconds since 1970 when it is called, a float64 scalar.
  --- Source: tf.timestamp
  def("timestamp", "name=nil", function()
    if tracing.current() ~= nil then
      errors.raise("NotImplementedError", "timestamp cannot be traced yet")
    end
    return convert.tensor(raw.wall_time(), "float64", "timestamp", "time")
  end)
end

local function branches(def)
  --- true_fn() or false_fn(), by a boolean or a scalar boolean tensor.
  --- Source: tf.cond
  def("cond", "pred true_fn false_fn name=nil",
    function(pred, true_fn, false_fn)
      check_function("cond", "true_fn", true_fn)
      check_function("cond", "false_fn", false_fn)
      if truth("cond", "pred", pred) then
        return true_fn()
      end
      return false_fn()
    end)

  --- The function of the first pair { pred, fn } whose pred is true.
  --- Errors: InvalidArgument when none is and there is no default, or when
  ---   several are and `exclusive` is set.
  --- Source: tf.case
  def("case", "pred_fn_pairs default=nil exclusive=false strict=false "
    .. "name='case'", function(pairs_list, default, exclusive)
      local chosen
      local _, n = options.list("case", "pred_fn_pairs", pairs_list, "pairs")
      for i = 1, n do
        local pair = options.list("case", ("pred_fn_pairs[%d]"):format(i),
          pairs_list[i], "a condition and a function")
        check_function("case", "pred_fn_pairs[" .. i .. "][2]", pair[2])
        if truth("case", "pred_fn_pairs[" .. i .. "][1]", pair[1]) then
          if chosen == nil then
            chosen = pair[2]
          elseif exclusive then
            errors.raise("InvalidArgument", "case: more than one condition "
              .. "holds, but exclusive = true")
          end
        end
      end
      chosen = chosen or default
      if chosen == nil then
        errors.raise("InvalidArgument", "case: no condition holds and there "
          .. "is no default")
      end
      check_function("case", "default", chosen)
      return chosen()
    end)

  --- branch_fns[branch_index + 1](); out of range: default, or the last.
  --- Source: tf.switch_case
  def("switch_case", "branch_index branch_fns default=nil name=nil",
    function(index, fns, default)
      if type(index) ~= "number" then
        index = raw.operand_tensor(convert.index_operand(index, "switch_case",
          "branch_index"))
        tracing.refuse("switch_case", index)
        index = raw.item(index)
      end
      options.integer("switch_case", "branch_index", index)
      options.list("switch_case", "branch_fns", fns, "functions")
      local fn = fns[index + 1] or default or fns[#fns]
      check_function("switch_case", "branch_fns", fn)
      return fn()
    end)
end

local function loops(tf, def)
  --- body(vars...) while cond(vars...) holds; returns the last values.
  --- Source: tf.while_loop
  def("while_loop", "cond body loop_vars shape_invariants=nil "
    .. "parallel_iterations=10 back_prop=true swap_memory=false "
    .. "maximum_iterations=nil name=nil",
    function(cond, body, vars, _, _, _, _, most)
      check_function("while_loop", "cond", cond)
      check_function("while_loop", "body", body)
      if most ~= nil then
        options.integer("while_loop", "maximum_iterations", most)
      end
      local n, values = arguments(vars)
      values = { unpack(values, 1, n) }
      local count = 0
      while (most == nil or count < most)
        and truth("while_loop", "cond's result",
          (cond(unpack(values, 1, n)))) do
        local results = pack(body(unpack(values, 1, n)))
        if results.n == 1 and n ~= 1 and nest.is_nested(results[1]) then
          results = pack(give(results[1]))
        end
        if results.n ~= n then
          errors.raise("ValueError", ("while_loop: body returned %d values for "
            .. "%d loop variables"):format(results.n, n))
        end
        values = results
        count = count + 1
      end
      return unpack(values, 1, n)
    end)

  --- fn of each row, stacked along a new axis 0.
  --- Shapes: elems [n, ...]; the result is [n, shape of fn's result].
  --- Source: tf.map_fn
  def("map_fn vectorized_map", "fn elems dtype=nil parallel_iterations=nil "
    .. "back_prop=true swap_memory=false infer_shape=true name=nil "
    .. "fn_output_signature=nil", function(fn, elems)
      check_function("map_fn", "fn", fn)
      local tensors, size = rows("map_fn", elems)
      local results = {}
      for i = 0, size - 1 do
        results[i + 1] = structure(pack(call(fn, row(tensors, i))))
      end
      return give(stack(tf, "map_fn", results))
    end)
end

-- Calls fn(accumulated, row) over all rows; `each` gets every state.
local function fold(what, fn, elems, initializer, backwards, each)
  check_function(what, "fn", fn)
  local tensors, size = rows(what, elems)
  local first, last, step = 0, size - 1, 1
  if backwards then
    first, last, step = size - 1, 0, -1
  end
  local value = initializer
  if value == nil then
    if size == 0 then
      errors.raise("ValueError", what .. ": elems are empty and there is no "
        .. "initializer")
    end
    value = row(tensors, first)
    first = first + step
    each(value)
  end
  for i = first, last, step do
    value = structure(pack(fn(value, row(tensors, i))))
    each(value)
  end
  return value
end

local function folds(tf, def)
  local REST = " initializer=nil parallel_iterations=10 back_prop=true "
    .. "swap_memory=false name=nil"
  local function nothing() end

  --- fn(...fn(fn(initializer, row 0), row 1)...). Source: tf.foldl
  def("foldl", "fn elems" .. REST, function(fn, elems, initializer)
    return give(fold("foldl", fn, elems, initializer, false, nothing))
  end)

  --- The same from the last row. Source: tf.foldr
  def("foldr", "fn elems" .. REST, function(fn, elems, initializer)
    return give(fold("foldr", fn, elems, initializer, true, nothing))
  end)

  --- All intermediate values of foldl, stacked; with `reverse` from the last
  --- row to the first. Source: tf.scan
  def("scan", "fn elems initializer=nil parallel_iterations=10 back_prop=true "
    .. "swap_memory=false infer_shape=true reverse=false name=nil",
    function(fn, elems, initializer, _, _, _, _, reverse)
      local list = {}
      fold("scan", fn, elems, initializer, reverse, function(value)
        list[#list + 1] = value
      end)
      for i = 1, reverse and math.floor(#list / 2) or 0 do
        local k = #list + 1 - i
        list[i], list[k] = list[k], list[i]
      end
      return give(stack(tf, "scan", list))
    end)
end

--- Put the functions into tf.
function M.install(tf, def)
  clock(def)
  branches(def)
  loops(tf, def)
  folds(tf, def)
end

return M
