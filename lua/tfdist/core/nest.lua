--- tf.nest: what of `base/nest` is for everybody, without what modules share
--- among themselves.
--- Source: tf.nest
local nest = require "tfdist.base.nest"

local M = {}

for _, name in ipairs {
  "is_nested", "flatten", "assert_same_structure", "pack_sequence_as",
  "map_structure",
} do
  M[name] = nest[name]
end

return M
