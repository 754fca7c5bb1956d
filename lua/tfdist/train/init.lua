--- tf.train: checkpoints, their manager, tf.train.Example.
---
---   local checkpoint = tf.train.Checkpoint { model = model, optimizer = opt }
---   local manager = tf.train.CheckpointManager(checkpoint, "ckpt/run",
---     { max_to_keep = 3 })
---   local restored, why = checkpoint:restore(manager.latest_checkpoint)
---   ...
---   manager:save()                  -- on every worker; the chief's is kept
---
--- A checkpoint's name, "ckpt/run/ckpt-2", is what save returns and restore
--- takes; its file is "ckpt/run/ckpt-2.safetensors". A folder's state file
--- "checkpoint" (JSON) lists the checkpoints, oldest first.
local checkpoint = require "tfdist.train.checkpoint"
local cluster = require "tfdist.distribute.cluster"
local errors = require "tfdist.base.errors"
local example = require "tfdist.io.example"
local files = require "tfdist.core.files"
local graphs = require "tfdist.train.object_graph"
local log = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local state_file = require "tfdist.train.state_file"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local together = require "tfdist.train.together"

local M = {}

for name, value in pairs(example.train) do
  M[name] = value
end
M.ClusterSpec = cluster.ClusterSpec

-- Does this process write what hangs on `root`?
local function is_writer(root)
  return together.is_writer(graphs.walk(root))
end

-- Checkpoint -----------------------------------------------------------------

local Checkpoint = { __name = "Checkpoint" }
local methods = {}

local function is_checkpoint(x)
  return type(x) == "table" and getmetatable(x) == Checkpoint
end

local function method(name, signature, fn)
  methods[name] = options.method("Checkpoint." .. name, signature, fn,
    is_checkpoint, "checkpoint")
end

local function own_of(self)
  return rawget(self, "_own")
end

-- Made on first use, outside of all scopes that are not the user's.
local function save_counter(self)
  local own = own_of(self)
  if own.save_counter == nil then
    own.save_counter = tf.Variable(0, {
      dtype = "int64", trainable = false, name = "save_counter",
      aggregation = "ONLY_FIRST_REPLICA",
    })
  end
  return own.save_counter
end

function Checkpoint.__checkpoint_children(self)
  local list, own = {}, own_of(self)
  if own.root ~= nil then
    for _, child in ipairs(graphs.children(own.root)) do
      list[#list + 1] = child
    end
  end
  for key, value in pairs(self) do
    if type(key) == "string" and key ~= "_own" then
      list[#list + 1] = { key, value }
    end
  end
  list[#list + 1] = { "save_counter", own.save_counter }
  table.sort(list, function(a, b)
    return a[1] < b[1]
  end)
  return list
end

-- Called with true: from now on; called without: is it? For backups.
function Checkpoint.__checkpoint_exact(self, exact)
  local own = own_of(self)
  own.exact = exact or own.exact or false
  return own.exact
end

local function check_trackable(name, value)
  if not graphs.is_trackable(value) then
    errors.raise("ValueError", ("Checkpoint: %s must be an object with "
      .. "variables, got %s"):format(name, text.describe(value)),
      type(value) == "number" and "a number is saved as tf.Variable" or nil)
  end
end

local checkpoint_slips = text.field_slips("Checkpoint", function()
  return text.names(methods)
end)

function Checkpoint.__index(self, key)
  if methods[key] ~= nil then
    return methods[key]
  elseif key == "save_counter" then
    return save_counter(self)
  elseif key == "root" then
    return own_of(self).root
  end
  return checkpoint_slips(key)
end

-- For the prompt.
function Checkpoint.__names()
  return text.names(methods)
end

function Checkpoint.__newindex(self, key, value)
  if methods[key] ~= nil or key == "save_counter" then
    errors.raise("ValueError", "Checkpoint: " .. text.quote(key)
      .. " is the name of a member")
  end
  check_trackable(tostring(key), value)
  rawset(self, key, value)
end

function Checkpoint.__tostring(self)
  local shown = {}
  for key in pairs(self) do
    shown[key] = key ~= "_own" or nil
  end
  return "Checkpoint { " .. table.concat(text.names(shown), ", ") .. " }"
end

--- Groups objects that are saved and restored together, by name:
--- Checkpoint { model = model, optimizer = optimizer }, or
--- Checkpoint(root, { more = object }): then the children of root count as the
--- checkpoint's own.
--- Errors: ValueError for values without variables.
--- Source: tf.train.Checkpoint
function M.Checkpoint(root, kwargs)
  if text.is_plain(root) and kwargs == nil then
    root, kwargs = nil, root
  end
  if kwargs ~= nil and not text.is_plain(kwargs) then
    errors.raise("TypeError", "Checkpoint: the objects must be a table by name, "
      .. "got " .. text.describe(kwargs))
  elseif root ~= nil then
    check_trackable("root", root)
  end
  local self = setmetatable({ _own = { root = root } }, Checkpoint)
  for key, value in pairs(kwargs or {}) do
    if key == "root" then
      own_of(self).root = value
    elseif type(key) ~= "string" then
      errors.raise("TypeError", "Checkpoint: objects need names, got "
        .. text.describe(key), "tf.train.Checkpoint { model = model }")
    else
      self[key] = value
    end
  end
  return self
end

--- Write to file_prefix .. "-" .. number, a number that counts the saves;
--- returns that name.
--- Errors: as write.
--- Source: tf.train.Checkpoint.save
method("save", "file_prefix options=nil", function(self, prefix)
  files.path("Checkpoint.save", "file_prefix", prefix)
  local counter = save_counter(self)
  counter:assign_add(tf.constant(1, "int64"))
  local path = ("%s-%s"):format(prefix,
    text.number(counter:read_value():item()))
  return checkpoint.write(self, path, "Checkpoint.save", function()
    local folder, name = path:match("^(.*)/([^/]*)$")
    M.update_checkpoint_state(folder or ".", name or path)
  end)
end)

--- Write to this name without counting; returns it. The file appears whole or
--- not at all.
--- Errors: ResourceExhausted (no space), ValueError for variables that cannot be
---   read as one. Source: tf.train.Checkpoint.write
method("write", "file_prefix options=nil", function(self, path)
  return checkpoint.write(self, path, "Checkpoint.write")
end)

--- Restore what write wrote; a status object with assert_consumed(),
--- assert_existing_objects_matched(), assert_nontrivial_match(),
--- expect_partial().
--- Errors: without a name (latest_checkpoint of an empty folder) returns nil,
---   message, "NotFound"; raises NotFound when there is no such file, DataLoss
---   naming file, tensor and offset, InvalidArgument when a shape or dtype
---   differs; then nothing was changed.
--- Source: tf.train.Checkpoint.read
method("read", "save_path=nil options=nil", function(self, path)
  return checkpoint.read(self, path, "Checkpoint.read")
end)

--- As read; also restores the counter of saves.
--- Source: tf.train.Checkpoint.restore
method("restore", "save_path=nil options=nil", function(self, path)
  if path ~= nil then
    save_counter(self)
  end
  return checkpoint.read(self, path, "Checkpoint.restore")
end)

-- State file -----------------------------------------------------------------

local function absolute(folder, name)
  return name:find("^/") and name or folder .. "/" .. name
end

--- Write a folder's state file: the newest checkpoint's name and all names.
--- Source: tf.train.update_checkpoint_state
M.update_checkpoint_state = options.wrap("update_checkpoint_state",
  "save_dir:string model_checkpoint_path:string "
  .. "all_model_checkpoint_paths:list=nil "
  .. "all_model_checkpoint_timestamps:list=nil "
  .. "last_preserved_timestamp:number=nil",
  function(folder, latest, all, timestamps, preserved)
    files.path("update_checkpoint_state", "save_dir", folder)
    if together.is_writer {} then
      state_file.write(folder, latest, all, timestamps, preserved)
    end
  end)

--- What a folder's state file says, nil without one: a table with
--- model_checkpoint_path and all_model_checkpoint_paths.
--- Source: tf.train.get_checkpoint_state
M.get_checkpoint_state = options.wrap("get_checkpoint_state",
  "checkpoint_dir:string latest_filename:string=nil", function(folder)
    local found = state_file.read(folder)
    if found == nil then
      return nil
    end
    local all = {}
    for i = 1, #found.all_model_checkpoint_paths do
      all[i] = absolute(folder, found.all_model_checkpoint_paths[i])
    end
    return {
      model_checkpoint_path = type(found.model_checkpoint_path) == "string"
        and absolute(folder, found.model_checkpoint_path) or nil,
      all_model_checkpoint_paths = all,
      all_model_checkpoint_timestamps = found.all_model_checkpoint_timestamps,
      last_preserved_timestamp = found.last_preserved_timestamp,
    }
  end)

-- Can the header be read?
local function is_whole(path)
  if not raw.file_stat(checkpoint.file_name(path)) then
    return false
  end
  local ok, found = pcall(checkpoint.open, path)
  if not ok and not errors.is_of_data(found) then
    error(found, 0)
  elseif not ok then
    log.warn(("%s is left out: %s"):format(path, found.message))
  elseif found ~= nil then
    found:close()
  end
  return ok and found ~= nil
end

--- Name of the newest checkpoint in a folder whose file is there and begins
--- with a whole header; nil when there is none.
--- Source: tf.train.latest_checkpoint
---@param checkpoint_dir string
---@return string?
M.latest_checkpoint = options.wrap("latest_checkpoint",
  "checkpoint_dir:string latest_filename:string=nil", function(folder)
    local found = M.get_checkpoint_state(folder)
    if found == nil then
      return nil
    end
    local latest = found.model_checkpoint_path
    if latest ~= nil and is_whole(latest) then
      return latest
    end
    for i = #found.all_model_checkpoint_paths, 1, -1 do
      local path = found.all_model_checkpoint_paths[i]
      if path ~= latest and is_whole(path) then
        return path
      end
    end
    return nil
  end)

--- Names and shapes of what a checkpoint holds: a list of { name, shape text }.
--- Errors: returns nil, message, "NotFound".
--- Source: tf.train.list_variables
M.list_variables = options.wrap("list_variables", "ckpt_dir_or_file",
  function(path)
    local list, message, kind = checkpoint.list(M.latest_checkpoint(path)
      or path)
    if list == nil then
      return nil, message, kind
    end
    local out = {}
    for i, entry in ipairs(list) do
      out[i] = { entry.name, entry.shape }
    end
    return out
  end)

--- The tensor of this name in a checkpoint.
--- Errors: returns nil, message, "NotFound" without the file; KeyError.
--- Source: tf.train.load_variable
M.load_variable = options.wrap("load_variable", "ckpt_dir_or_file name",
  function(path, name)
    return checkpoint.load_variable(M.latest_checkpoint(path) or path, name)
  end)

-- Manager --------------------------------------------------------------------

local Manager = { __name = "CheckpointManager" }
local manager_methods, manager_getters = {}, {}

local function is_manager(x)
  return type(x) == "table" and getmetatable(x) == Manager
end

local function manager_method(name, signature, fn)
  manager_methods[name] = options.method("CheckpointManager." .. name,
    signature, fn, is_manager, "manager")
end

local function manager_names()
  return text.names(manager_methods, manager_getters)
end

local manager_slips = text.field_slips("CheckpointManager", manager_names)

function Manager.__index(self, key)
  if manager_methods[key] ~= nil then
    return manager_methods[key]
  elseif manager_getters[key] ~= nil then
    return manager_getters[key](rawget(self, "_own"))
  end
  return manager_slips(key)
end

-- For the prompt.
Manager.__names = manager_names

function Manager.__tostring(self)
  local own = rawget(self, "_own")
  return ("CheckpointManager %s, %d kept%s"):format(text.quote(own.directory),
    #own.kept, own.max_to_keep and " of at most " .. own.max_to_keep or "")
end

--- Names of the kept checkpoints, oldest first.
function manager_getters.checkpoints(own)
  local list = {}
  for i, entry in ipairs(own.kept) do
    list[i] = entry.path
  end
  return list
end

-- latest_checkpoint is nil when there is none; step_counter is the variable
-- that counts the steps between checkpoints.
for _, name in ipairs { "latest_checkpoint", "directory", "checkpoint",
  "checkpoint_interval", "step_counter" } do
  local field = name == "latest_checkpoint" and "latest" or name
  manager_getters[name] = function(own)
    return own[field]
  end
end

-- Seconds since 1970, as the state file has them.
local function now()
  return os.time()
end

-- Is this a name that the manager gives, in its folder? No other is removed,
-- whatever a state file says.
local function is_own(own, path)
  local n = #own.prefix
  return path:sub(1, n) == own.prefix and path:find("^%-%d+$", n + 1) ~= nil
end

-- Names in the folder that a process which died was removing.
local function still_removing(own, state)
  local names = state_file.is_names(state.removing) and state.removing or {}
  for i = 1, #names do
    own.gone[#own.gone + 1] = own.directory .. "/" .. names[i]
  end
end

-- A path as the state file has it: seen from the folder.
local function listed(own, path)
  local n = #own.directory + 1
  return path:sub(1, n) == own.directory .. "/" and path:sub(n + 1) or path
end

-- Is the folder's state file there, whatever it is?
local function has_list(own)
  return files.is_listed(own.directory, state_file.NAME)
end

-- The manager's own in its folder, the one written first first: an earlier run
-- may have left higher numbers. Numbers decide between equal times.
local function own_in_folder(own)
  local list, times = {}, {}
  for _, name in ipairs(checkpoint.in_folder(own.directory)) do
    local path = own.directory .. "/" .. name
    if is_own(own, path) then
      local at = #list + 1
      times[path] = select(4, raw.file_stat(checkpoint.file_name(path)))
      while at > 1 and times[list[at - 1]] > times[path] do
        at = at - 1
      end
      table.insert(list, at, path)
    end
  end
  return list
end

-- Go on from what is there, where the list of it is damaged. Nobody knows which
-- of it was to be kept for ever: none of it is removed.
local function recover_without_list(own)
  local list = own_in_folder(own)
  for i = #list, 1, -1 do
    if is_whole(list[i]) then
      own.latest = list[i]
      return
    end
  end
end

-- Take over what the folder's state file lists.
local function recover(own)
  local found = M.get_checkpoint_state(own.directory)
  if found == nil then
    return has_list(own) and recover_without_list(own)
  end
  still_removing(own, state_file.read(own.directory))
  local times = found.all_model_checkpoint_timestamps
  for i, path in ipairs(found.all_model_checkpoint_paths) do
    if raw.file_stat(checkpoint.file_name(path)) then
      own.kept[#own.kept + 1] = { path = path,
        time = type(times) == "table" and tonumber(times[i]) or now() }
    end
  end
  own.latest = M.latest_checkpoint(own.directory)
  local named = found.model_checkpoint_path
  if own.latest == nil and named ~= nil and together.is_writer {} then
    log.warn(("CheckpointManager: %s/%s names %s, and no checkpoint that it "
      .. "names can be read: there is nothing to go on from"):format(
      own.directory, state_file.NAME, named))
  end
  own.preserved = tonumber(found.last_preserved_timestamp) or own.preserved
end

local function record(own)
  local names, times = { n = #own.kept }, { n = #own.kept }
  for i, entry in ipairs(own.kept) do
    names[i] = listed(own, entry.path)
    times[i] = entry.time
  end
  local removing = { n = #own.gone }
  for i, path in ipairs(own.gone) do
    removing[i] = listed(own, path)
  end
  state_file.write(own.directory, listed(own, own.latest), names, times,
    own.preserved, removing.n > 0 and removing or nil)
end

-- Checkpoints over the limit are forgotten, and to be removed unless they are
-- one of those kept every n hours.
local function sweep(own)
  while own.max_to_keep and #own.kept > own.max_to_keep do
    local entry = table.remove(own.kept, 1)
    local hours = own.keep_every_hours
    if hours and entry.time - hours * 3600 >= own.preserved then
      own.preserved = entry.time
    else
      own.gone[#own.gone + 1] = entry.path
    end
  end
  local kept, gone = {}, {}
  for _, entry in ipairs(own.kept) do
    kept[entry.path] = true
  end
  for _, path in ipairs(own.gone) do
    if not kept[path] and is_own(own, path) then
      gone[#gone + 1] = path
    end
  end
  own.gone = gone
end

-- What cannot be removed now is tried again after the next save.
local function remove_gone(own)
  local left = {}
  for _, path in ipairs(own.gone) do
    local file = checkpoint.file_name(path)
    if not os.remove(file) and raw.file_stat(file) then
      left[#left + 1] = path
    end
  end
  own.gone = left
end

local function counter_value(x)
  return x:read_value():item()
end

-- Has the interval passed since the last save?
local function is_due(own)
  if own.checkpoint_interval == nil or own.last_step == nil then
    return true
  end
  return counter_value(own.step_counter)
    >= own.last_step + own.checkpoint_interval
end

local function keep(own, path)
  for i = #own.kept, 1, -1 do
    if own.kept[i].path == path then
      table.remove(own.kept, i)
    end
  end
  own.kept[#own.kept + 1] = { path = path, time = now() }
  own.latest = path
  sweep(own)
end

--- Save a checkpoint and remove those over the limit; the number is
--- checkpoint_number or the counter of saves. Returns its name, nil when
--- checkpoint_interval says it is too early (check_interval = false saves
--- anyhow).
--- Source: tf.train.CheckpointManager.save
manager_method("save", "checkpoint_number=nil check_interval=true options=nil",
  function(self, number, check)
    local own = rawget(self, "_own")
    if check and not is_due(own) then
      return nil
    end
    local counter = own.checkpoint.save_counter
    counter:assign_add(tf.constant(1, "int64"))
    if number == nil then
      number = counter_value(counter)
    elseif type(number) == "userdata" then
      number = counter_value(number)
    end
    local path = own.prefix .. "-" .. text.number(options.integer(
      "CheckpointManager.save", "checkpoint_number", number, 0))
    -- What a failure leaves behind is removed after the next save.
    own.gone[#own.gone + 1] = path
    checkpoint.write(own.checkpoint, path, "CheckpointManager.save", function()
      keep(own, path)
      -- The list first: a checkpoint it names is there at any moment.
      record(own)
      remove_gone(own)
    end)
    if own.step_counter ~= nil then
      own.last_step = counter_value(own.step_counter)
      together.saved_at("after step " .. text.number(own.last_step))
    end
    if not is_writer(own.checkpoint) then
      keep(own, path)
      own.gone = {}
    end
    return path
  end)

--- Remove the checkpoints that the manager has written, and their list.
function Manager.__clear(self)
  local own = rawget(self, "_own")
  for _, entry in ipairs(own.kept) do
    own.gone[#own.gone + 1] = entry.path
  end
  own.kept, own.latest = {}, nil
  sweep(own)
  remove_gone(own)
  os.remove(own.directory .. "/" .. state_file.NAME)
end

-- Names to try, best first: what is known, what the state file lists now, and
-- what else of the manager's is in its folder. Another process that saves there
-- may remove all that a list names while the list is read; its own newest is
-- there then.
local function candidates(own)
  local list, seen = {}, {}
  local function put(path)
    if path ~= nil and not seen[path] then
      seen[path] = true
      list[#list + 1] = path
    end
  end
  local found = M.get_checkpoint_state(own.directory)
  local known = found and found.all_model_checkpoint_paths or {}
  put(own.latest)
  put(found and found.model_checkpoint_path)
  for i = #known, 1, -1 do
    put(known[i])
  end
  for i = #own.kept, 1, -1 do
    put(own.kept[i].path)
  end
  local there = has_list(own) and own_in_folder(own) or {}
  for i = #there, 1, -1 do
    put(there[i])
  end
  return list
end

-- Say of one that is damaged what comes of that, once that is known.
local function tell_damage(tried, outcome)
  if tried.path ~= nil then
    log.warn(("%s cannot be restored, %s: %s"):format(tried.path, outcome,
      tried.message))
    tried.path = nil
  end
end

-- The first of a list that take(path) takes without an error; `tried` has those
-- that are damaged, and as `path` and `message` the last of them.
local function take_first(list, tried, take)
  for _, path in ipairs(list) do
    local ok, status = false, nil
    local is_new = not tried.damaged[path]
    if is_new then
      ok, status = pcall(take, path)
    end
    local kind = errors.kind(status)
    if is_new and kind ~= "NotFound" then
      tell_damage(tried, "trying the one before")
    end
    if ok then
      return path
    elseif kind == "DataLoss" then
      tried.damaged[path] = true
      tried.path, tried.message = path, status.message
    elseif is_new and kind ~= "NotFound" then
      error(status, 0)
    end
  end
  return nil
end

-- The newest one that take(path) takes.
local function take_newest(own, take)
  local tried, before = { damaged = {} }, nil
  local list = candidates(own)
  -- As long as others change what there is.
  while table.concat(list, "\0") ~= before do
    local path = take_first(list, tried, take)
    if path ~= nil then
      return path
    end
    before = table.concat(list, "\0")
    list = candidates(own)
  end
  tell_damage(tried, "and no other one: there is nothing to go on from")
  return nil
end

local function verify(path)
  local found, message, kind = checkpoint.verify(path)
  if found == nil then
    errors.raise(kind, message)
  end
end

--- Restore the newest checkpoint that is whole, passing over damaged ones with
--- a warning; without any, call init_fn. Returns the name restored, or nil.
--- Several workers restore, together, what the chief has found whole.
--- Source: tf.train.CheckpointManager.restore_or_initialize
manager_method("restore_or_initialize", "", function(self)
  local own = rawget(self, "_own")
  local ckpt = own.checkpoint
  local graph = graphs.walk(ckpt)
  local path
  local function restore(name)
    ckpt:restore(name)
  end
  if together.is_shared(graph) then
    save_counter(ckpt) -- all workers make it
    path = together.choose(graph, "CheckpointManager.restore_or_initialize",
      function()
        return take_newest(own, verify)
      end)
    if path ~= nil then
      restore(path)
    end
  else
    path = take_newest(own, restore)
  end
  if path == nil then
    if own.init_fn ~= nil then
      own.init_fn()
    end
  elseif own.step_counter ~= nil then
    own.last_step = counter_value(own.step_counter)
  end
  return path
end)

local MANAGER = "checkpoint directory max_to_keep=nil "
  .. "keep_checkpoint_every_n_hours=nil checkpoint_name='ckpt' "
  .. "step_counter=nil checkpoint_interval=nil init_fn=nil"

local function check_manager(ckpt, directory, max, hours, step, interval)
  local what = "CheckpointManager"
  if not is_checkpoint(ckpt) then
    errors.raise("TypeError", what .. ": checkpoint must be a "
      .. "tf.train.Checkpoint, got " .. text.describe(ckpt))
  end
  files.path(what, "directory", directory)
  if hours ~= nil and (type(hours) ~= "number" or hours < 0) then
    errors.raise("ValueError", what .. ": keep_checkpoint_every_n_hours must "
      .. "not be negative, got " .. text.describe(hours))
  end
  if max ~= nil then
    options.integer(what, "max_to_keep", max, 1)
  end
  if interval ~= nil then
    options.integer(what, "checkpoint_interval", interval, 1)
    if step == nil then
      errors.raise("ValueError", what
        .. ": checkpoint_interval needs a step_counter")
    end
  end
end

--- Keeps the last max_to_keep checkpoints of a folder (nil = all), and of the
--- older ones one every keep_checkpoint_every_n_hours. With
--- checkpoint_interval, saves only when step_counter has grown by that much.
--- Errors: ValueError, TypeError.
--- Source: tf.train.CheckpointManager
M.CheckpointManager = options.wrap("CheckpointManager", MANAGER,
  function(ckpt, directory, max, hours, name, step, interval, init_fn)
    check_manager(ckpt, directory, max, hours, step, interval)
    files.path("CheckpointManager", "checkpoint_name", name)
    if name:find("/", 1, true) then
      errors.raise("ValueError", ("CheckpointManager: checkpoint_name must be "
        .. "a name inside the directory, got %s"):format(text.quote(name)))
    end
    directory = #directory > 1 and directory:gsub("/+$", "") or directory
    local own = {
      checkpoint = ckpt, directory = directory, max_to_keep = max,
      keep_every_hours = hours, prefix = directory .. "/" .. name, kept = {},
      gone = {},
      step_counter = step, checkpoint_interval = interval, init_fn = init_fn,
      preserved = now(),
    }
    recover(own)
    return setmetatable({ _own = own }, Manager)
  end)

return M
