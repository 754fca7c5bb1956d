--- Kinds of arguments that a signature may name, `layer:layer epochs:integer=1`:
--- what a function is given is looked at before it runs, in one wording.
local errors = require "tfdist.base.errors"
local text = require "tfdist.base.text"

local M = {}

local type = type

-- kind -> { noun, test }
local known = {}

--- Define a kind.
---@param kind string   letters only
---@param noun string   "a layer", for messages
---@param test fun(x:any):boolean
function M.add(kind, noun, test)
  known[kind] = { noun = noun, test = test }
end

local function of_type(name)
  return function(x)
    return type(x) == name
  end
end

M.add("string", "a string", of_type "string")
M.add("number", "a number", of_type "number")
M.add("boolean", "true or false", of_type "boolean")
M.add("integer", "a whole number", text.is_whole)
M.add("callable", "a function", text.is_callable)
M.add("list", "a list", text.is_plain)
M.add("dict", "a table", text.is_plain)

-- kind -> what a call without that function gives. They say nothing of values:
-- who takes such a function looks at it.
local LEFT_OUT = {
  body = "leave the argument out for one that stays open until close()",
  later = "leave the argument out for what takes the function later",
}

--- True for a function that may be left out, but is not nil: a slip in the name
--- of one would open what nobody closes, and run nothing.
---@param kind string?
---@return boolean
function M.is_left_out(kind)
  return LEFT_OUT[kind] ~= nil
end

--- Raise the error of nil that was given for such a function.
---@param sig table   signature
---@param i integer   parameter
function M.refuse_nil(sig, i)
  text.check_callable(sig.called or sig.what, sig.names[i], nil,
    LEFT_OUT[sig.kinds[i]])
end

--- Errors: TypeError unless x is of the kind.
---@param what string  function, for messages
---@param name string  argument
---@param kind string
---@param x any
function M.check(what, name, kind, x)
  local entry = known[kind]
  if not entry.test(x) then
    errors.raise("TypeError", ("%s: %s must be %s, got %s"):format(what, name,
      entry.noun, text.describe(x)))
  end
end

--- fn behind a look at its arguments; fn itself where no kind says what they
--- must be.
---@param sig table         signature
---@param fn function
---@param leading boolean   fn takes self first
---@return function
function M.guard(sig, fn, leading)
  local at = {}
  for i = 1, sig.n do
    if known[sig.kinds[i]] ~= nil then
      at[#at + 1] = i
    end
  end
  if #at == 0 then
    return fn
  end
  local shift = leading and 1 or 0
  return function(...)
    for j = 1, #at do
      local i = at[j]
      local x = select(i + shift, ...)
      if x ~= nil then
        M.check(sig.what, sig.names[i], sig.kinds[i], x)
      end
    end
    return fn(...)
  end
end

return M
