--- The graph of objects that a checkpoint saves: names, variables, slots.
---
--- Nodes are variables, tf.Module objects (layers and models are ones),
--- optimizers, data set iterators, tf.train.Checkpoint objects, other objects
--- with a metatable, and plain tables. An edge is a field with its name; lists
--- count from 0. An object may say itself what its children are: its metatable's
--- `__checkpoint_children(self)` returns a list of { name, child }.
--- An object with methods `state()` (a table of plain values) and
--- `restore(state)` is saved by these, or by its metatable's
--- `__checkpoint_state(self)` and `__checkpoint_restore(self, state)`.
---
--- A node's key in the file is the path by which a breadth-first walk first
--- reaches it, "model/layers/0/kernel"; "/" in a field name is written ".S",
--- "." is "..". A slot is under its variable: "w/.OPTIMIZER_SLOT/optimizer/m".
local errors = require "tfdist.base.errors"
local module = require "tfdist.core.module"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"
local values = require "tfdist.distribute.values"

local M = {}

local getmetatable, rawget, type = getmetatable, rawget, type

--- True for what is saved as one tensor.
function M.is_variable(x)
  return module.is_variable(x)
end

--- True for optimizers.
function M.is_optimizer(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  return type(meta) == "table" and meta.is_tf_optimizer == true
end

local function meta_of(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  return type(meta) == "table" and meta or nil
end

local function methods_of(x)
  return x.state, x.restore
end

-- The functions that save and restore x, nil for objects without such.
local function state_functions(x)
  local meta = meta_of(x)
  if meta == nil or meta.is_tf_module or meta.is_tf_optimizer
    or meta.__checkpoint_children ~= nil then
    return nil
  elseif meta.__checkpoint_state ~= nil then
    return meta.__checkpoint_state, meta.__checkpoint_restore
  end
  local ok, save, load = errors.attempt(methods_of, x)
  if ok and type(save) == "function" and type(load) == "function" then
    return save, load
  end
  return nil
end

--- True for objects that save and restore a state of plain values.
function M.has_state(x)
  return state_functions(x) ~= nil
end

--- Give such an object the state of another one.
function M.restore_state(x, saved)
  local _, load = state_functions(x)
  load(x, saved)
end

--- True for a root that is to go on with the same bits: its variables' copies
--- are saved where replicas keep them apart.
function M.is_exact(x)
  local meta = meta_of(x)
  return meta ~= nil and meta.__checkpoint_exact ~= nil
    and meta.__checkpoint_exact(x)
end

--- The object that stands for x: copies of distributed variables belong to one.
function M.logical(x)
  return values.container(x)
end

-- Tables of these classes hold no variables, or only those of others.
local OPAQUE = {
  ["tfdist.Error"] = true, ["Tensor of strings"] = true,
}

local function is_opaque(meta)
  return OPAQUE[meta.__name] or meta.is_tf_strategy
    or (type(meta.__name) == "string" and meta.__name:find("Strategy$"))
end

--- True for what can be a node.
function M.is_trackable(x)
  if type(x) == "userdata" then
    return module.is_variable(x)
  end
  local meta = type(x) == "table" and getmetatable(x)
  return type(x) == "table" and not (type(meta) == "table"
    and is_opaque(meta))
end

local function escape(name)
  return (name:gsub("%.", ".."):gsub("/", ".S"))
end

local function by_name(a, b)
  return a[1] < b[1]
end

-- "m" of the variable "dense/m".
local function last_part(name)
  return name:match("[^/]*$")
end

-- Weights of a layer that no field holds.
local function layer_weights(x, list)
  local own = rawget(x, "_own")
  local weights = type(own) == "table" and rawget(own, "weights")
  if type(weights) ~= "table" then
    return
  end
  local seen, names = {}, {}
  for _, child in ipairs(list) do
    seen[child[2]] = true
    names[child[1]] = true
  end
  for i, v in ipairs(weights) do
    if M.is_variable(v) and not seen[v] then
      local name = escape(last_part(v.name))
      if names[name] then
        name = name .. "_" .. i - 1
      end
      names[name] = true
      list[#list + 1] = { name, v }
    end
  end
end

local function get_optimizer(x)
  return x.optimizer
end

-- What a model got from compile is no field either.
local function model_optimizer(x, list)
  local ok, optimizer = errors.attempt(get_optimizer, x)
  if ok and M.is_optimizer(optimizer) and rawget(x, "optimizer") == nil then
    list[#list + 1] = { "optimizer", optimizer }
  end
end

-- The name of a field in the file; nil for the private ones of layers.
local function field_name(key, meta)
  if meta ~= nil and meta.is_keras_layer and key:find "^_" then
    return key == "_layers" and "layers" or nil
  end
  return key ~= "_own" and key or nil
end

local function fields(x, meta)
  local list, numbered = {}, {}
  for key, child in pairs(x) do
    if M.is_trackable(child) then
      local name = type(key) == "string" and field_name(key, meta) or nil
      if name ~= nil then
        list[#list + 1] = { escape(name), M.logical(child),
          ranked = name ~= key }
      elseif text.is_whole(key) and key >= 1 then
        numbered[#numbered + 1] = { key, M.logical(child) }
      end
    end
  end
  table.sort(list, by_name)
  table.sort(numbered, by_name)
  for _, child in ipairs(numbered) do
    list[#list + 1] = { text.number(child[1] - 1), child[2] }
  end
  return list
end

--- The children of a node: a list of { name, object, ranked? }, sorted by name.
--- `ranked`: the object is a model's own list of layers, which match by ranks.
---@param x any
---@return table[]
function M.children(x)
  if type(x) ~= "table" or M.has_state(x) then
    return {}
  end
  local meta = meta_of(x)
  if meta ~= nil and meta.__checkpoint_children ~= nil then
    local list = {}
    for _, child in ipairs(meta.__checkpoint_children(x)) do
      if M.is_trackable(child[2]) then
        list[#list + 1] = { escape(child[1]), M.logical(child[2]) }
      end
    end
    return list
  elseif meta ~= nil and meta.is_tf_optimizer then
    return { { "iterations", M.logical(x.iterations) } }
  end
  local list = fields(x, meta)
  if meta ~= nil and meta.is_keras_layer then
    layer_weights(x, list)
    model_optimizer(x, list)
  end
  return list
end

-- Is a variable below the object? nil where layers have yet to make theirs.
local function holds_variable(x, seen)
  if M.is_variable(x) then
    return true
  elseif seen[x] or M.is_optimizer(x) then
    return false
  end
  seen[x] = true
  local meta = meta_of(x)
  local unsure = meta ~= nil and meta.is_keras_layer and not x.built
  for _, child in ipairs(M.children(x)) do
    local found = holds_variable(child[2], seen)
    if found then
      return true
    end
    unsure = unsure or found == nil
  end
  if unsure then
    return nil
  end
  return false
end

-- Is a value below node number i of a file?
local function holds_value(nodes, i, seen)
  local node = nodes[i + 1]
  if node.key ~= nil or seen[i] then
    return node.key ~= nil
  end
  seen[i] = true
  for _, child in pairs(node.children) do
    if holds_value(nodes, child, seen) then
      return true
    end
  end
  return false
end

--- Which layers of a file a model's layers match: those with variables one
--- after the other, so that an Input or a Dropout on one side only moves none.
--- While a layer is not built its place in the list is all that is known.
---@param children table[]  of the model's list of layers
---@param nodes table[]     of the file
---@param saved table       children of the file's list: name -> number of a node
---@return table  name in children -> number of a node
--- Source: the edges layer_with_weights-N of tf.keras models
function M.match_layers(children, nodes, saved)
  local names, taken, matches = {}, {}, {}
  for name, i in pairs(saved) do
    if tonumber(name) ~= nil and holds_value(nodes, i, {}) then
      names[#names + 1] = name
    end
  end
  table.sort(names, function(a, b)
    return tonumber(a) < tonumber(b)
  end)
  local rank, rest = 0, {}
  for _, child in ipairs(children) do
    local found = holds_variable(child[2], {})
    if found == nil then
      return saved
    elseif found then
      rank = rank + 1
      matches[child[1]] = saved[names[rank]]
      taken[names[rank] or false] = true
    else
      rest[#rest + 1] = child[1]
    end
  end
  for _, name in ipairs(rest) do
    matches[name] = not taken[name] and saved[name] or nil
  end
  return matches
end

-- Node of an object, made when first met.
local function visit(graph, object, path)
  local node = graph.of[object]
  if node == nil then
    node = { object = object, path = path, index = #graph + 1 }
    graph[node.index] = node
    graph.of[object] = node
  end
  return node
end

-- Names of the slots that an optimizer has for a variable.
local function slot_names(optimizer, v)
  local slots = rawget(optimizer, "own").slots or {} -- none: it wraps another
  return text.names(slots[v] or {})
end

-- Slots that an optimizer has for the variables of the graph.
local function add_slots(graph, node, variables)
  local optimizer = node.object
  for _, owner in ipairs(variables) do
    for _, name in ipairs(slot_names(optimizer, owner.object)) do
      local slot = optimizer:get_slot(owner.object, name)
      if slot ~= nil then
        local path = ("%s/.OPTIMIZER_SLOT/%s/%s"):format(owner.path, node.path,
          escape(name))
        local made = visit(graph, M.logical(slot), path)
        node.slots = node.slots or {}
        node.slots[#node.slots + 1] = { variable = owner, name = name,
          node = made }
      end
    end
  end
end

-- Drop what leads to nothing that is saved. Edges lead anywhere: up again, and
-- to what another path has reached before.
local function mark_used(graph)
  local parents, queue = {}, {}
  local function use(node)
    if not node.used then
      node.used = true
      queue[#queue + 1] = node
    end
  end
  for _, node in ipairs(graph) do
    for _, edge in ipairs(node.children) do
      local list = parents[edge[2]] or {}
      parents[edge[2]] = list
      list[#list + 1] = node
    end
    if M.is_variable(node.object) or node.slots ~= nil or node.has_state then
      use(node)
    end
  end
  use(graph[1])
  while queue[1] ~= nil do
    for _, node in ipairs(parents[table.remove(queue)] or {}) do
      use(node)
    end
  end
end

--- Walk from a root, breadth first.
---@param root any
---@return table list of { object, path, children, slots?, has_state? }, and
---  `of`: object -> node
function M.walk(root)
  local graph = { of = {} }
  local optimizers, variables = {}, {}
  visit(graph, root, "")
  local at = 1
  while graph[at] ~= nil do
    local node = graph[at]
    node.children = {}
    node.has_state = M.has_state(node.object)
    if M.is_variable(node.object) then
      variables[#variables + 1] = node
    elseif M.is_optimizer(node.object) then
      optimizers[#optimizers + 1] = node
    end
    local prefix = node.path == "" and "" or node.path .. "/"
    for i, child in ipairs(M.children(node.object)) do
      node.children[i] = { child[1], visit(graph, child[2],
        prefix .. child[1]) }
    end
    at = at + 1
  end
  for _, node in ipairs(optimizers) do
    add_slots(graph, node, variables)
  end
  for i = at, #graph do
    graph[i].children = {}
  end
  mark_used(graph)
  return graph
end

--- The graph as a table of plain values for the file; nodes count from 0.
function M.describe(graph)
  local numbers, nodes = {}, { n = 0 }
  for _, node in ipairs(graph) do
    if node.used then
      numbers[node] = nodes.n
      nodes.n = nodes.n + 1
    end
  end
  for _, node in ipairs(graph) do
    if node.used then
      local entry = { children = {} }
      for _, edge in ipairs(node.children) do
        entry.children[edge[1]] = numbers[edge[2]]
      end
      if M.is_variable(node.object) then
        entry.key, entry.copies = node.path, node.copies
      elseif node.has_state then
        entry.state = state_functions(node.object)(node.object)
      end
      for i, slot in ipairs(node.slots or {}) do
        entry.slots = entry.slots or {}
        entry.slots[i] = { variable = numbers[slot.variable],
          name = slot.name, node = numbers[slot.node] }
      end
      nodes[numbers[node] + 1] = entry
    end
  end
  return { version = 1, nodes = nodes }
end

-- Files ----------------------------------------------------------------------

local function bad_graph(path)
  errors.raise("DataLoss", path .. ": the object graph in the metadata is "
    .. "damaged")
end

-- No name of describe's has a zero byte, where the runtime would end it.
local function is_name(x)
  return type(x) == "string" and not x:find "%z"
end

local function is_names(list)
  local good = text.is_plain(list)
  for i = 1, good and #list or 0 do
    good = good and is_name(list[i])
  end
  return good
end

--- The nodes of a graph that a file has.
--- Errors: DataLoss naming the file for what describe cannot have made.
function M.check(path, graph)
  local nodes = type(graph) == "table" and graph.nodes
  if type(nodes) ~= "table" or not text.is_whole(nodes.n) or nodes.n < 1 then
    bad_graph(path)
  end
  local function is_node(i)
    return text.is_whole(i) and i >= 0 and i < nodes.n
  end
  for i = 1, nodes.n do
    local node = nodes[i]
    if type(node) ~= "table" or type(node.children) ~= "table"
      or (node.key ~= nil and not is_name(node.key))
      or (node.copies ~= nil and not is_names(node.copies))
      or (node.slots ~= nil and type(node.slots) ~= "table") then
      bad_graph(path)
    end
    for _, child in pairs(node.children) do
      if not is_node(child) then
        bad_graph(path)
      end
    end
    for _, slot in ipairs(node.slots or {}) do
      if type(slot) ~= "table" or not is_node(slot.variable)
        or not is_node(slot.node) or not is_name(slot.name) then
        bad_graph(path)
      end
    end
  end
  return nodes
end

--- A graph made from the names of a file that has none: "a/b" is b of a.
---@param names string[]
function M.from_names(names)
  local nodes = { { children = {} }, n = 1 }
  for _, name in ipairs(names) do
    local at = 1
    for part in name:gmatch "[^/]+" do
      local children = nodes[at].children
      if children[part] == nil then
        nodes.n = nodes.n + 1
        nodes[nodes.n] = { children = {} }
        children[part] = nodes.n - 1
      end
      at = children[part] + 1
    end
    nodes[at].key = name
  end
  return { version = 1, nodes = nodes }
end

return M
