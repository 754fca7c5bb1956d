--- Einstein summation: an equation becomes transposes, sums and products.
---
--- Operands are contracted from left to right. A pair becomes one batched
--- matrix product: labels both keep are the batch, labels both have and
--- nobody needs later are summed. Axes of "..." are labels "1", "2", ...
--- counted from the right, which broadcast.
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local pairs = require "tfdist.base.pairs"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"

local known_shape_of = tensor.known_shape_of

local M = {}

local append, product = lists.append, lists.product

local function fail(message, ...)
  errors.raise("ValueError", "einsum: " .. text.format(message, ...))
end

local function position(list, label)
  for i = 1, #list do
    if list[i] == label then
      return i
    end
  end
  return nil
end

-- The equation --------------------------------------------------------------

-- Labels of one term; "..." becomes `dots` numbered labels.
local function labels_of(term, dots, equation)
  local labels, i = {}, 1
  while i <= #term do
    local c = term:sub(i, i)
    if term:sub(i, i + 2) == "..." then
      for k = dots, 1, -1 do
        labels[#labels + 1] = tostring(k)
      end
      i = i + 3
    elseif c:match("%a") then
      labels[#labels + 1] = c
      i = i + 1
    else
      fail("%q is no label in the equation %q", c, equation)
    end
  end
  return labels
end

local function letters(term)
  local _, n = term:gsub("%a", "")
  return n
end

local function split_equation(equation)
  local plain = equation:gsub("%s+", "")
  local left, right = plain:match("^(.-)%->(.*)$")
  left = left or plain
  local terms = {}
  for term in (left .. ","):gmatch("([^,]*),") do
    local _, dots = term:gsub("%.%.%.", "")
    if dots > 1 then
      fail("more than one \"...\" in %q", term)
    end
    terms[#terms + 1] = term
  end
  return terms, right
end

-- Without "->": the broadcast axes, then every letter that occurs once.
local function implicit_output(operands, most_dots)
  local counts, once, out = {}, {}, {}
  for _, x in ipairs(operands) do
    for _, label in ipairs(x.labels) do
      counts[label] = (counts[label] or 0) + 1
    end
  end
  for label, n in pairs(counts) do
    if n == 1 and label:match("%a") then
      once[#once + 1] = label
    end
  end
  table.sort(once)
  for k = most_dots, 1, -1 do
    out[#out + 1] = tostring(k)
  end
  return append(out, once)
end

--- Operands { tensor, labels, dims } and the labels of the result.
--- Errors: ValueError for an equation that does not fit the tensors.
function M.parse(equation, inputs, shapes)
  local terms, right = split_equation(equation)
  local operands, most_dots = {}, 0
  if #terms ~= #inputs then
    fail("%q has %d terms, %d tensors are given", equation, #terms, #inputs)
  end
  for i = 1, #terms do
    local dims = shapes[i]
    local has_dots = terms[i]:find("...", 1, true) ~= nil
    local dots = #dims - letters(terms[i])
    if dots < 0 or (dots > 0 and not has_dots) then
      fail("%q does not fit tensor %d of shape {%s}", terms[i], i - 1,
        table.concat(dims, ", "))
    end
    most_dots = math.max(most_dots, dots)
    operands[i] = { tensor = inputs[i], dims = append({}, dims),
      labels = labels_of(terms[i], dots, equation) }
  end
  local out = right and labels_of(right, most_dots, equation)
    or implicit_output(operands, most_dots)
  return operands, out
end

-- One operand ---------------------------------------------------------------

-- A label that occurs twice: its diagonal.
local function diagonals(ops, x)
  for p = 1, #x.labels do
    local label = x.labels[p]
    for q = #x.labels, p + 1, -1 do
      if x.labels[q] == label then
        if x.dims[p] ~= x.dims[q] then
          fail("label %s has sizes %d and %d in one term", label, x.dims[p],
            x.dims[q])
        end
        local perm, labels, dims = {}, {}, {}
        for i = 1, #x.labels do
          if i ~= p and i ~= q then
            perm[#perm + 1], labels[#labels + 1] = i - 1, x.labels[i]
            dims[#dims + 1] = x.dims[i]
          end
        end
        append(perm, { p - 1, q - 1 })
        labels[#labels + 1], dims[#dims + 1] = label, x.dims[p]
        return diagonals(ops, { labels = labels, dims = dims, tensor =
          ops.matrix_diag_part(ops.transpose(x.tensor, perm)) })
      end
    end
  end
  return x
end

-- Sizes must agree; an axis of "..." of size 1 goes where another is longer.
local function check_sizes(ops, operands)
  local sizes = {}
  for i, x in ipairs(operands) do
    for k, label in ipairs(x.labels) do
      local n, known = x.dims[k], sizes[label]
      if known == nil or (label:match("%d") and known == 1) then
        sizes[label] = n
      elseif known ~= n and not (label:match("%d") and n == 1) then
        fail("label %s has size %d in tensor %d and %d before",
          label:match("%d") and "\"...\"" or label, n, i - 1, known)
      end
    end
  end
  for _, x in ipairs(operands) do
    for k = #x.labels, 1, -1 do
      if x.dims[k] == 1 and sizes[x.labels[k]] ~= 1 then
        x.tensor = ops.squeeze(x.tensor, { k - 1 })
        table.remove(x.labels, k)
        table.remove(x.dims, k)
      end
    end
  end
  return sizes
end

-- Sum the labels that neither `wanted` nor another operand has.
local function reduce(ops, x, needed)
  local axes, labels, dims = {}, {}, {}
  for k, label in ipairs(x.labels) do
    if needed[label] then
      labels[#labels + 1], dims[#dims + 1] = label, x.dims[k]
    else
      axes[#axes + 1] = k - 1
    end
  end
  if #axes == 0 then
    return x
  end
  return { labels = labels, dims = dims,
    tensor = ops.reduce_sum(x.tensor, axes) }
end

-- x's axes in the order of `labels`.
local function ordered(ops, x, labels)
  local perm, moved = {}, false
  for i, label in ipairs(labels) do
    perm[i] = position(x.labels, label) - 1
    moved = moved or perm[i] ~= i - 1
  end
  return moved and ops.transpose(x.tensor, perm) or x.tensor
end

-- Pairs ---------------------------------------------------------------------

local function sizes_of(labels, sizes)
  local dims = {}
  for i, label in ipairs(labels) do
    dims[i] = sizes[label]
  end
  return dims
end

-- Reshape unless nothing changes: reshaping a transposed view would copy it.
local function reshaped(ops, x, from, to)
  if #from == #to then
    local same = true
    for i = 1, #to do
      same = same and from[i] == to[i]
    end
    if same then
      return x
    end
  end
  return ops.reshape(x, to)
end

-- Which labels of a pair are batch, summed, a's own, b's own.
local function classify(a, b, needed)
  local batch, summed, own_a, own_b = {}, {}, {}, {}
  for _, label in ipairs(a.labels) do
    local to = own_a
    if position(b.labels, label) then
      to = needed[label] and batch or summed
    end
    to[#to + 1] = label
  end
  for _, label in ipairs(b.labels) do
    if not position(a.labels, label) then
      own_b[#own_b + 1] = label
    end
  end
  return batch, summed, own_a, own_b
end

-- Nothing is summed: a broadcast multiplication.
local function multiply(ops, a, b, batch, own_a, own_b, sizes)
  local labels = append(append(append({}, batch), own_a), own_b)
  local x = ordered(ops, a, append(append({}, batch), own_a))
  local y = ordered(ops, b, append(append({}, batch), own_b))
  local x_dims = sizes_of(labels, sizes)
  local y_dims = sizes_of(labels, sizes)
  for i = #batch + 1, #labels do
    if i <= #batch + #own_a then
      y_dims[i] = 1
    else
      x_dims[i] = 1
    end
  end
  if #own_b > 0 then
    x = ops.reshape(x, x_dims)
  end
  if #own_a > 0 and #batch > 0 then
    y = ops.reshape(y, y_dims)
  end
  return { labels = labels, dims = sizes_of(labels, sizes),
    tensor = ops.multiply(x, y) }
end

-- One operand as [batch, rows, columns]: groups that are one label each need
-- no reshape, so that the product reads a transposed view as it is.
local function as_matrices(ops, x, batch, rows, columns, sizes)
  local labels = append(append(append({}, batch), rows), columns)
  local dims = sizes_of(batch, sizes)
  if #batch > 1 then
    dims = { product(dims) }
  end
  dims[#dims + 1] = product(sizes_of(rows, sizes))
  dims[#dims + 1] = product(sizes_of(columns, sizes))
  return reshaped(ops, ordered(ops, x, labels), sizes_of(labels, sizes), dims)
end

local function contract(ops, a, b, needed, sizes)
  local batch, summed, own_a, own_b = classify(a, b, needed)
  if #summed == 0 then
    return multiply(ops, a, b, batch, own_a, own_b, sizes)
  end
  local x = as_matrices(ops, a, batch, own_a, summed, sizes)
  local y = as_matrices(ops, b, batch, summed, own_b, sizes)
  local labels = append(append(append({}, batch), own_a), own_b)
  local dims = sizes_of(labels, sizes)
  return { labels = labels, dims = dims,
    tensor = ops.reshape(ops.matmul(x, y), dims) }
end

-- Everything ----------------------------------------------------------------

-- Labels that operands from `first` on, or the result, still need.
local function needed_from(operands, first, out)
  local needed = {}
  for i = first, #operands do
    for _, label in ipairs(operands[i].labels) do
      needed[label] = true
    end
  end
  for _, label in ipairs(out) do
    needed[label] = true
  end
  return needed
end

local function check_output(out, sizes)
  local seen = {}
  for _, label in ipairs(out) do
    if sizes[label] == nil then
      fail("label %s of the result is in no term", label)
    elseif seen[label] then
      fail("label %s occurs twice in the result", label)
    end
    seen[label] = true
  end
end

local function evaluate(ops, equation, inputs, shapes)
  local operands, out = M.parse(equation, inputs, shapes)
  for i = 1, #operands do
    operands[i] = diagonals(ops, operands[i])
  end
  local sizes = check_sizes(ops, operands)
  check_output(out, sizes)
  for i = 1, #operands do
    local needed = needed_from({}, 1, out)
    for k = 1, #operands do
      for _, label in ipairs(k ~= i and operands[k].labels or {}) do
        needed[label] = true
      end
    end
    operands[i] = reduce(ops, operands[i], needed)
  end
  local x = operands[1]
  for i = 2, #operands do
    x = contract(ops, x, operands[i], needed_from(operands, i + 1, out), sizes)
  end
  return ordered(ops, x, out)
end

-- Plans ---------------------------------------------------------------------

-- Which ops an equation needs depends on the shapes only: a plan is what
-- `evaluate` did to numbered values in place of tensors.
local PAIR = { matmul = true, multiply = true }
local MOST_PLANS = 512

local plans, plans_n = {}, 0

local function record(equation, shapes)
  local plan, ids = { n = #shapes }, {}
  local recorder = setmetatable({}, { __index = function(_, name)
    return function(x, y)
      local id = #shapes + #plan + 1
      plan[#plan + 1] = { name = name, x = x, y = y, pair = PAIR[name] }
      return id
    end
  end })
  for i = 1, #shapes do
    ids[i] = i
  end
  plan.result = evaluate(recorder, equation, ids, shapes)
  return plan
end

local function plan_for(equation, shapes)
  local key = equation
  for i = 1, #shapes do
    key = key .. "|" .. table.concat(shapes[i], ",")
  end
  local plan = plans[key]
  if plan == nil then
    plan = record(equation, shapes)
    if plans_n == MOST_PLANS then
      plans, plans_n = {}, 0
    end
    plans[key], plans_n = plan, plans_n + 1
  end
  return plan
end

--- The sum of products that `equation` describes. Cost: shapes that were seen
--- before with this equation go straight to their ops.
---@param ops table           functions by op name
---@param equation string     "ij,jk->ik"
---@param inputs userdata[]   tensors of one dtype
---@return tfdist.Tensor
function M.run(ops, equation, inputs)
  local shapes, values = {}, {}
  for i = 1, #inputs do
    shapes[i], values[i] = known_shape_of(inputs[i], "einsum"), inputs[i]
  end
  local plan = plan_for(equation, shapes)
  for i = 1, #plan do
    local step = plan[i]
    local y = step.y
    if step.pair then
      y = values[y]
    end
    if y == nil then
      values[plan.n + i] = ops[step.name](values[step.x])
    else
      values[plan.n + i] = ops[step.name](values[step.x], y)
    end
  end
  if plan.result <= plan.n then
    return ops.identity(values[plan.result])
  end
  return values[plan.result]
end

return M
