--- What many specs ask of a result or of an error.
local assert = require "luassert"

local M = {}

--- Numbers, lists of them and tensors that agree up to a tolerance.
---@param expected number|table
---@param got any
---@param tolerance? number  absolute, by default 1e-6
function M.near(expected, got, tolerance)
  if type(got) == "userdata" then
    got = got:totable()
  end
  if type(expected) == "table" then
    assert.equal(#expected, #got)
    for i = 1, #expected do
      M.near(expected[i], got[i], tolerance)
    end
  else
    assert.near(expected, got, tolerance or 1e-6)
  end
end

--- What fn(...) raises.
function M.caught(fn, ...)
  local ok, e = pcall(fn, ...)
  assert.is_false(ok)
  return e
end

--- The error object that fn(...) raises.
function M.failure(fn, ...)
  local e = M.caught(fn, ...)
  assert.is_true(require "tfdist.base.errors".is_error(e), tostring(e))
  return e
end

--- fn(...) raises an error of this kind that has these words.
function M.raises(kind, words, fn, ...)
  local e = M.failure(fn, ...)
  assert.are.equal(kind, e.kind, tostring(e))
  assert.is_not_nil(tostring(e):find(words, 1, true), tostring(e))
end

--- The fields `name` of the things in a list.
function M.names(list)
  local names = {}
  for i, x in ipairs(list) do
    names[i] = x.name
  end
  return names
end

return M
