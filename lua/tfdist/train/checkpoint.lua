--- Saving and restoring graphs of objects.
---
---   local checkpoint = require "tfdist.train.checkpoint"
---   checkpoint.save_weights(model, "w")          writes w.safetensors
---   checkpoint.load_weights(model, "w"):assert_consumed()
---
--- (`model:save_weights` and `load_weights` are these two.) A file has one
--- tensor for each logical variable, whatever the strategy, and the graph in its
--- metadata. Restoring matches the file's graph with the objects, edge by edge;
--- nothing is changed unless all that matches can be read and fits.
---
--- What does not exist yet is restored when it appears: assigning a variable or
--- an object to a field of a matched object restores it, so does a slot that an
--- optimizer makes. Objects filled behind the back of assignment call
--- `checkpoint.settle(object)` afterwards.
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local graphs = require "tfdist.train.object_graph"
local json = require "tfdist.core.json"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local together = require "tfdist.train.together"
local tracing = require "tfdist.core.tracing"
local unmatched = require "tfdist.train.unmatched"
local distributed = require "tfdist.distribute.variables"

-- Puts the default context in place.
require "tfdist.distribute"

local M = {}

local EXTENSION = ".safetensors"
local GRAPH_KEY = "tfdist.graph"

M.EXTENSION = EXTENSION

--- The file of a checkpoint's name: with the extension, once.
function M.file_name(path)
  if path:sub(-#EXTENSION) == EXTENSION then
    return path
  end
  return path .. EXTENSION
end

-- "ckpt-9" before "ckpt-10".
local function in_order(a, b)
  local head_a, n_a = a:match("^(.-)(%d+)$")
  local head_b, n_b = b:match("^(.-)(%d+)$")
  if head_a ~= nil and head_a == head_b and tonumber(n_a) ~= tonumber(n_b) then
    return tonumber(n_a) < tonumber(n_b)
  end
  return a < b
end

--- Names of the checkpoints in a folder, without extension, in order.
--- Errors: NotFound for a folder that is not there.
---@param folder string
---@return string[]
function M.in_folder(folder)
  local names = {}
  for name in raw.folder_list(folder):gmatch "[^%z]+" do
    if name:sub(-#EXTENSION) == EXTENSION then
      names[#names + 1] = name:sub(1, -#EXTENSION - 1)
    end
  end
  table.sort(names, in_order)
  return names
end

-- Saving ---------------------------------------------------------------------

local function check_context(what)
  local mode = contexts.mode()
  if mode ~= nil and mode.replica ~= nil
    and mode.replica ~= contexts.default_context
    and mode.replica.thread ~= nil then
    errors.raise("RuntimeError", what .. ": called inside a replica function",
      "call it outside of strategy:run")
  end
end

local function folder_of(path)
  return path:match("^(.*)/[^/]*$")
end

-- The copies that replicas keep apart, each as an entry; returns their names.
local function add_copies(add, node)
  local keys = {}
  for i, value in ipairs(together.copies(node.object) or {}) do
    keys[i] = ("%s/.COPY/%d"):format(node.path, i - 1)
    add(keys[i], value)
  end
  return keys[1] and keys
end

--- Write everything reachable from root into path (".safetensors" is added).
--- The file appears whole or not at all; its folder is made, and what processes
--- that died were writing there is removed. Every worker calls it, the chief's
--- file is kept.
--- Errors: ValueError for a variable that cannot be read as one (synchronization
---   ON_READ without aggregation); ResourceExhausted when the disk is full.
---@param root any
---@param path string
---@param what? string  caller, for messages
---@param after? function  called where the file is, before others go on
---@return string path  as given
function M.write(root, path, what, after)
  what = what or "checkpoint.write"
  files.path(what, "the path", path)
  check_context(what)
  local graph, saver = graphs.walk(root), raw.saver_new()
  local exact, writes = graphs.is_exact(root), together.is_writer(graph)
  -- Who does not write only takes part in reading.
  local function add(key, value)
    if writes then
      raw.saver_add(saver, key, value)
    end
  end
  raw.tape_pause_all(true)
  state.protect(function()
    raw.tape_pause_all(false)
  end, function()
    for _, node in ipairs(graph) do
      if node.used and graphs.is_variable(node.object) then
        add(node.path, node.object:read_value())
        node.copies = exact and add_copies(add, node) or nil
      end
    end
  end)
  raw.saver_metadata(saver, GRAPH_KEY, json.encode(graphs.describe(graph)))
  raw.saver_metadata(saver, "tfdist.version", raw.version())
  together.write(graph, what, path, function()
    local folder = folder_of(path)
    if folder ~= nil then
      raw.folder_make(folder)
    end
    raw.saver_write(saver, M.file_name(path))
    if after ~= nil then
      after()
    end
  end)
  raw.release(saver)
  return path
end

-- Restoring ------------------------------------------------------------------

-- One reading of one file: archive, nodes (from 0), and what has happened.
local Restore = {}
Restore.__index = Restore

-- object -> { restore, number of its node }, for those whose children (or
-- slots) are not all there yet
local pending = setmetatable({}, { __mode = "k" })

local function read_graph(archive, path)
  local source = raw.archive_metadata(archive, GRAPH_KEY)
  if source ~= nil then
    local ok, graph = errors.attempt(json.decode, source)
    if not ok and not errors.is_of_data(graph) then
      -- Lua's own memory: no reason to take an older checkpoint.
      errors.raise("ResourceExhausted", path .. ": " .. tostring(graph))
    end
    return graphs.check(path, ok and graph)
  end
  local names = {}
  for i = 0, raw.archive_count(archive) - 1 do
    names[#names + 1] = (raw.archive_entry(archive, i))
  end
  return graphs.from_names(names).nodes
end

--- Open a checkpoint's file: an object with the archive and its nodes, or
--- nil, message, "NotFound".
--- Errors: DataLoss naming file and offset.
function M.open(path)
  local file = M.file_name(path)
  local is_file = raw.file_stat(file)
  if not is_file then
    -- A file saved elsewhere may have another ending.
    if file == path or not raw.file_stat(path) then
      return nil, file .. ": there is no such checkpoint", "NotFound"
    end
    file = path
  end
  local archive = raw.archive_open(file)
  local ok, nodes = pcall(read_graph, archive, file)
  if not ok then
    raw.release(archive)
    error(nodes, 0)
  end
  return setmetatable({
    path = file, archive = archive, nodes = nodes,
    -- node number -> list of objects; weak, so that a pending restore keeps
    -- nothing alive
    objects = {}, number_of = setmetatable({}, { __mode = "k" }),
    restored = setmetatable({}, { __mode = "k" }), used = {},
    optimizers = setmetatable({}, { __mode = "k" }),
    -- models' lists of layers
    ranked = setmetatable({}, { __mode = "k" }),
  }, Restore)
end

--- Give the file back. What is asked for later opens it again.
function Restore:close()
  if self.archive ~= nil then
    raw.release(self.archive)
    self.archive = nil
  end
end

function Restore:node(number)
  return self.nodes[number + 1]
end

-- Match an object and all below it with a node; found gets the new matches.
function Restore:match(object, number, found)
  local queue, at, seen = { { object, number } }, 1, { [object] = true }
  while queue[at] ~= nil do
    local x, i = queue[at][1], queue[at][2]
    at = at + 1
    if self.number_of[x] == nil then
      self.number_of[x] = i
      self.objects[i] = self.objects[i] or setmetatable({}, { __mode = "k" })
      self.objects[i][x] = true
      found[#found + 1] = { x, i }
      if graphs.is_optimizer(x) then
        self.optimizers[x] = true
      end
    end
    local saved = self:node(i).children
    local children = next(saved) and graphs.children(x) or {}
    if self.ranked[x] then
      saved = graphs.match_layers(children, self.nodes, saved)
    end
    for _, child in ipairs(children) do
      local j = saved[child[1]]
      if j ~= nil and not seen[child[2]] then
        seen[child[2]] = true
        self.ranked[child[2]] = child.ranked or nil
        queue[#queue + 1] = { child[2], j }
      end
    end
  end
end

-- May slots be made now? Only a strategy's creators should catch them.
local function may_make_slots()
  return state.current.creators == nil or contexts.mode() ~= nil
end

function Restore:match_slot(optimizer, v, slot, found, make)
  if not graphs.is_variable(v) then -- only a damaged graph says so
    return
  end
  local x = optimizer:get_slot(v, slot.name)
  if x == nil and make and may_make_slots() then
    x = optimizer:add_slot(v, slot.name)
  end
  if x ~= nil and self.number_of[x] == nil then
    self:match(x, slot.node, found)
  end
end

-- Slots of matched optimizers for matched variables; with `make`, those that
-- are not there are made.
function Restore:match_slots(found, make)
  for optimizer in pairs(self.optimizers) do
    for _, slot in ipairs(self:node(self.number_of[optimizer]).slots or {}) do
      for v in pairs(self.objects[slot.variable] or {}) do
        self:match_slot(optimizer, v, slot, found, make)
      end
    end
  end
end

local function shape_text(archive, i)
  local dims, axis = {}, 0
  while true do
    local n = raw.archive_dim(archive, i, axis)
    if n < 0 then
      return text.shape(dims)
    end
    axis = axis + 1
    dims[axis] = n
  end
end

-- The number of a tensor that a node has.
function Restore:find(key)
  self.archive = self.archive or raw.archive_open(self.path)
  local i = raw.archive_find(self.archive, key)
  if i < 0 then
    errors.raise("DataLoss", ("%s: the object graph names tensor %s, which is "
      .. "not in the file"):format(self.path, text.quote(key)))
  end
  return i
end

-- The value of variable v, checked against it but not yet assigned.
function Restore:load(v, key)
  local i = self:find(key)
  local _, dtype, offset = raw.archive_entry(self.archive, i)
  local own_dtype, own_shape = v.dtype, text.shape(v.shape)
  local shape = shape_text(self.archive, i)
  if dtype ~= own_dtype or shape ~= own_shape then
    errors.raise(shape ~= own_shape and "ValueError" or "InvalidArgument",
      ("%s: tensor %s at offset %s is %s %s, "
      .. "variable %s is %s %s"):format(self.path, text.quote(key),
      text.number(offset), dtype, shape, text.quote(v.name), own_dtype,
      own_shape), "was the checkpoint saved from another model?")
  end
  return raw.archive_read(self.archive, i)
end

-- The same for its copies, where the file has them for as many replicas.
function Restore:load_copies(v, node)
  local first, count = nil, nil
  if node.copies ~= nil then
    first, count = together.own_copies(v, #node.copies)
  end
  if first == nil then
    return nil
  end
  local list = {}
  for i = 1, count do
    list[i] = self:load(v, node.copies[first + i])
  end
  return list
end

local function on_first_device(fn, ...)
  raw.device_push(raw.device_at("CPU", 0))
  raw.tape_pause_all(true)
  return state.protect(function()
    raw.tape_pause_all(false)
    raw.device_pop()
  end, fn, ...)
end

-- Give an iterator, or what else has a state, the one of the file.
function Restore:restore_state(object, node)
  local ok, e = pcall(graphs.restore_state, object, node.state)
  if not ok and errors.kind(e) == "ValueError" then
    errors.raise("InvalidArgument", ("%s: the state of %s does not fit: %s")
      :format(self.path, text.describe(object), e.message))
  elseif not ok then
    error(e, 0)
  end
end

-- Read all new matches, then change states and variables: what cannot be read
-- or does not fit changes nothing.
function Restore:apply(found)
  local staged, states = {}, {}
  on_first_device(function()
    for _, match in ipairs(found) do
      local object, node = match[1], self:node(match[2])
      if node.key ~= nil and graphs.is_variable(object) then
        staged[#staged + 1] = { object, self:load(object, node.key), node,
          self:load_copies(object, node) }
      elseif node.state ~= nil and graphs.has_state(object) then
        states[#states + 1] = { object, nil, node }
      end
    end
    for _, entry in ipairs(states) do
      self:restore_state(entry[1], entry[3])
    end
  end)
  for _, entry in ipairs(staged) do
    on_first_device(distributed.restore, entry[1], entry[2], entry[4])
  end
  for _, list in ipairs { staged, states } do
    for _, entry in ipairs(list) do
      self.used[entry[3]] = true
      self.restored[entry[1]] = true
    end
  end
end

-- What was restored is the same on all replicas.
local function check_copies(what, found)
  local list = {}
  for _, match in ipairs(found) do
    if graphs.is_variable(match[1]) then
      list[#list + 1] = match[1]
    end
  end
  distributed.check_copies(what, list)
end

-- Things that may still come --------------------------------------------------

-- Is part of the saved node not there yet?
function Restore:is_waiting(object, number)
  local node = self:node(number)
  for _, j in pairs(node.children) do
    if self.objects[j] == nil or next(self.objects[j]) == nil then
      return true
    end
  end
  for _, slot in ipairs(node.slots or {}) do
    if self.objects[slot.node] == nil then
      return graphs.is_optimizer(object)
    end
  end
  return false
end

local watched = setmetatable({}, { __mode = "k" })

-- From now on assignments to new fields of objects of this class are seen.
local function watch_class(meta)
  if watched[meta] then
    return
  end
  watched[meta] = true
  local before = meta.__newindex
  function meta.__newindex(self, key, value)
    if type(before) == "function" then
      before(self, key, value)
    elseif before ~= nil then
      before[key] = value
    else
      rawset(self, key, value)
    end
    if pending[self] ~= nil then
      M.settle(self)
    end
  end
end

-- From now on slots that the optimizer makes are seen.
local function watch_slots(optimizer)
  rawget(optimizer, "own").on_slot = function()
    if pending[optimizer] ~= nil then
      M.settle(optimizer)
    end
  end
end

function Restore:watch(found)
  local waiting = false
  for _, match in ipairs(found) do
    local object, number = match[1], match[2]
    local meta = type(object) == "table" and getmetatable(object)
    if type(object) == "table" and self:is_waiting(object, number) then
      pending[object] = { self, number }
      waiting = true
      if graphs.is_optimizer(object) then
        watch_slots(object)
      elseif type(meta) == "table" then
        watch_class(meta)
      end
    elseif type(object) == "table" then
      pending[object] = nil
    end
  end
  return waiting
end

local function settle(object, restore, number)
  local found = {}
  restore:match(object, number, found)
  restore:match_slots(found, false)
  restore:apply(found)
  found[#found + 1] = { object, number }
  restore:watch(found)
end

--- Restore what an object has got since it was matched by a restore; nothing
--- for others. In a trace that happens at once, as the making of the variables:
--- the graph that made them is not the one that runs.
---@param object any
function M.settle(object)
  local entry = pending[object]
  if entry ~= nil then
    tracing.lifted(settle, object, entry[1], entry[2])
  end
end

--- What a restore has for the object and has not given it yet counts no more.
---@param object any
function M.forget(object)
  pending[object] = nil
end

-- The same for everything below root.
function Restore:settle_all(root)
  local found = {}
  self:match(root, 0, found)
  self:match_slots(found, false)
  self:apply(found)
  self:watch(found)
end

-- Status ---------------------------------------------------------------------

local Status = { __name = "CheckpointLoadStatus" }
Status.__index = Status

local function status_method(name, fn)
  Status[name] = function(self)
    if getmetatable(self) ~= Status then
      options.wrong_self("CheckpointLoadStatus." .. name, "status", self)
    end
    fn(self.restore, self.root)
    return self
  end
end

local function check_existing(self, root)
  self:settle_all(root)
  local missing = {}
  for _, node in ipairs(graphs.walk(root)) do
    if graphs.is_variable(node.object) and not self.restored[node.object] then
      missing[#missing + 1] = node.path
    end
  end
  if #missing > 0 then
    errors.raise("AssertionError", ("%s: no value for %d object%s here: %s")
      :format(self.path, #missing, #missing == 1 and "" or "s",
      unmatched.first_few(missing)))
  end
end

--- Raise unless every variable that exists was restored.
--- Errors: AssertionError naming those that were not.
status_method("assert_existing_objects_matched", check_existing)

--- Raise unless every variable here and every value in the file was matched.
--- Errors: AssertionError.
status_method("assert_consumed", function(self, root)
  check_existing(self, root)
  local left = {}
  for i = 1, self.nodes.n do
    local node = self.nodes[i]
    if (node.key ~= nil or node.state ~= nil) and not self.used[node] then
      left[#left + 1] = node.key or "state of object " .. i - 1
    end
  end
  if #left > 0 then
    errors.raise("AssertionError", ("%s: %d value%s without an object here: %s")
      :format(self.path, #left, #left == 1 and "" or "s",
      unmatched.first_few(left)),
      "status:expect_partial() is for files that hold more than is wanted")
  end
end)

--- Raise unless something besides the root and save_counter matched.
--- Errors: AssertionError.
status_method("assert_nontrivial_match", function(self, root)
  self:settle_all(root)
  for node in pairs(self.used) do
    if node.key ~= "save_counter" then
      return
    end
  end
  errors.raise("AssertionError", self.path .. ": nothing in it matches an "
    .. "object here")
end)

--- Say that the file may hold more than is wanted; returns the status.
status_method("expect_partial", function() end)

function Status:__tostring()
  local used, all = 0, 0
  for i = 1, self.restore.nodes.n do
    local node = self.restore.nodes[i]
    if node.key ~= nil then
      all = all + 1
      used = used + (self.restore.used[node] and 1 or 0)
    end
  end
  return ("CheckpointLoadStatus: %d of %d values of %s restored"):format(used,
    all, self.restore.path)
end

-- What to say of a path where no checkpoint is.
local function not_there(what, path)
  local folder = path:match("^(.*/)[^/]*$") or "./"
  local _, is_folder = raw.file_stat(path)
  local hint
  if is_folder then
    hint = ("this is a folder; tf.train.latest_checkpoint(%s) is the name of its "
      .. "newest checkpoint"):format(text.quote(path))
  elseif not select(2, raw.file_stat(folder)) then
    hint = "there is no folder " .. folder
  else
    local listed, names = pcall(M.in_folder, folder)
    local near = listed and text.nearest(path:match("[^/]*$"), names)
    if near then
      hint = ("did you mean %s%s?"):format(path:match("^.*/") or "", near)
    end
  end
  errors.raise("NotFound", ("%s: there is no checkpoint %s"):format(what, path),
    hint)
end

--- Restore everything reachable from root from the file at path.
--- Errors: without a path (there was no checkpoint yet) returns nil, message,
---   "NotFound"; raises NotFound when the file is not there, DataLoss naming
---   file, tensor and offset, ValueError for another shape, InvalidArgument for
---   another dtype (then nothing was changed), ValueError for slots that would
---   have to be made in the scope of another strategy than their variable's.
---@param root any
---@param path? string
---@param what? string
---@return table? status
---@return string? message
---@return string? kind
function M.read(root, path, what)
  what = what or "checkpoint.read"
  if path == nil then
    return nil, what .. ": there is no checkpoint", "NotFound"
  end
  files.path(what, "the path", path)
  check_context(what)
  local restore = M.open(path) or not_there(what, path)
  local found, waits = {}, false
  state.protect(function()
    if not waits then
      restore:close()
    end
  end, function()
    restore:match(root, 0, found)
    restore:match_slots(found, true)
    restore:apply(found)
    check_copies(what, found)
    waits = restore:watch(found)
  end)
  if what ~= "load_weights" then -- which tells itself
    unmatched.tell_nothing(restore, root, what)
  end
  return setmetatable({ restore = restore, root = root }, Status)
end

--- Write a model's variables (and its optimizer's, when it has one) to a file.
---@param model any
---@param path string
---@return string path
function M.save_weights(model, path)
  return M.write(model, path, "save_weights")
end

--- Read what save_weights wrote. Layers that are not built yet get their
--- values when they are; variables that are there and get none are told in a
--- warning.
--- Errors: as read.
---@param model any
---@param path string
---@return table status
function M.load_weights(model, path)
  files.path("load_weights", "the path", path)
  local status = M.read(model, path, "load_weights")
  unmatched.tell_weights(model, status.restore)
  return status
end

--- Names, dtypes, shapes and sizes of the tensors in a file.
--- Errors: returns nil, message, "NotFound"; raises DataLoss.
---@param path string
---@return table[]? list of { name, dtype, shape, offset, bytes }
function M.list(path)
  local restore, message, kind = M.open(path)
  if restore == nil then
    return nil, message, kind
  end
  local list = {}
  for i = 0, raw.archive_count(restore.archive) - 1 do
    local name, dtype, offset, bytes = raw.archive_entry(restore.archive, i)
    list[i + 1] = { name = name, dtype = dtype, offset = offset, bytes = bytes,
      shape = shape_text(restore.archive, i) }
  end
  restore:close()
  return list
end

-- Is every value there that the graph names?
function Restore:check_values()
  for i = 1, self.nodes.n do
    local node = self.nodes[i]
    if node.key ~= nil then
      self:find(node.key)
    end
    for _, key in ipairs(node.copies or {}) do
      self:find(key)
    end
  end
end

--- Read every tensor of a file and check its checksum, and that of what the
--- graph names nothing is missing.
--- Errors: as list.
---@return integer? count of tensors
function M.verify(path)
  local restore, message, kind = M.open(path)
  if restore == nil then
    return nil, message, kind
  end
  local n = raw.archive_count(restore.archive)
  state.protect(function()
    restore:close()
  end, on_first_device, function()
    restore:check_values()
    for i = 0, n - 1 do
      raw.release(raw.archive_read(restore.archive, i))
    end
  end)
  return n
end

--- The tensor called `name` of a file.
--- Errors: KeyError; as list.
--- Source: tf.train.load_variable
---@return tfdist.Tensor?
function M.load_variable(path, name)
  local restore, message, kind = M.open(path)
  if restore == nil then
    return nil, message, kind
  end
  return state.protect(function()
    restore:close()
  end, function()
    local i = raw.archive_find(restore.archive, name)
    if i < 0 then
      errors.raise("KeyError", ("%s: no tensor %s"):format(restore.path,
        text.describe(name)))
    end
    return (raw.archive_read(restore.archive, i))
  end)
end

return M
