--- What iterators over data sets of all kinds have in common: get_next,
--- get_next_as_optional, the `for` loop and printing.
local errors = require "tfdist.base.errors"
local optional = require "tfdist.data.optional"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local getmetatable = getmetatable
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

-- "3 steps"
local function amount(kind, n)
  return ("%d %s%s"):format(n, kind.unit, n == 1 and "" or "s")
end

-- Past the end; `where`: the line that asked, nil = one that runs now. A loop of
-- a trace asks as often as there were elements then.
local function raise_end(kind, self, way, where)
  errors.raise("OutOfRange", "get_next: the data set has ended after "
    .. amount(kind, kind.taken(self)), way == "next"
    and "a for loop over dataset:iter() ends by itself" or nil, where)
end

-- Inside a trace: an element that each call takes anew.
local function traced(kind, self, way)
  if kind.traced == nil then
    errors.raise("NotImplementedError", kind.name .. ": elements cannot be taken "
      .. "inside a traced function", "take them outside and pass them to it")
  end
  return kind.traced(self, way, function(iterator, where)
    raise_end(kind, iterator, way, where)
  end)
end

local function add_steps(kind, methods, check)
  local next_pack = kind.next_pack

  --- The next element, a tuple as several values.
  --- In a traced function each call takes the next.
  --- Errors: OutOfRange at the end, every time; those of next_pack.
  --- Source: tf.data.Iterator.get_next
  function methods.get_next(self)
    check(self, "get_next")
    if tracing.current() ~= nil then
      local symbols = traced(kind, self, "next")
      return unpack(symbols, 1, symbols.n)
    end
    local pack = next_pack(self)
    if pack == nil then
      raise_end(kind, self, "next")
    end
    return unpack(pack, 1, pack.n)
  end

  methods.next = methods.get_next

  --- The next element as an Optional, without value at the end. In a traced
  --- function its has_value() is a tensor.
  --- Source: tf.data.Iterator.get_next_as_optional
  function methods.get_next_as_optional(self)
    check(self, "get_next_as_optional")
    if tracing.current() ~= nil then
      return traced(kind, self, "optional")
    end
    local pack = next_pack(self)
    return optional.new(pack, pack and kind.spec_of(self, pack))
  end
end

--- A class of iterators (fields `done` and `closed`), the table of its methods
--- and check(self, "method"), which raises unless self is of the class.
---@param kind table  { name = "DatasetIterator",
---  next_pack = function(self) the next element as a pack, nil at the end,
---  traced = function(self, way, ended) the same inside a trace, nil = it
---    cannot: a pack of symbols (nil at the end) for "next" and "loop", an
---    Optional of them for "optional"; ended(iterator, where) raises for calls
---    past the end,
---  spec_of = function(self, pack) its packed spec,
---  element_spec = function(self) the spec as users see it,
---  taken = function(self) how many it has given, unit = "element",
---  of = function(self) what stands behind when it is printed, or nil }
---@return table class
---@return table methods
---@return function check
function M.class(kind)
  local class, methods = { __name = kind.name }, {}
  local next_pack = kind.next_pack
  local function check(self, method)
    if getmetatable(self) ~= class then
      options.wrong_self(kind.name .. "." .. method, "iterator", self)
    end
  end
  add_steps(kind, methods, check)

  function class.__names()
    return text.names(methods, { element_spec = true })
  end

  local check_field = text.field_slips(kind.name, class.__names)

  function class:__index(key)
    if key == "element_spec" then
      return kind.element_spec(self)
    end
    local found = methods[key]
    if found == nil then
      return check_field(key)
    end
    return found
  end

  -- `for x, y in dataset:iter() do`
  function class:__call()
    local pack
    if tracing.current() ~= nil then
      pack = traced(kind, self, "loop")
    else
      pack = next_pack(self)
    end
    if pack == nil then
      return nil
    end
    return unpack(pack, 1, pack.n)
  end

  function class:__tostring()
    return ("%s (%s after %s)%s"):format(kind.name, self.done and "ended"
      or self.closed and "closed" or "open", amount(kind, kind.taken(self)),
      kind.of and kind.of(self) or "")
  end

  return class, methods, check
end

return M
