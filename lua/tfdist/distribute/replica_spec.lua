--- tf.distribute.DistributedValues' specs: what PerReplica values are.
local M = {}

local getmetatable, setmetatable = getmetatable, setmetatable

local PerReplicaSpec = { __name = "PerReplicaSpec" }

function PerReplicaSpec:__index(key)
  if key == "value_specs" then
    return rawget(self, "specs")
  end
  return rawget(self, "specs")[1][key]
end

function PerReplicaSpec:__tostring()
  local parts = {}
  for i = 1, #self.value_specs do
    parts[i] = tostring(self.value_specs[i])
  end
  return "PerReplicaSpec(" .. table.concat(parts, ", ") .. ")"
end

--- True for specs of PerReplica values; `value_specs` has one for each replica
--- here.
function M.is_spec(x)
  return getmetatable(x) == PerReplicaSpec
end

--- Of values of a strategy whose replicas have what the specs say.
function M.new(strategy, specs)
  return setmetatable({ strategy = strategy, specs = specs }, PerReplicaSpec)
end

--- The strategy whose values it describes.
function M.strategy_of(x)
  return rawget(x, "strategy")
end

return M
