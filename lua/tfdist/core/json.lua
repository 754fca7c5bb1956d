--- JSON text and Lua values, by jansson.
---
--- Objects become tables with string keys, arrays lists with their length in
--- `n`, null `json.null`. Keys are written sorted, so that equal values give
--- equal text. A table with only positive whole keys (or `n`) is an array, an
--- empty one an object unless it has `n`. Whole numbers are whole in the text.
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

--- What null becomes, and what is written as null.
M.null = setmetatable({}, { __tostring = function() return "null" end })

--- The value that a JSON text says.
--- Errors: ValueError with line and column, also for a key that is given twice,
---   more than 64 levels and whole numbers beyond 64 bits.
---@param source string
---@param what? string  what is read, for messages
---@return any
function M.decode(source, what)
  what = what or "json.decode"
  if type(source) ~= "string" then
    errors.raise("TypeError", ("%s: expected JSON text, got %s"):format(what,
      text.describe(source)))
  end
  return raw.json_decode(source, what, M.null)
end

--- The JSON text of a value; with `pretty` on several lines.
--- Errors: TypeError, ValueError for what JSON cannot say.
---@param value any
---@param pretty? boolean
---@return string
function M.encode(value, pretty)
  return raw.json_encode(value, pretty, M.null)
end

return M
