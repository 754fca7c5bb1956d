--- What branches, loops of values and loops over rows share: conditions,
--- structures of results, and loops that the graph goes through.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local flow = require "tfdist.core.flow"
local nest = require "tfdist.base.nest"
local raw = require "tfdist.core.raw"
local tensor_array = require "tfdist.core.tensor_array"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

--- One boolean: a Lua boolean, or the tensor that has it at a call.
function M.condition(what, name, x)
  if type(x) == "boolean" then
    return x
  end
  local t = convert.operand(x, nil, what, name)
  if tracing.current() ~= nil and raw.kind(t) == "variable" then
    t = raw.variable_read(t)
  end
  t = raw.operand_tensor(t)
  if raw.tensor_dtype(t) ~= "bool" or raw.tensor_size(t) ~= 1 then
    errors.raise("TypeError", ("%s: %s must be one boolean, got a %s tensor of "
      .. "%d elements"):format(what, name, raw.tensor_dtype(t),
      raw.tensor_size(t)))
  elseif tracing.is_symbolic(t) then
    return t
  end
  return raw.item(t)
end

--- All arguments as a list with n.
function M.pack(...)
  return { n = select("#", ...), ... }
end

--- Arguments for a structure: the elements of a list, else the thing itself.
local function arguments(x)
  if nest.is_nested(x) then
    local n, keys = nest.layout(x)
    if keys == nil then
      return n, x
    end
  end
  return 1, { x }
end

--- fn of a structure, whose elements are its arguments.
function M.call(fn, x)
  local n, list = arguments(x)
  return fn(unpack(list, 1, n))
end

--- Several results as one structure.
function M.structure(results)
  if results.n == 1 then
    return results[1]
  end
  return results
end

M.arguments = arguments

--- A structure as several results.
function M.give(x)
  local n, list = arguments(x)
  return unpack(list, 1, n)
end

--- What an iteration of `what` gets for x. How elements lie decides the order of sums:
--- it is to have the bits of the graph's, where memory is dense.
function M.dense(what, x)
  if type(x) == "userdata" then
    local strided = raw.kind(x) == "tensor" and not raw.tensor_is_dense(x)
    return strided and raw.op_run(raw.op_find "concat", { x, n = 1 }, { 0 })
      or x
  elseif nest.is_nested(x) then
    return nest.map(what, function(leaf)
      return M.dense(what, leaf)
    end, x)
  end
  return x
end

--- Check that a state has the structure of the one before it. Errors: ValueError,
--- which begins as the format and what is in it say.
function M.check_next(before, after, format, ...)
  if nest.is_nested(before) or nest.is_nested(after) then
    nest.check_same(before, after, format:format(...))
  end
end

--- The words of an error.
function M.said(problem)
  return errors.is_error(problem) and problem.message or tostring(problem)
end

-- Sizes that loop variable i may have: -1 = any.
local function invariant_of(t, i, shape)
  local dims = raw.tensor_dims(t)
  if shape == nil then
    return dims
  end
  shape = convert.integers(shape, "while_loop", ("shape_invariants of loop "
    .. "variable %d"):format(i))
  local good = #shape == #dims
  for axis = 1, good and #dims or 0 do
    good = good and (shape[axis] == -1 or dims[axis] == -1
      or shape[axis] == dims[axis])
  end
  if not good then
    errors.raise("ValueError", ("while_loop: loop variable %d has shape %s, "
      .. "shape_invariants allow %s"):format(i, text.shape(dims),
      text.shape(shape)))
  end
  return shape
end

-- What shape_invariants has for each leaf of the variables, in their order.
local function spread_shapes(vars, shapes, out)
  if not nest.is_nested(vars) then
    out.n = out.n + 1
    out[out.n] = shapes
    return out
  end
  local n, keys = nest.layout(vars)
  local m, others
  if nest.is_nested(shapes) then
    m, others = nest.layout(shapes)
  elseif shapes ~= nil then
    errors.raise("TypeError", "while_loop: shape_invariants must be shapes in "
      .. "tables like those of loop_vars, got " .. text.describe(shapes))
  end
  if m ~= nil and (m ~= n or (others and #others) ~= (keys and #keys)) then
    errors.raise("ValueError", ("while_loop: shape_invariants and loop_vars "
      .. "don't have the same number of elements: %d and %d"):format(
      m + (others and #others or 0), n + (keys and #keys or 0)),
      "one shape for each variable, in the same tables")
  end
  for i = 1, n do
    spread_shapes(vars[i], shapes and shapes[i], out)
  end
  for i = 1, keys and #keys or 0 do
    spread_shapes(vars[keys[i]], shapes and shapes[keys[i]], out)
  end
  return out
end

-- Values of a loop as tensors of the graph; a variable's is what it has there.
local function loop_tensors(what, flat, like)
  local out = { n = flat.n }
  for i = 1, flat.n do
    local t = convert.operand(flat[i], like and raw.tensor_dtype(like[i]), what,
      "loop variable " .. i)
    out[i] = raw.kind(t) == "tensor" and t or flow.identity(t)
  end
  return out
end

-- Does a value enter an iteration as the one before left it?
local function check_carry(what, i, before, after)
  local a, b = raw.tensor_dims(before), raw.tensor_dims(after)
  local good = #a == #b
  for axis = 1, good and #a or 0 do
    good = good and (a[axis] == -1 or a[axis] == b[axis])
  end
  if raw.tensor_dtype(before) ~= raw.tensor_dtype(after) then
    errors.raise("TypeError", ("%s: loop variable %d is %s and %s after one "
      .. "iteration"):format(what, i, raw.tensor_dtype(before),
      raw.tensor_dtype(after)))
  elseif not good then
    tracing.look_at_sizes(b)
    errors.raise("ValueError", ("%s: loop variable %d enters the loop with "
      .. "shape %s, but has shape %s after one iteration"):format(what, i,
      text.shape(a), text.shape(b)), what == "while_loop" and "to allow the "
      .. "shape to vary across iterations, use the `shape_invariants` argument"
      or nil)
  end
end

-- Structures with arrays in them -----------------------------------------------

--- The structure with plain lists of tensors in the places of arrays.
function M.spread(x)
  return nest.map_structure(function(leaf)
    return tensor_array.is_array(leaf) and tensor_array.spread(leaf) or leaf
  end, x)
end

--- The structure `like` with the leaves of a list, what M.spread(like) has,
--- arrays made of theirs.
function M.gathered(like, flat)
  local at = 0
  return nest.map_structure(function(leaf)
    at = at + 1
    if not tensor_array.is_array(leaf) then
      return flat[at]
    end
    local rows = flat[at]
    at = at + (leaf.dynamic_size and 1 or 0)
    return tensor_array.gathered(leaf, rows, leaf.dynamic_size and flat[at]
      or nil)
  end, like)
end

-- The first iteration, traced for what it writes into arrays whose elements
-- have no shape yet.
local function with_shapes(l)
  local before, blank = nest.flatten(l.vars), false
  for i = 1, before.n do
    blank = blank or tensor_array.is_array(before[i])
      and tensor_array.is_blank(before[i])
  end
  if not blank then
    return l.vars
  end
  local after
  flow.part(function(part)
    local vars = { n = before.n }
    for i = 1, vars.n do
      vars[i] = tensor_array.is_array(before[i]) and before[i]
        or flow.argument(part, (convert.tensor(before[i], nil, "loop", "x")))
    end
    local rows = { n = l.tensors.n }
    for r = 1, rows.n do
      rows[r] = flow.row(part, l.tensors[r])
    end
    after = nest.flatten((l.step(nest.pack_sequence_as(l.vars, vars), rows)))
  end, true)
  for i = 1, before.n do
    if tensor_array.is_array(before[i]) and tensor_array.is_array(after[i]) then
      before[i] = tensor_array.like(before[i], after[i])
    end
  end
  return nest.pack_sequence_as(l.vars, before)
end

-- Sizes that the carries may have, one for each tensor of the spread leaves.
local function invariants(vars, flat, shapes)
  local leaves, dims, at = nest.flatten(vars), {}, 0
  shapes = spread_shapes(vars, shapes, { n = 0 })
  for i = 1, leaves.n do
    at = at + 1
    if tensor_array.is_array(leaves[i]) then
      dims[at] = tensor_array.dims(leaves[i], flat[at])
      at = at + (leaves[i].dynamic_size and 1 or 0)
      dims[at] = dims[at] or {}
    else
      dims[at] = invariant_of(flat[at], i, shapes[i])
    end
  end
  return dims
end

local function binary(name, a, b)
  return (raw.op_run(raw.op_find(name), { a, b, n = 2 }))
end

-- One more carry counts the iterations up to l.bound.
local function count_to_bound(l)
  local body, check, at = l.body, l.check, l.inits.n + 1
  local dtype = raw.tensor_dtype(l.bound)
  local one = raw.tensor_from_values({ 1 }, dtype, {})
  l.inits.n, l.inits[at] = at, raw.tensor_from_values({ 0 }, dtype, {})
  l.dims[at] = {}
  function l.body(carries, rows)
    local after, stacks = body(carries, rows)
    after.n, after[at] = at, binary("add", carries[at], one)
    return after, stacks
  end
  function l.check(carries)
    return binary("logical_and", binary("less", carries[at], l.bound),
      check(carries))
  end
end

--- A loop that the graph goes through, as flow.loop has it: structure l.vars,
--- l.again(vars), with l.bound, a tensor, at most that often, or l.count,
--- l.tensors; l.step(vars, rows) gives the next and what is stacked, a list;
--- nil = the next itself. Returns the last and stacks.
function M.run(what, l)
  l.size, l.most = l.size or -1, l.most or -1
  l.reversed, l.tensors = l.reversed == true, l.tensors or { n = 0 }
  local vars = with_shapes(l)
  local flat = loop_tensors(what, nest.flatten(M.spread(vars)))
  l.inits, l.dims = flat, invariants(vars, flat, l.shapes)
  function l.body(carries, rows)
    local after, stacks = l.step(M.gathered(vars, carries), rows)
    nest.check_same(vars, after, what)
    after = loop_tensors(what, nest.flatten(M.spread(after)), carries)
    for i = 1, after.n do
      check_carry(what, i, carries[i], after[i])
    end
    return after, stacks or { n = after.n, unpack(after, 1, after.n) }
  end
  if l.again ~= nil then
    function l.check(carries)
      local holds = M.condition(what, "cond's result",
        l.again(M.gathered(vars, carries)))
      return type(holds) == "boolean" and convert.tensor(holds, "bool", what,
        "cond") or holds
    end
  end
  if l.bound ~= nil then
    count_to_bound(l)
  end
  local last, stacked = flow.loop(l)
  return M.gathered(vars, last), stacked
end

return M
