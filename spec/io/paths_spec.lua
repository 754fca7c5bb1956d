-- Paths with zero bytes, which the system would cut there, empty ones, and
-- files without an end.
local files = require "spec.support.files"
local leaks = require "spec.support.leaks"
local refused = require "spec.support.refused"
local tf = require "tfdist"

describe("paths with zero bytes and empty ones", function()
  leaks(before_each, after_each)

  -- Calls by name, given a path that is another file's up to its zero byte.
  local CALLS = {
    read_file = tf.io.read_file,
    write_file = function(path) tf.io.write_file(path, "new") end,
    matching_files = tf.io.matching_files,
    read_npy = tf.io.read_npy,
    read_npz = tf.io.read_npz,
    write_npy = function(path) tf.io.write_npy(path, tf.zeros { 1 }) end,
    TFRecordWriter = tf.io.TFRecordWriter,
    ["gfile.exists"] = tf.io.gfile.exists,
    ["gfile.isdir"] = tf.io.gfile.isdir,
    ["gfile.listdir"] = tf.io.gfile.listdir,
    ["gfile.glob"] = tf.io.gfile.glob,
    ["gfile.makedirs"] = tf.io.gfile.makedirs,
    ["gfile.mkdir"] = tf.io.gfile.mkdir,
    ["gfile.remove"] = tf.io.gfile.remove,
    ["gfile.rename from"] = function(path)
      tf.io.gfile.rename(path, files.place(), { overwrite = true })
    end,
    ["gfile.rename to"] = function(path)
      tf.io.gfile.rename(files.place(), path, { overwrite = true })
    end,
    latest_checkpoint = tf.train.latest_checkpoint,
    get_checkpoint_state = tf.train.get_checkpoint_state,
    update_checkpoint_state = function(path)
      tf.train.update_checkpoint_state(path, "x")
    end,
    list_variables = tf.train.list_variables,
    load_variable = function(path) tf.train.load_variable(path, "v") end,
    CheckpointManager = function(path)
      tf.train.CheckpointManager(tf.train.Checkpoint {}, path)
    end,
    ["CheckpointManager name"] = function(path)
      tf.train.CheckpointManager(tf.train.Checkpoint {}, files.place(),
        { checkpoint_name = path })
    end,
    ["Checkpoint.save"] = function(path) tf.train.Checkpoint {}:save(path) end,
    ["Checkpoint.write"] = function(path)
      tf.train.Checkpoint {}:write(path)
    end,
    ["Checkpoint.read"] = function(path) tf.train.Checkpoint {}:read(path) end,
    ["Checkpoint.restore"] = function(path)
      tf.train.Checkpoint {}:restore(path)
    end,
    save_weights = function(path)
      tf.keras.Sequential { tf.keras.layers.Dense(1) }:save_weights(path)
    end,
    load_weights = function(path)
      tf.keras.Sequential { tf.keras.layers.Dense(1) }:load_weights(path)
    end,
    TFRecordDataset = tf.data.TFRecordDataset,
    TextLineDataset = function(path)
      tf.data.TextLineDataset { "/dev/null", path }
    end,
    FixedLengthRecordDataset = function(path)
      tf.data.FixedLengthRecordDataset(path, 1)
    end,
    CsvDataset = function(path)
      tf.data.experimental.CsvDataset(path, { "int32" })
    end,
    make_csv_dataset = function(path)
      tf.data.experimental.make_csv_dataset(path, 1)
    end,
    list_files = tf.data.Dataset.list_files,
    cache = function(path) tf.data.Dataset.range(2):cache(path) end,
    create_file_writer = tf.summary.create_file_writer,
    ["create_file_writer suffix"] = function(path)
      tf.summary.create_file_writer("/tmp", { filename_suffix = path })
    end,
    print = function(path)
      tf.print("x", { output_stream = "file://" .. path })
    end,
    ModelCheckpoint = tf.keras.callbacks.ModelCheckpoint,
    CSVLogger = tf.keras.callbacks.CSVLogger,
    BackupAndRestore = tf.keras.callbacks.BackupAndRestore,
    TensorBoard = tf.keras.callbacks.TensorBoard,
    ["mnist.load_data"] = tf.keras.datasets.mnist.load_data,
    ["fashion_mnist.load_data"] = tf.keras.datasets.fashion_mnist.load_data,
  }

  -- Patterns may find nothing, what is asked for may not be there, and pieces
  -- of names may be empty.
  local MAY_BE_EMPTY = { matching_files = true, list_files = true, cache = true,
    ["create_file_writer suffix"] = true, print = true }

  for name, call in pairs(CALLS) do
    if not MAY_BE_EMPTY[name] and not name:find "^gfile" then
      it("not empty: " .. name, function()
        if type(call) == "function" then refused.help(call) end
        refused.check(name, "ValueError", { "is empty; expected" },
          function() call "" end)
      end)
    end

    it(name, function()
      local place = files.place()
      files.write(place, "kept")
      if type(call) == "function" then refused.help(call) end
      refused.check(name, "ValueError", { "must not contain zero bytes" },
        function() call(place .. "\0y") end)
      assert.are.equal("kept", files.read(place))
      os.remove(place)
    end)
  end

  it("in a state file make it none", function()
    local dir, notice = files.place(), require "tfdist.base.notice"
    tf.io.write_file(dir .. "/checkpoint", '{"model_checkpoint_path": '
      .. '"x\\u0000y", "all_model_checkpoint_paths": []}')
    local warn, count = notice.warn, 0
    notice.warn = function() count = count + 1 end
    local latest = tf.train.latest_checkpoint(dir)
    notice.warn = warn
    os.execute("rm -r " .. dir)
    assert.is_nil(latest)
    assert.are.equal(1, count)
  end)
end)

describe("files without an end", function()
  leaks(before_each, after_each)
  local function read(name, path) return tf.io[name](path) end
  refused.help(read)

  -- What messages say of what has no end, and of a file of 1 TiB of zeros.
  for name, want in pairs {
    read_file = { "DataLoss", "1 GiB or more", "1 GiB or more" },
    read_npy = { "DataLoss", "not an npy file", "not an npy file" },
    read_npz = { "FailedPrecondition", "not a plain file", "not a zip file" },
  } do
    it("are given up, after 1 GiB at most #once: " .. name, function()
      refused.check(name, want[1], { "/dev/zero", want[2] },
        function() read(name, "/dev/zero") end)
    end)

    it("over 1 GiB are not begun: " .. name, function()
      local place = files.place()
      local f = assert(io.open(place, "wb"))
      f:seek("set", 2 ^ 40)
      f:write "x"
      f:close()
      refused.check(name, "DataLoss", { place, want[3] },
        function() read(name, place) end)
      os.remove(place)
    end)
  end

  it("whose length nothing says are read whole", function()
    assert.is_true(#tf.io.read_file "/proc/self/status" > 100)
    assert.are.equal("", tf.io.read_file "/dev/null")
  end)

  it("folders cannot be read", function()
    local content, why, kind = tf.io.read_file "/tmp"
    assert.is_nil(content)
    assert.is_truthy(why:find("/tmp", 1, true))
    assert.are.equal("FailedPrecondition", kind)
  end)
end)
