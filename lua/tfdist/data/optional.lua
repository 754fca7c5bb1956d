--- tf.experimental.Optional: an element, or none.
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local Optional = { __name = "Optional" }
local methods = {}

--- An Optional of a pack, without value when it is nil.
function M.new(pack, spec)
  return setmetatable({ pack = pack or false, spec = spec or false }, Optional)
end

--- An Optional inside a traced function: `has`, a boolean tensor, says whether
--- the call has an element for this pack of symbols.
function M.of_call(pack, has, spec)
  return setmetatable({ pack = pack, has = has, spec = spec }, Optional)
end

local function check_self(self, name)
  if getmetatable(self) ~= Optional then
    options.wrong_self("Optional." .. name, "Optional", self)
  end
end

--- True when there is an element; in a traced function the tensor that says it.
--- Source: tf.experimental.Optional.has_value
function methods.has_value(self)
  check_self(self, "has_value")
  return rawget(self, "has") or self.pack ~= false
end

local function no_value()
  errors.raise("InvalidArgument", "get_value: the Optional has no value",
    "ask has_value() first")
end

--- The element, a tuple as several values.
--- Errors: InvalidArgument when there is none.
--- Source: tf.experimental.Optional.get_value
function methods.get_value(self)
  check_self(self, "get_value")
  local has = rawget(self, "has")
  if not self.pack then
    no_value()
  elseif has ~= nil then
    tracing.host({ has, n = 1 }, function(known)
      if not raw.item(known) then
        no_value()
      end
    end)
  end
  return unpack(self.pack, 1, self.pack.n)
end

function Optional.__names()
  return text.names(methods, { element_spec = true })
end

local check_field = text.field_slips("Optional", Optional.__names)

function Optional:__index(key)
  if key == "element_spec" then
    local spec = rawget(self, "spec")
    return spec and (spec.n == 1 and spec[1] or spec) or nil
  end
  local found = methods[key]
  if found == nil then
    return check_field(key)
  end
  return found
end

function Optional:__tostring()
  if not self.pack then
    return "Optional (no value)"
  end
  local parts = {}
  for i = 1, self.pack.n do
    parts[i] = type(self.pack[i]) == "table" and text.describe(self.pack[i])
      or tostring(self.pack[i])
  end
  return "Optional (" .. table.concat(parts, ", ") .. ")"
end

--- An Optional that has this value. Source: tf.experimental.Optional.from_value
function M.from_value(...)
  return M.new({ n = select("#", ...), ... })
end

--- An Optional without value. Source: tf.experimental.Optional.empty
function M.empty()
  return M.new(nil)
end

return M
