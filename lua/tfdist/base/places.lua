--- Where a name lies that users look for in tf itself: tf.Dataset is
--- tf.data.Dataset. Computed from the namespaces when first asked.
local fields = require "tfdist.base.fields"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

local DEPTH = 3
-- Aliases of what lies elsewhere, and inner functions.
local SKIPPED = {}
for path in ([[
  tf.raw_ops tf.keras.backend tf.errors tf.initializers tf.losses tf.metrics
  tf.optimizers
]]):gmatch "%S+" do
  SKIPPED[path] = true
end

-- name -> list of paths, the shortest one of each value
local places

local function shorter(a, b)
  return #a < #b or (#a == #b and a < b)
end

local function note(found, name, path, value)
  found[name] = found[name] or {}
  local paths = found[name]
  local before = paths[value]
  if before == nil or shorter(path, before) then
    paths[value] = path
  end
end

local function field(space, name)
  local ok, value = pcall(function()
    return space[name]
  end)
  return ok and value or nil
end

local function walk(found, space, prefix, depth)
  local names = {}
  local _ = field(space, "_") -- some load their names when one is not there
  fields.add(names, space)
  for name in pairs(names) do
    local path = prefix .. name
    local value = not name:find "^_" and not SKIPPED[path]
      and field(space, name) or nil
    if text.is_callable(value)
      or (type(value) == "table" and name:find "^%u") then
      if depth > 1 then
        note(found, name, path, value)
      end
    elseif type(value) == "table" and depth < DEPTH
      and not text.is_plain(value) then
      walk(found, value, path .. ".", depth + 1)
    end
  end
end

--- The paths of the classes and functions of this name in the namespaces of tf:
--- all of them for a class, a function's only when there is just one.
---@param tf table
---@param name string
---@return string[]  "tf.data.Dataset"; empty for a name that is nowhere
function M.of(tf, name)
  if places == nil then
    places = {}
    walk(places, tf, "tf.", 1)
  end
  local list = {}
  for _, path in pairs(places[name] or {}) do
    list[#list + 1] = path
  end
  table.sort(list, shorter)
  if not name:find "^%u" and #list > 1 then
    return {}
  end
  return list
end

return M
