--- tf.cond, tf.case, tf.switch_case and tf.while_loop. Where ops run at the
--- call, these are branches and loops of Lua; in traced functions those that
--- values decide on are part of the graph (module flow).
---
--- Where TensorFlow passes a tuple, a plain list becomes several arguments, and
--- several results become a list.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local flow = require "tfdist.core.flow"
local lists = require "tfdist.base.lists"
local loops = require "tfdist.core.loops"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local arguments, condition, pack = loops.arguments, loops.condition, loops.pack
local check_function = text.check_callable
local said = loops.said

local function clock(def)
  --- Seconds since 1970 when it is called, a float64 scalar.
  --- Source: tf.timestamp
  def("timestamp", "name=nil", function()
    local function now()
      return convert.tensor(raw.wall_time(), "float64", "timestamp", "time")
    end
    if tracing.current() == nil then
      return now()
    end
    return tracing.host({ n = 0 }, function()
      return { now(), n = 1 }
    end, { { dtype = "float64", dims = {} }, n = 1 })[1]
  end)
end

-- Numbers are float32 here where nobody says otherwise: whether one is whole is
-- seen at the call.
local function whole_number(tf, what, name, x)
  x = tf.reshape(x, {})
  if raw.tensor_dtype(x):find "float" then
    -- The difference to infinity is no number.
    tf.debugging.assert_equal(x - tf.floor(x), tf.zeros_like(x),
      ("%s: %s must be a whole number"):format(what, name))
    return tf.cast(x, "int32")
  end
  return x
end

-- Branches ---------------------------------------------------------------------

-- Results that are not the same in all branches: TensorFlow's words.
local function mismatch(what, detail)
  errors.raise("TypeError", ("%s: true_fn and false_fn arguments to tf.cond "
    .. "must have the same number, type, and overall structure of return "
    .. "values; %s"):format(what, detail))
end

-- A leaf of a branch's results: a tensor of the part, or a Lua value.
local function branch_leaf(what, x)
  if x == nil or type(x) == "number" or type(x) == "boolean"
    or type(x) == "string" then
    return x
  end
  local t = raw.kind(x) == "slices" and convert.tensor(x, nil, what, "result")
    or convert.operand(x, nil, what, "result")
  return flow.identity(t)
end

-- Leaf i of all branches as tensors of one dtype; or a Lua value that all share.
local function join_leaves(what, flats, i)
  local dtype, same = nil, true
  for k = 1, #flats do
    local x = flats[k][i]
    same = same and rawequal(x, flats[1][i]) and type(x) ~= "userdata"
    if type(x) == "userdata" then
      dtype = dtype or raw.tensor_dtype(x)
    end
  end
  if same then
    return false, flats[1][i]
  end
  for k = 1, #flats do
    local x = flats[k][i]
    if x == nil or type(x) == "string" then
      local other = k == 1 and 2 or 1
      mismatch(what, ("result %d is %s in branch %d and %s in branch %d; in a "
        .. "traced function it must be the same, or a tensor in both"):format(i,
        text.describe(x), k - 1, text.describe(flats[other][i]), other - 1))
    elseif type(x) ~= "userdata" then
      flats[k][i] = convert.tensor(x, dtype, what, "result")
    end
    dtype = dtype or raw.tensor_dtype(flats[k][i])
    if raw.tensor_dtype(flats[k][i]) ~= dtype then
      mismatch(what, ("result %d is %s in branch 0 and %s in branch %d"):format(
        i, dtype, raw.tensor_dtype(flats[k][i]), k - 1))
    elseif raw.tensor_rank(flats[k][i]) ~= raw.tensor_rank(flats[1][i]) then
      errors.raise("NotImplementedError", ("%s: result %d has shape %s in "
        .. "branch 0 and %s in branch %d; a result of unknown rank cannot be "
        .. "traced"):format(what, i, text.shape(raw.tensor_dims(flats[1][i])),
        text.shape(raw.tensor_dims(flats[k][i])), k - 1))
    end
  end
  return true
end

-- Trace all branches; the call runs the one that index (a tensor) names, else
-- the last.
local function choose(what, index, fns)
  local parts, flats, tensors = {}, {}, {}
  local like -- results of the first branch
  for k = 1, #fns do
    parts[k] = flow.part(function()
      local given = pack(fns[k]())
      like = like or given
      return nest.map_structure(function(x)
        return branch_leaf(what, x)
      end, loops.spread(given))
    end)
    local ok, problem = pcall(nest.assert_same_structure, parts[1].results,
      parts[k].results)
    if not ok then
      mismatch(what, said(problem))
    end
    flats[k] = nest.flatten(parts[k].results)
    tensors[k] = { n = 0 }
  end
  local out, at = { n = flats[1].n }, {}
  for i = 1, out.n do
    local is_tensor, value = join_leaves(what, flats, i)
    out[i] = value
    if is_tensor then
      at[#at + 1] = i
      for k = 1, #fns do
        tensors[k].n = #at
        tensors[k][#at] = flats[k][i]
      end
    end
  end
  local results = flow.choose(index, parts, tensors)
  for j = 1, #at do
    out[at[j]] = results[j]
  end
  local joined = loops.gathered(like, out)
  return unpack(joined, 1, joined.n)
end

-- Branch 0 where the condition holds, else branch 1.
local function choose_by(tf, what, pred, true_fn, false_fn)
  local index = tf.where(tf.reshape(pred, {}), tf.constant(0, "int32"),
    tf.constant(1, "int32"))
  return choose(what, index, { true_fn, false_fn })
end

local NONE_HOLDS = "case: no condition holds and there is no default"

-- No condition of the list holds. In a branch, what may never run has results
-- like those of others.
local function none_holds(list, default)
  if default ~= nil then
    return default()
  elseif #list == 0 then
    errors.raise("InvalidArgument", NONE_HOLDS)
  end
  tracing.refuse_values("InvalidArgument", NONE_HOLDS)
  return list[#list][2]()
end

-- tf.case with conditions from the i-th on, some of which only a call knows.
local function case_from(tf, list, i, default)
  local pair = list[i]
  if pair == nil then
    return none_holds(list, default)
  elseif type(pair[1]) == "boolean" then
    if pair[1] then
      return pair[2]()
    end
    return case_from(tf, list, i + 1, default)
  elseif list[i + 1] == nil and default == nil then
    tf.debugging.Assert(pair[1], { NONE_HOLDS })
    return pair[2]()
  end
  return choose_by(tf, "case", pair[1], pair[2], function()
    return case_from(tf, list, i + 1, default)
  end)
end

local function check_exclusive(tf, list)
  local count = tf.constant(0, "int32")
  for i = 1, #list do
    count = count + tf.cast(list[i][1], "int32")
  end
  tf.debugging.Assert(tf.less_equal(count, tf.constant(1, "int32")),
    { "case: more than one condition holds, but exclusive = true" })
end

-- The functions of switch_case in their order: a list, or TensorFlow's dict with
-- the keys 0 .. n - 1, all there, as a hole would move those behind it.
local function branches_of(fns)
  if not text.is_plain(fns) or fns[0] == nil then
    local _, count = options.list("switch_case", "branch_fns", fns, "functions")
    for i = 1, count do
      check_function("switch_case", ("branch_fns[%d]"):format(i), fns[i])
    end
    return lists.copy(fns, 1, count)
  end
  local list, n = {}, 0
  for key in pairs(fns) do
    n = n + (key == "n" and 0 or 1)
  end
  for key, fn in pairs(fns) do
    if not text.is_whole(key) or key < 0 or key >= n then
      errors.raise("TypeError", ("switch_case: branch_fns has the key %s beside "
        .. "0; the keys of %d functions are 0 .. %d"):format(
        type(key) == "number" and text.number(key) or text.name(key), n, n - 1))
    end
    list[key + 1] = fn
  end
  return list
end

local function branches(tf, def)
  --- true_fn() or false_fn(), by a boolean or a scalar boolean tensor. In a
  --- traced function both are traced where only the call knows it.
  --- Errors: TypeError when their results are not alike.
  --- Source: tf.cond
  def("cond", "pred true_fn false_fn name=nil",
    function(pred, true_fn, false_fn)
      check_function("cond", "true_fn", true_fn)
      check_function("cond", "false_fn", false_fn)
      local chosen = condition("cond", "pred", pred)
      if type(chosen) ~= "boolean" then
        return choose_by(tf, "cond", chosen, true_fn, false_fn)
      elseif chosen then
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
      local chosen, known = nil, true
      local list = {}
      local _, n = options.list("case", "pred_fn_pairs", pairs_list, "pairs")
      for i = 1, n do
        local pair = options.list("case", ("pred_fn_pairs[%d]"):format(i),
          pairs_list[i], "a condition and a function")
        check_function("case", "pred_fn_pairs[" .. i .. "][2]", pair[2])
        list[i] = { condition("case", "pred_fn_pairs[" .. i .. "][1]", pair[1]),
          pair[2] }
        known = known and type(list[i][1]) == "boolean"
        if list[i][1] == true then
          if chosen == nil then
            chosen = pair[2]
          elseif exclusive then
            tracing.refuse_values("InvalidArgument", "case: more than one "
              .. "condition holds, but exclusive = true")
          end
        end
      end
      if default ~= nil then
        check_function("case", "default", default)
      end
      if not known then
        if exclusive then
          check_exclusive(tf, list)
        end
        return case_from(tf, list, 1, default)
      end
      if chosen ~= nil then
        return chosen()
      end
      return none_holds(list, default)
    end)

  --- branch_fns[branch_index + 1](), or branch_fns[branch_index]() of a table
  --- with keys from 0 on, TensorFlow's dict; out of range: default, or the last.
  --- A branch_index of a float dtype must be a whole number.
  --- Source: tf.switch_case
  def("switch_case", "branch_index branch_fns default=nil name=nil",
    function(index, fns, default)
      local list = branches_of(fns)
      list[#list + 1] = default
      for i = 1, #list do
        check_function("switch_case", "branch_fns", list[i])
      end
      if #list == 0 then
        errors.raise("ValueError", "switch_case: branch_fns is empty; expected "
          .. "at least one function")
      end
      if type(index) ~= "number" then
        index = convert.index_operand(index, "switch_case", "branch_index")
        if tracing.current() ~= nil and raw.kind(index) == "variable" then
          index = raw.variable_read(index)
        end
        index = raw.operand_tensor(index)
        if raw.tensor_dtype(index) == "bool" then
          errors.raise("InvalidArgument", "switch_case: branch_index has dtype "
            .. "bool; expected whole numbers", "tf.cond takes a bool")
        elseif raw.tensor_size(index) ~= 1 then
          errors.raise("InvalidArgument", ("switch_case: branch_index has shape "
            .. "%s; expected a scalar"):format(text.shape(
            raw.tensor_dims(index))))
        elseif tracing.is_symbolic(index) then
          return choose("switch_case", whole_number(tf, "switch_case",
            "branch_index", index), list)
        end
        index = raw.item(index)
      end
      options.integer("switch_case", "branch_index", index)
      return (list[index + 1] or list[#list])()
    end)
end

-- Loops ------------------------------------------------------------------------

local function has_tensor(flat)
  for i = 1, flat.n do
    local x = flat[i]
    if type(x) == "userdata" or tracing.is_symbolic(x) then
      return true
    end
  end
  return false
end

-- Results of a body for the loop variables: one by one, or as one list, also of
-- the one that there is.
local function next_values(values, results)
  local n, only = values.n, results[1]
  local like = nest.assert_same_structure
  if results.n == 1 and nest.is_nested(only)
    and (n ~= 1 or not nest.is_nested(values[1])
      or not pcall(like, values[1], only) and pcall(like, values, only)) then
    results = pack(loops.give(only))
  end
  if results.n ~= n then
    errors.raise("ValueError", ("while_loop: body returned %d values for %d "
      .. "loop variables"):format(results.n, n))
  end
  return results
end

local function dense_values(values)
  for i = 1, values.n do
    values[i] = loops.dense("while_loop", values[i])
  end
  return values
end

-- Does the call decide how often? Lua numbers make a loop of Lua, unless the
-- condition is a tensor that the trace does not know.
local function is_for_graph(again, values)
  if tracing.current() == nil then
    return false
  elseif has_tensor(nest.flatten(values)) then
    return true
  end
  local holds
  flow.part(function()
    holds = again(unpack(values, 1, values.n))
  end, true)
  return type(holds) ~= "boolean"
end

-- How often at most: a number, or the tensor that a call knows it from.
local function most_of(tf, most)
  if type(most) == "userdata" then
    most = convert.operand(most, nil, "while_loop", "maximum_iterations")
    if tracing.current() ~= nil and raw.kind(most) == "variable" then
      most = raw.variable_read(most)
    end
    most = raw.operand_tensor(most)
    if raw.tensor_dtype(most) == "bool" or raw.tensor_size(most) ~= 1 then
      errors.raise(raw.tensor_size(most) ~= 1 and "ValueError" or "TypeError",
        ("while_loop: maximum_iterations must be one whole number, got a %s "
        .. "tensor of shape %s"):format(raw.tensor_dtype(most),
        text.shape(raw.tensor_dims(most))))
    elseif tracing.is_symbolic(most) then
      return nil, whole_number(tf, "while_loop", "maximum_iterations", most)
    end
    most = raw.item(most)
  end
  if most ~= nil then
    options.integer("while_loop", "maximum_iterations", most)
    most = math.max(most, 0) -- -1 is no bound in graphs
  end
  return most
end

local function repeats(tf, def)
  --- body(vars...) while cond(vars...) holds; returns the last values.
  --- Errors: ValueError, TypeError when a variable's shape or dtype changes in
  ---   a traced function and shape_invariants (a list of shapes, -1 = any size)
  ---   does not allow it.
  --- Source: tf.while_loop
  def("while_loop", "cond body loop_vars shape_invariants=nil "
    .. "parallel_iterations=10 back_prop=true swap_memory=false "
    .. "maximum_iterations=nil name=nil",
    function(cond, body, vars, shapes, _, _, _, most)
      check_function("while_loop", "cond", cond)
      check_function("while_loop", "body", body)
      local bound
      most, bound = most_of(tf, most)
      local n, values = arguments(vars)
      values = { n = n, unpack(values, 1, n) }
      if bound ~= nil or is_for_graph(cond, values) then
        values = loops.run("while_loop", { vars = values, shapes = shapes,
          most = most, bound = bound, again = function(now)
            return (cond(unpack(now, 1, n)))
          end, step = function(now)
            return next_values(values, pack(body(unpack(now, 1, n)))), { n = 0 }
          end })
        return unpack(values, 1, n)
      end
      local count = 0
      dense_values(values)
      while (most == nil or count < most)
        and condition("while_loop", "cond's result",
          (cond(unpack(values, 1, n)))) do
        local after = dense_values(next_values(values,
          pack(body(unpack(values, 1, n)))))
        for i = 1, n do
          loops.check_next(values[i], after[i],
            "while_loop: loop variable %d after one iteration", i)
        end
        values = after
        count = count + 1
      end
      return unpack(values, 1, n)
    end)
end

--- Put the functions into tf.
function M.install(tf, def)
  clock(def)
  branches(tf, def)
  repeats(tf, def)
end

return M
