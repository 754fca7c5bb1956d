--- tf.map_fn, tf.scan and the folds: functions of rows. Where ops run at the
--- call these are loops of Lua; a traced function has one body, which the graph
--- repeats.
---
--- Where TensorFlow passes a tuple, a plain list becomes several arguments, and
--- several results become a list.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local loops = require "tfdist.core.loops"
local nest = require "tfdist.base.nest"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local check_function = text.check_callable
local give, pack, structure = loops.give, loops.pack, loops.structure

-- Rows -------------------------------------------------------------------------

-- Leaves of elems as tensors, and their common size of axis 0: -1 where only a
-- call knows it. `one`: rows of which there is one may stand for all.
local function rows(what, elems, one)
  local size
  local tensors = nest.map(what, function(x)
    local t = convert.tensor(x, nil, what, "elems")
    if raw.tensor_rank(t) == 0 then
      errors.raise("ValueError", what .. ": elems must have an axis 0, got a "
        .. "scalar")
    end
    local n = raw.open_dim(t, 0)
    if size == nil or size == -1 or one and size == 1 then
      size = n
    elseif n ~= size and n ~= -1 and not (one and n == 1) then
      errors.raise("InvalidArgument", ("%s: elems differ in axis 0: %d and %d")
        :format(what, size, n))
    end
    return t
  end, elems)
  if size == nil then
    errors.raise("ValueError", what .. ": elems hold no tensor")
  end
  return tensors, size
end

local function take(tensors, key)
  return nest.map_structure(function(t)
    return t[key]
  end, tensors)
end

-- Stack equal structures, one for each row.
local function stack(tf, what, list)
  local flats = {}
  for i = 1, #list do
    nest.check_same(list[1], list[i], what .. ": fn's results")
    flats[i] = nest.flatten(list[i])
  end
  local out = { n = flats[1].n }
  for leaf = 1, out.n do
    local parts = {}
    for i = 1, #list do
      parts[i] = flats[i][leaf]
    end
    out[leaf] = errors.said_by(what, tf.stack, parts, 0)
  end
  return nest.pack_sequence_as(list[1], out)
end

-- A loop of the graph over rows of the tensors' leaves. step(vars, row) gives
-- the next and what is stacked.
local function graph_rows(what, tensors, size, l)
  l.tensors = nest.flatten(tensors)
  l.size = size
  if size >= 0 then
    l.count = convert.tensor(size, "int32", what, "size")
  end
  local step = l.step
  function l.step(vars, list)
    return step(vars, nest.pack_sequence_as(tensors, list))
  end
  return loops.run(what, l)
end

-- Signatures -------------------------------------------------------------------

-- A leaf of fn_output_signature: a dtype, or what has one and a shape or none.
local function wanted(what, leaf)
  if type(leaf) == "table" and type(leaf.dtype) == "string" then
    return leaf.dtype, leaf.shape
  end
  return convert.dtype(leaf, what), nil
end

local function fits(dims, shape)
  local good = shape == nil or #shape == #dims
  for axis = 1, good and shape and #dims or 0 do
    good = good and (shape[axis] < 0 or dims[axis] < 0
      or shape[axis] == dims[axis])
  end
  return good
end

-- The result of one row as the signature, if there is one, has it.
local function conform(what, signature, result)
  if signature == nil then
    return result
  end
  nest.check_same(signature, result, what .. ": fn's result is not as "
    .. "fn_output_signature says")
  return nest.map_structure(function(leaf, x)
    local dtype, shape = wanted(what, leaf)
    local t = convert.tensor(x, dtype, what, "fn's result")
    if raw.tensor_dtype(t) ~= dtype then
      errors.raise("TypeError", ("%s: fn's result is %s, fn_output_signature "
        .. "asks for %s"):format(what, raw.tensor_dtype(t), dtype))
    elseif not fits(raw.tensor_dims(t), shape) then
      errors.raise("ValueError", ("%s: fn's result has shape %s, "
        .. "fn_output_signature asks for %s"):format(what,
        text.shape(raw.tensor_dims(t)), text.shape(shape)))
    end
    return t
  end, signature, result)
end

-- The result of no rows: fn has not said what it gives. TensorFlow then takes
-- the dtypes of elems, and no shape.
local function nothing_mapped(what, signature, tensors)
  return nest.map_structure(function(leaf)
    local dtype, shape
    if type(leaf) == "userdata" then
      dtype = raw.tensor_dtype(leaf)
    else
      dtype, shape = wanted(what, leaf)
    end
    local dims = { 0 }
    for axis = 1, shape and #shape or 0 do
      if shape[axis] < 0 then
        return raw.tensor_from_values({}, dtype, { 0 })
      end
      dims[axis + 1] = shape[axis]
    end
    return raw.tensor_from_values({}, dtype, dims)
  end, signature == nil and tensors or signature)
end

-- Maps -------------------------------------------------------------------------

local function map_in_graph(what, fn, tensors, size, signature)
  local like
  local _, stacked = graph_rows(what, tensors, size, { vars = { n = 0 },
    step = function(_, row)
      like = conform(what, signature, structure(pack(loops.call(fn, row))))
      local flat = nest.flatten(like)
      for i = 1, flat.n do
        flat[i] = convert.tensor(flat[i], nil, what, "fn's result")
      end
      return { n = 0 }, flat
    end })
  return nest.pack_sequence_as(like, stacked)
end

local function map(tf, what, fn, tensors, size, signature)
  if tracing.current() ~= nil then
    return map_in_graph(what, fn, tensors, size, signature)
  elseif size == 0 then
    return nothing_mapped(what, signature, tensors)
  end
  local results = {}
  for i = 0, size - 1 do
    results[i + 1] = conform(what, signature,
      structure(pack(loops.call(fn, take(tensors, i)))))
  end
  return stack(tf, what, results)
end

-- Rows of which there is one, as often as there are others.
local function spread(tf, tensors, size)
  return nest.map_structure(function(t)
    local dims = raw.tensor_dims(t)
    if size <= 1 or dims[1] ~= 1 then
      return t
    end
    dims[1] = size
    return tf.broadcast_to(t, dims)
  end, tensors)
end

local function maps(tf, def)
  --- fn of each row, stacked along a new axis 0. fn_output_signature: dtypes or
  --- TensorSpecs of what fn gives, in its structure.
  --- Shapes: elems [n, ...]; the result is [n, shape of fn's result].
  --- Errors: InvalidArgument when elems differ in n; ValueError, TypeError when
  ---   fn gives other things than fn_output_signature says.
  --- Source: tf.map_fn
  def("map_fn", "fn elems dtype=nil parallel_iterations=nil "
    .. "back_prop=true swap_memory=false infer_shape=true name=nil "
    .. "fn_output_signature=nil", function(fn, elems, dtype, _, _, _, _, _,
      signature)
      check_function("map_fn", "fn", fn)
      if signature == nil then
        signature = dtype
      end
      local tensors, size = rows("map_fn", elems)
      return give(map(tf, "map_fn", fn, tensors, size, signature))
    end)

  --- fn of each row, stacked along a new axis 0; elems of one row stand for as
  --- many as the others have. Source: tf.vectorized_map
  def("vectorized_map", "fn elems fallback_to_while_loop=true warn=true",
    function(fn, elems)
      check_function("vectorized_map", "fn", fn)
      local tensors, size = rows("vectorized_map", elems, true)
      return give(map(tf, "vectorized_map", fn, spread(tf, tensors, size), size))
    end)
end

-- Folds ------------------------------------------------------------------------

local function no_rows(what)
  errors.raise("ValueError", what .. ": elems are empty and there is no "
    .. "initializer")
end

-- The state that fn gives for the one before and a row.
local function next_state(what, fn, state, row)
  local results = pack(fn(state, row))
  if results.n == 0 then
    errors.raise("ValueError", what .. ": fn returned nothing, expected the "
      .. "next state")
  end
  return structure(results)
end

-- Calls fn(accumulated, row) over all rows; `each` gets every state.
local function fold(what, fn, elems, initializer, backwards, each)
  local tensors, size = rows(what, elems)
  local first, last, step = 0, size - 1, 1
  if backwards then
    first, last, step = size - 1, 0, -1
  end
  local value = initializer
  if value == nil then
    if size == 0 then
      no_rows(what)
    end
    value = take(tensors, first)
    first = first + step
    each(value)
  end
  value = loops.dense(what, value)
  for i = first, last, step do
    local after = loops.dense(what, next_state(what, fn, value, take(tensors, i)))
    loops.check_next(value, after, "%s: fn's results", what)
    value = after
    each(value)
  end
  return value
end

-- Lua numbers to begin with are of the rows' dtype.
local function begin(what, initializer, tensors)
  local dtype = raw.tensor_dtype(nest.flatten(tensors)[1])
  return nest.map_structure(function(x)
    return convert.tensor(x, dtype, what, "initializer")
  end, initializer)
end

-- The last state, and all of them but the first row where that is the first.
local function fold_in_graph(what, fn, elems, initializer, backwards, all)
  local tensors, size = rows(what, elems)
  local value
  if initializer ~= nil then
    value = begin(what, initializer, tensors)
  elseif size == 0 then
    no_rows(what)
  else
    value = take(tensors, backwards and -1 or 0)
    tensors = take(tensors, backwards and { { 0, -1 } } or { { 1 } })
    size = size > 0 and size - 1 or size
  end
  local last, stacked = graph_rows(what, tensors, size, { vars = value,
    reversed = backwards, step = function(state, row)
      return next_state(what, fn, state, row), not all and { n = 0 } or nil
    end })
  return last, stacked, value
end

local function fold_of(what, fn, elems, initializer, backwards)
  check_function(what, "fn", fn)
  if tracing.current() ~= nil then
    return (fold_in_graph(what, fn, elems, initializer, backwards, false))
  end
  return fold(what, fn, elems, initializer, backwards, function() end)
end

local function scan_in_graph(tf, fn, elems, initializer, reverse)
  local _, stacked, first = fold_in_graph("scan", fn, elems, initializer,
    reverse, true)
  if initializer == nil then
    local flat = nest.flatten(first)
    for i = 1, flat.n do
      local row = tf.expand_dims(flat[i], 0)
      stacked[i] = tf.concat(reverse and { stacked[i], row }
        or { row, stacked[i] }, 0)
    end
  end
  return nest.pack_sequence_as(first, stacked)
end

-- States of no rows: none, of the shape of the one to begin with.
local function nothing_scanned(initializer, tensors)
  return nest.map_structure(function(t)
    local dims = raw.tensor_dims(t)
    table.insert(dims, 1, 0)
    return raw.tensor_from_values({}, raw.tensor_dtype(t), dims)
  end, begin("scan", initializer, tensors))
end

local function scan(tf, fn, elems, initializer, reverse)
  local list = {}
  fold("scan", fn, elems, initializer, reverse, function(value)
    list[#list + 1] = value
  end)
  if #list == 0 then
    return nothing_scanned(initializer, (rows("scan", elems)))
  end
  for i = 1, reverse and math.floor(#list / 2) or 0 do
    local k = #list + 1 - i
    list[i], list[k] = list[k], list[i]
  end
  return stack(tf, "scan", list)
end

local function folds(tf, def)
  local REST = " initializer=nil parallel_iterations=10 back_prop=true "
    .. "swap_memory=false name=nil"

  --- fn(...fn(fn(initializer, row 0), row 1)...).
  --- Errors: ValueError without rows and initializer, and in traced functions
  ---   where fn's result has another shape than the state before.
  --- Source: tf.foldl
  def("foldl", "fn elems" .. REST, function(fn, elems, initializer)
    return give(fold_of("foldl", fn, elems, initializer, false))
  end)

  --- The same from the last row. Source: tf.foldr
  def("foldr", "fn elems" .. REST, function(fn, elems, initializer)
    return give(fold_of("foldr", fn, elems, initializer, true))
  end)

  --- All intermediate values of foldl, stacked; with `reverse` from the last
  --- row to the first. Source: tf.scan
  def("scan", "fn elems initializer=nil parallel_iterations=10 back_prop=true "
    .. "swap_memory=false infer_shape=true reverse=false name=nil",
    function(fn, elems, initializer, _, _, _, _, reverse)
      check_function("scan", "fn", fn)
      local run = tracing.current() ~= nil and scan_in_graph or scan
      return give(run(tf, fn, elems, initializer, reverse))
    end)
end

--- Put the functions into tf.
function M.install(tf, def)
  maps(tf, def)
  folds(tf, def)
end

return M
