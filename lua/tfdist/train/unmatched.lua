--- What is said of values and objects that a checkpoint did not bring together.
local graphs = require "tfdist.train.object_graph"
local notice = require "tfdist.base.notice"
local pairs = require "tfdist.base.pairs"

local M = {}

--- The first names of a list, which is sorted, as one text.
---@param list string[]
---@return string
function M.first_few(list)
  table.sort(list)
  local shown = {}
  for i = 1, math.min(#list, 5) do
    shown[i] = list[i]
  end
  return table.concat(shown, ", ")
    .. (#list > 5 and (" and %d more"):format(#list - 5) or "")
end

local COUNTER = "save_counter" -- which a checkpoint's object always has

--- Tell where nothing was restored though there are values on both sides: names
--- that differ, most likely. Objects without variables get theirs later.
function M.tell_nothing(restore, root, what)
  local here, there = {}, {}
  for node in pairs(restore.used) do
    if node.key ~= nil and node.key ~= COUNTER then
      return
    end
  end
  for i = 1, restore.nodes.n do
    local key = restore.nodes[i].key
    if key ~= nil and key ~= COUNTER then
      there[#there + 1] = key
    end
  end
  for _, node in ipairs(#there > 0 and graphs.walk(root) or {}) do
    if graphs.is_variable(node.object) and node.path ~= COUNTER then
      here[#here + 1] = node.path
    end
  end
  if #here > 0 then
    notice.warn(("%s: %s: nothing was restored, no name is the same: there it "
      .. "has %s; here are %s"):format(what, restore.path, M.first_few(there),
      M.first_few(here)))
  end
end

-- Numbers of the nodes that belong to optimizers: their slots, and what else
-- the root's has.
local function optimizer_nodes(nodes)
  local found = {}
  local function add(i)
    if i ~= nil and not found[i] then
      found[i] = true
      for _, child in pairs(nodes[i + 1].children) do
        add(child)
      end
    end
  end
  add(nodes[1].children.optimizer)
  for i = 1, nodes.n do
    for _, slot in ipairs(nodes[i].slots or {}) do
      add(slot.node)
    end
  end
  return found
end

--- Tell which variables of a built model kept their values, and, when it has
--- all it will ever have, which values of the file were of no use.
function M.tell_weights(model, restore)
  if not (getmetatable(model) or {}).is_keras_layer then
    return
  end
  local missing, left, variables = {}, {}, model.variables
  for _, v in ipairs(variables) do
    if not restore.restored[v] then
      missing[#missing + 1] = v.name
    end
  end
  if #missing > 0 then
    notice.warn(("load_weights: %s has no value for %d of the %d variables of "
      .. "model %s: %s"):format(restore.path, #missing, #variables, model.name,
      M.first_few(missing)))
  end
  if rawget(model, "_layers") == nil or not model.built then
    return
  end
  local others = optimizer_nodes(restore.nodes)
  for i = 1, restore.nodes.n do
    local node = restore.nodes[i]
    if node.key ~= nil and not restore.used[node] and not others[i - 1] then
      left[#left + 1] = node.key
    end
  end
  if #left > 0 then
    notice.warn(("load_weights: model %s has no variable for %d of the values "
      .. "in %s: %s"):format(model.name, #left, restore.path, M.first_few(left)))
  end
end

return M
