--- Data sets inside traced functions: each call of the graph takes elements
--- anew, by steps of the host.
---
--- What is taken must be of a known kind, so element_spec says what the graph
--- gets; sizes that it leaves open (of a short last batch) are open there too.
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local optional = require "tfdist.data.optional"
local raw = require "tfdist.core.raw"
local spec = require "tfdist.data.spec"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

-- What a step of the host gives for each leaf of a packed spec. devices: where
-- each is, the host without.
local function answers_of(what, packed, devices)
  local flat = nest.flatten(packed)
  local answers = { n = flat.n }
  for i = 1, flat.n do
    local leaf = flat[i]
    if not spec.is_spec(leaf) or leaf.dtype == "string" then
      errors.raise("NotImplementedError", ("%s: a component that is %s cannot "
        .. "be taken inside a traced function"):format(what,
        spec.is_spec(leaf) and "of strings" or text.describe(leaf)),
        "graphs have tensors only")
    elseif leaf.shape == nil then
      errors.raise("NotImplementedError", what .. ": a component of unknown "
        .. "rank cannot be taken inside a traced function")
    end
    answers[i] = { dtype = leaf.dtype, dims = leaf.shape,
      device = devices and devices[i] or raw.device_at("CPU", 0) }
    tracing.note_element(leaf.shape)
  end
  return answers
end

-- The leaves of an element as tensors, a list.
local function leaves_of(pack)
  return nest.flatten(pack)
end

--- An element as symbols, a pack of the structure `packed`. fn() gives the next
--- pack at a call.
function M.take(what, packed, fn, devices)
  local symbols = tracing.host({ n = 0 }, function()
    return leaves_of(fn())
  end, answers_of(what, packed, devices))
  return nest.pack_sequence_as(packed, symbols)
end

local function zeros(answers)
  local out = { n = answers.n }
  for i = 1, answers.n do
    local dims = {}
    for axis, size in ipairs(answers[i].dims) do
      dims[axis] = size < 0 and 0 or size
    end
    local size = 1
    for axis = 1, #dims do
      size = size * dims[axis]
    end
    out[i] = raw.tensor_from_values(size > 0 and { 0 } or {}, answers[i].dtype,
      dims)
  end
  return out
end

--- The next element as an Optional of symbols, whose has_value() is one too.
function M.take_optional(what, packed, fn, devices)
  local answers = answers_of(what, packed, devices)
  answers.n = answers.n + 1
  answers[answers.n] = { dtype = "bool", dims = {},
    device = raw.device_at("CPU", 0) }
  local empty = zeros(answers)
  local symbols = tracing.host({ n = 0 }, function()
    local pack = fn()
    local leaves = pack and leaves_of(pack) or empty
    local out = { n = answers.n, unpack(leaves, 1, answers.n - 1) }
    out[answers.n] = raw.tensor_from_table(pack ~= nil, "bool")
    return out
  end, answers)
  local has = symbols[symbols.n]
  local leaves = { n = symbols.n - 1, unpack(symbols, 1, symbols.n - 1) }
  return optional.of_call(nest.pack_sequence_as(packed, leaves), has, packed)
end

--- What `way` (as iterators.class has it) takes of an iterator. pull(iterator)
--- gives the next pack, nil at the end; ended(iterator, where) raises for what is
--- past that at a call; devices: where its leaves are, a list.
--- Errors: NotImplementedError for a loop whose length is not known.
function M.step(self, way, packed, pull, ended, devices)
  local cell, left = rawget(self, "cell"), rawget(self, "left")
  local where = errors.position()
  local function take()
    return pull(cell ~= nil and cell.iterator or self)
  end
  local function take_one()
    local pack = take()
    if pack == nil then
      ended(cell ~= nil and cell.iterator or self, where)
    end
    return pack
  end
  if way == "optional" then
    return M.take_optional("get_next_as_optional", packed, take, devices)
  elseif way == "loop" then
    if left == nil or left < 0 then
      errors.raise("NotImplementedError", "a loop over a data set whose length "
        .. "is not known cannot be traced", "iterator:get_next_as_optional() in "
        .. "tf.while_loop goes on until has_value() is false")
    elseif left == 0 then
      return nil
    end
    self.left = left - 1
  end
  return M.take("get_next", packed, take_one, devices)
end

--- Fill in the fields of an iterator that is made inside a trace: where the
--- trace is now, each call makes one by open(). `left`: elements that a loop
--- takes, less than 0 = not known.
function M.iterator(self, open, left)
  self.cell, self.left, self.done, self.closed = {}, left, false, false
  tracing.host({ n = 0 }, function()
    self.cell.iterator = open()
  end)
  return self
end

return M
