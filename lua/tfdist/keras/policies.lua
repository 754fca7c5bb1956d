--- Dtype policies: in which dtype layers compute, and in which they keep their
--- variables.
---
--- "float32" and the like are both; "mixed_float16" and "mixed_bfloat16" compute
--- in the half type and keep float32.
local backend = require "tfdist.keras.backend"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"

local M = {}

local MIXED = { mixed_float16 = "float16", mixed_bfloat16 = "bfloat16" }

local Policy = { __name = "DTypePolicy" }
local global

local function is_policy(x)
  return getmetatable(x) == Policy
end

local methods = {}

--- { name = "mixed_float16" }, which Policy takes.
function methods.get_config(self)
  return { name = self.name }
end

options.methods(methods, "DTypePolicy.", { get_config = "" }, is_policy,
  "policy")

local function new(name, compute, variable)
  return setmetatable({ own = { name = name, compute_dtype = compute,
    variable_dtype = variable } }, Policy)
end

function Policy.__index(self, key)
  local value = rawget(self, "own")[key]
  return value == nil and methods[key] or value
end

function Policy.__newindex(_, key)
  errors.raise("TypeError", ("DTypePolicy: %s cannot be set"):format(
    text.name(key)), "tf.keras.mixed_precision.Policy(name) makes another one")
end

function Policy.__eq(a, b)
  return a.name == b.name
end

function Policy.__names(self)
  return text.names(methods, rawget(self, "own"))
end

function Policy.__tostring(self)
  return ('<DTypePolicy "%s">'):format(self.name)
end

local policies = {} -- by name: they have nothing that could change

local function check_name(name, what)
  local is_text = type(name) == "string"
  local lower = is_text and name:lower()
  if is_text and (MIXED[name] or raw.enums.dtype[lower] or lower == "string") then
    return
  end
  local known = text.names(MIXED, raw.enums.dtype)
  local near = is_text and text.nearest(name, known)
  errors.raise("TypeError", ("%s: %s is no dtype policy"):format(what,
    is_text and text.quote(name) or text.describe(name)),
    near and "did you mean " .. near .. "?"
    or "policies are " .. table.concat(known, ", "))
end

local function named(name, what)
  check_name(name, what)
  local compute = MIXED[name]
  local dtype = compute and "float32" or convert.dtype(name, what)
  name = compute and name or dtype
  policies[name] = policies[name] or new(name, compute or dtype, dtype)
  return policies[name]
end

--- The policy that `x` means: one, the name of one, a dtype; nil is the global
--- one, at first that of tf.keras.backend.floatx().
--- Errors: TypeError, ValueError that begin with `what`.
---@param x any
---@param what string
---@return table
function M.get(x, what)
  if x == nil then
    return global or named(backend.floatx(), what)
  elseif is_policy(x) then
    return x
  end
  return named(x, what)
end

--- A policy by name: "mixed_float16", "mixed_bfloat16", or a dtype, in which
--- layers then compute and keep their variables. It has name, compute_dtype and
--- variable_dtype.
--- Errors: TypeError, ValueError for what is no dtype.
--- Source: tf.keras.mixed_precision.Policy
M.Policy = options.wrap("Policy", "name", function(name)
  return M.get(name, "Policy")
end)

--- The policy of layers that are given no dtype.
--- Source: tf.keras.mixed_precision.global_policy
M.global_policy = options.wrap("global_policy", "", function()
  return M.get(nil, "global_policy")
end)

--- Set the policy of layers that are made from now on; nil: that of floatx().
--- Errors: ValueError unless it computes in floating-point numbers.
--- Source: tf.keras.mixed_precision.set_global_policy
M.set_global_policy = options.wrap("set_global_policy", "policy=nil",
  function(policy)
    local new_one = policy ~= nil and M.get(policy, "set_global_policy") or nil
    if new_one ~= nil and not convert.FLOATING[new_one.compute_dtype] then
      errors.raise("ValueError", ("set_global_policy: layers cannot compute in "
        .. "%s; expected a floating-point dtype or \"mixed_float16\""):format(
        new_one.name))
    end
    global = new_one
    state.note_setting("policy", new_one and new_one.name)
  end)

return M
