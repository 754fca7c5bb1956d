--- The names that a value has: for completion, listings and hints.
local pairs = require "tfdist.base.pairs"

local M = {}

local function add_keys(found, t)
  for key in pairs(t or {}) do
    if type(key) == "string" then
      found[key] = true
    end
  end
end

--- Note the fields of a value that can be listed: those of tables and of their
--- __index tables, and what `__names` of the metatable tells, a list, of names
--- that are made on first use only.
---@param found table  name -> true
function M.add(found, value)
  local seen = 0
  while value ~= nil and seen < 8 do
    seen = seen + 1
    if type(value) == "table" then
      add_keys(found, value)
    end
    local meta = debug.getmetatable(value)
    meta = type(meta) == "table" and meta or {}
    local names = seen == 1 and rawget(meta, "__names")
    for _, name in ipairs(names and names(value) or {}) do
      found[name] = true
    end
    local index = rawget(meta, "__index")
    value = type(index) == "table" and index or nil
  end
end

--- Fields that are there for the library.
M.HIDDEN = {}
for name in ([[
  autocast base_name better build_for build_in_call convert describe fused
  getters handle index init is_keras_model is_leaf
  is_module is_tf_module new_scope node one_copy output_dtype
  own plan replica_device scores setters setup super to_text
  training_defaults
]]):gmatch "%S+" do
  M.HIDDEN[name] = true
end

return M
