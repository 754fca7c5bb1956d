--- Whole files, and what reads them: for those who damage them.
---
--- `list` holds entries of name, content, read(path), which may return anything
--- or raise an error object of one of `kinds` (DataLoss by default) that names
--- the file (unless `nameless`), `rebuild(content)` for what is read with a
--- right checksum only, and `extension` or `file` when the name matters.
--- `checked`: checksums cover every byte, so that no change goes unnoticed.
local checkpoint = require "tfdist.train.checkpoint"
local errors = require "tfdist.base.errors"
local events = require "tfdist.io.events"
local files = require "spec.support.files"
local json = require "tfdist.core.json"
local raw = require "tfdist.core.raw"
local run_events = require "tfdist.host.commands.events"
local slurm = require "tfdist.distribute.cluster.slurm"
local tf = require "tfdist"
local tf_config = require "tfdist.distribute.cluster.tf_config"

local M = { list = {} }

local number = files.little

local function add(entry)
  M.list[#M.list + 1] = entry
end

local function take_all(data)
  local iterator = data:iter()
  for _ = 1, 100 do
    if iterator:get_next_as_optional():has_value() == false then break end
  end
  iterator:close()
end

--- What `write(path)` puts into a new file.
local function written(write)
  local path = os.tmpname()
  write(path)
  local content = tf.io.read_file(path)
  os.remove(path)
  return content
end

-- NumPy ----------------------------------------------------------------------

local ARRAY_KINDS = { DataLoss = true, NotImplementedError = true }

local function npy(head, body)
  return "\147NUMPY\1\0" .. number(#head, 2) .. head .. body
end

local function array(...)
  local values = { ... }
  return written(function(path) tf.io.write_npy(path, values) end)
end

local arrays = {
  array({ 1, 2, 3 }), array(true, false),
  npy("{'descr': '>i4', 'fortran_order': True, 'shape': (2, 2), }",
    ("\0\0\0\1"):rep(4)),
  npy("{'descr': '|u1', 'fortran_order': False, 'shape': (), }", "\7"),
}

for _, content in ipairs(arrays) do
  add { name = "npy", content = content, read = tf.io.read_npy,
    kinds = ARRAY_KINDS }
end

-- Two compressed arrays, as numpy.savez_compressed writes them.
local COMPRESSED = ""
  .. "504b0304140000000800000021004fe9002a550000009800000005001400612e6e707901"
  .. "001000980000000000000055000000000000009bec17ea1b10c9c850c650ad9e925a9c5c"
  .. "a46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416"
  .. "a402f91a463a0ac69a3a0ab50a64032e063068b007120e4004c40d40bcc00100504b0304"
  .. "140000000800000021001d527ae9460000008000000005001400652e6e70790100100080"
  .. "0000000000000046000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a0"
  .. "6e9369a4aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a"
  .. "063a0a469a3a0ab50a64032e00504b01021403140000000800000021004fe9002a550000"
  .. "0098000000050000000000000000000000800100000000612e6e7079504b010214031400"
  .. "00000800000021001d527ae9460000008000000005000000000000000000000080018c00"
  .. "0000652e6e7079504b0506000000000200020066000000090100000000"

local function from_hex(hex)
  return (hex:gsub("%x%x", function(pair)
    return string.char(tonumber(pair, 16))
  end))
end

for _, content in ipairs { files.stored_zip("a.npy", arrays[1]),
  from_hex(COMPRESSED) } do
  add { name = "npz", content = content, read = tf.io.read_npz,
    kinds = ARRAY_KINDS }
end

-- Text -----------------------------------------------------------------------

add { name = "json", content = '{"a":[1,-2.5e3,true,null,"\\u00e9\\n"],'
  .. '"b":{"c":[],"d":{}}}', kinds = { ValueError = true },
  read = function(path)
    local value = json.decode(tf.io.read_file(path), path)
    local text = json.encode(value)
    assert(json.encode(json.decode(text)) == text)
  end }

local function csv(defaults, settings)
  return function(path)
    take_all(tf.data.experimental.CsvDataset(path, defaults, settings))
  end
end

local ROWS = { DataLoss = true, InvalidArgument = true }

add { name = "csv", content = 'x,y,z\n1,2.5,"a,b"\r\n-3,,"say ""hi""\nyou"\n',
  kinds = ROWS, read = csv({ "int32", 9, "none" }, { header = true }) }
add { name = "csv", content = "1;2;3\n4;NA;1e9\n", kinds = ROWS,
  read = csv({ "int64", 7 }, { select_cols = { 0, 1 }, field_delim = ";",
    na_value = "NA" }) }
add { name = "csv", content = "a,b,y\n1,u,0\n2,v,1\n",
  kinds = { DataLoss = true, InvalidArgument = true, ValueError = true },
  read = function(path)
    take_all(tf.data.experimental.make_csv_dataset(path, 2, {
      column_defaults = { 0.5, "string", "int32" }, label_name = "y",
      num_epochs = 1, shuffle = false }))
  end }

-- Clusters -------------------------------------------------------------------

-- What comes by the environment names that in its errors, and no file.
local function cluster(name, content, read, kinds)
  add { name = name, content = content, nameless = true, read = function(path)
    read(tf.io.read_file(path))
  end, kinds = kinds or { ValueError = true } }
end

cluster("TF_CONFIG", '{"cluster":{"chief":["a:1"],"worker":["10.0.0.2:2222",'
  .. '"[::1]:65535"],"ps":{"0":"p0:1","3":"p3:1"}},"task":{"type":"worker",'
  .. '"index":1},"rpc_layer":"grpc"}', tf_config.read)
cluster("nodes of Slurm", "n[1-2],rack[01-03]m[5,7-9],x", slurm.expand_hosts)
cluster("tasks of Slurm", "3(x2),2,1(x65000)", slurm.expand_counts)

local resolvers = tf.distribute.cluster_resolver
local LISTED = { ValueError = true, TypeError = true, RuntimeError = true }

cluster("pods", '{"items":[{"metadata":{"name":"tf-0","labels":{"job-name":'
  .. '"tensorflow"}},"status":{"phase":"Running","hostIP":"10.0.0.1"}}]}',
  function(content)
    resolvers.KubernetesClusterResolver { override_client = function()
      return content
    end }:cluster_spec()
  end, LISTED)
cluster("instances", '[{"name":"a","status":"RUNNING","zone":"x/zones/z",'
  .. '"metadata":{"items":[{"key":"created-by","value":"x/'
  .. 'instanceGroupManagers/g"}]},"networkInterfaces":[{"networkIP":"10.1.2.3"'
  .. '}]}]', function(content)
    resolvers.GCEClusterResolver { instance_group = "g",
      override_client = function() return content end }:cluster_spec()
  end, LISTED)

-- Checkpoints ----------------------------------------------------------------

local SAFETENSORS = ".safetensors"

local function objects()
  local v = tf.Variable { 1, 2 }
  return tf.train.Checkpoint { v = v, list = { tf.Variable(3) },
    opt = tf.keras.optimizers.SGD { learning_rate = 1, momentum = 0.5 },
    input = tf.data.Dataset.range(4):shuffle(2, { seed = 1 }):iter() }
end

local saved = written(function(path)
  local ckpt = objects()
  ckpt.opt:apply_gradients({ tf.constant { 1, 1 } }, { ckpt.v })
  ckpt:write(path)
  os.rename(path .. SAFETENSORS, path)
end)

local RESTORING = { DataLoss = true, InvalidArgument = true,
  NotImplementedError = true, ValueError = true }

local function restore(path)
  local ckpt = objects()
  local status = ckpt:read(path)
  pcall(status.assert_consumed, status)
  tostring(status)
  for _, entry in ipairs(checkpoint.list(path)) do
    tf.train.load_variable(path, entry.name)
  end
end

add { name = "checkpoint", extension = SAFETENSORS, content = saved,
  read = restore, checked = true }

-- The same without its checksums, as a file of others; only the graph changes.
local function foreign(graph)
  local header = ('{"__metadata__":{"tfdist.graph":%s},%s,%s,%s,%s,%s}'):format(
    json.encode(graph:gsub("[\128-\255]", "?"):gsub("%z", "0")),
    '"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}',
    '"list/0":{"dtype":"F32","shape":[],"data_offsets":[8,12]}',
    '"m":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}',
    '"i":{"dtype":"I64","shape":[],"data_offsets":[20,28]}',
    '"b":{"dtype":"BOOL","shape":[2],"data_offsets":[28,30]}')
  return number(#header, 8) .. header .. ("\0"):rep(30)
end

add { name = "graph", extension = SAFETENSORS, rebuild = foreign,
  kinds = RESTORING, read = restore, content = json.encode {
    version = 1, nodes = {
      { children = { v = 1, list = 2, opt = 4, input = 5 } },
      { children = {}, key = "v" }, { children = { ["0"] = 3 } },
      { children = {}, key = "list/0" },
      { children = { iterations = 6 },
        slots = { { variable = 1, name = "momentum", node = 7 } } },
      { children = {}, state = { version = 1, count = 2,
        seeds = { { seed = 1, epoch = 0 } } } },
      { children = {}, key = "i" }, { children = {}, key = "m" },
    } } }

add { name = "header", extension = SAFETENSORS, rebuild = function(header)
  return number(#header, 8) .. header .. ("\0"):rep(12)
end, read = restore, kinds = RESTORING,
  content = '{"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
    .. '"list/0":{"dtype":"F32","shape":[],"data_offsets":[8,12]}}' }

add { name = "state", content = json.encode {
  model_checkpoint_path = "ckpt-2", last_preserved_timestamp = 12.5,
  all_model_checkpoint_paths = { "ckpt-1", "ckpt-2" },
  all_model_checkpoint_timestamps = { 1, 2 }, removing = { "ckpt-0" } },
  -- Damage is a warning: the folder counts as one without checkpoints.
  kinds = {}, file = "checkpoint", read = function(path)
    local folder = path:match "^(.*)/"
    tf.train.get_checkpoint_state(folder)
    tf.train.latest_checkpoint(folder)
    tostring(tf.train.CheckpointManager(tf.train.Checkpoint {}, folder,
      { max_to_keep = 2 }))
  end }

-- Caches, records, events ----------------------------------------------------

add { name = "cache", content = written(function(path)
  os.remove(path)
  local data = tf.data.Dataset.from_tensor_slices {
    x = { { 1, 2 }, { 3, 4 } }, s = { "a", "bc" } }
  for _ in data:cache(path):iter() do end -- luacheck: ignore 542
end), read = function(path)
  take_all(tf.data.Dataset.range(3):cache(path))
end }

local EXAMPLE = tf.io.serialize_example { x = { 1.5, 2 }, s = "text",
  n = tf.constant({ 1, 300 }, "int64") }

add { name = "example", content = EXAMPLE, nameless = true,
  kinds = { DataLoss = true, InvalidArgument = true }, read = function(path)
    local data = tf.io.read_file(path)
    tf.io.parse_single_example(data, {
      x = tf.io.FixedLenFeature({ 2 }, "float32"),
      s = tf.io.FixedLenFeature({}, "string", "none"),
      n = tf.io.VarLenFeature "int64" })
    local again = tf.train.Example.FromString(data):SerializeToString()
    tf.train.Example.FromString(again)
  end }

-- Records with right checksums around damaged contents.
local function framed(content)
  return written(function(path)
    local writer = tf.io.TFRecordWriter(path)
    writer:write(events.version(1))
    writer:write(content)
    writer:close()
  end)
end

local function show_events(path)
  local saved_print, saved_io = print, rawget(io, "stderr")
  rawset(_G, "print", function() end)
  rawset(io, "stderr", { write = function() end })
  local ok, e = pcall(function()
    run_events("ls", path)
    run_events("plot", path)
  end)
  rawset(_G, "print", saved_print)
  rawset(io, "stderr", saved_io)
  if not ok then error(e, 0) end
end

local SCALAR = events.summary(2.5, 3, "loss", "scalars",
  events.numbers("float32", { 1.5 }, {}), "text")

add { name = "event", content = SCALAR, rebuild = framed, read = show_events }
add { name = "events", content = framed(SCALAR), read = show_events }

for _, kind in ipairs { "", "GZIP", "ZLIB" } do
  add { name = "records " .. kind, checked = kind == "",
    content = written(function(path)
      local writer = tf.io.TFRecordWriter(path, kind)
      writer:write "first"
      writer:write(EXAMPLE)
      writer:close()
    end),
    read = function(path)
      take_all(tf.data.TFRecordDataset(path, { compression_type = kind }))
    end }
end

add { name = "idx", content = "\0\0\12\2\0\0\0\1\0\0\0\2abcdefgh",
  read = raw.read_idx }

-- Reading them ---------------------------------------------------------------

local BAD_WORDS = { "attempt to", "lua/tfdist", "table: 0x", "bad argument",
  "not enough memory", "stack overflow", "number has no integer" }

-- What is wrong with an error, nil when nothing is.
local function problem_of(sample, path, e)
  if not errors.is_error(e) then
    return ("raised a %s: %s"):format(type(e), tostring(e))
  end
  local kinds = sample.kinds or { DataLoss = true }
  if not kinds[e.kind] then
    return "raised " .. tostring(e)
  elseif not sample.nameless and not e.message:find(path, 1, true) then
    return "does not name the file: " .. tostring(e)
  elseif #e.message > 2000 then
    return ("a message of %d bytes"):format(#e.message)
  end
  for _, words in ipairs(BAD_WORDS) do
    if e.message:find(words, 1, true) then return "wording: " .. tostring(e) end
  end
end

--- Read a sample with this content in a file of the folder.
---@return boolean fine  no error was raised
---@return string? problem  what must not be
function M.try(sample, folder, content)
  local path = folder .. "/" .. (sample.file or "file" .. (sample.extension
    or ""))
  local file = assert(io.open(path, "wb"))
  file:write(sample.rebuild and sample.rebuild(content) or content)
  file:close()
  local ok, e, message = pcall(sample.read, path)
  os.remove(path)
  if content == sample.content and (not ok or e == nil and message ~= nil) then
    return false, "a whole file: " .. tostring(ok and message or e)
  end
  return ok, not ok and problem_of(sample, path, e) or nil
end

return M
