-- What a fit that ends in the middle leaves, and where the next one goes on.
local R = require "spec.support.replicas"
local files = require "spec.support.files"
local tf = require "tfdist"

local C, L = tf.keras.callbacks, tf.keras.layers

describe("a fit that was interrupted", function()
  local folder
  R.leaks(before_each, after_each)
  before_each(function()
    folder = files.place()
  end)
  after_each(function()
    os.execute("rm -rf " .. folder)
  end)

  -- Each batch of x = i adds i / 16 to the weight, exactly.
  local function model()
    local m = tf.keras.Sequential { L.Dense(1, { use_bias = false,
      kernel_initializer = "zeros", input_shape = { 1 } }) }
    m:compile { optimizer = tf.keras.optimizers.SGD(0.0625),
      loss = function(_, y_pred)
        return tf.reshape(y_pred, { -1 }) * -1
      end }
    return m
  end

  -- Batches 0..4 of x = 0..4, as tensors or as a data set.
  local function data(kind)
    local x = tf.constant { { 0 }, { 1 }, { 2 }, { 3 }, { 4 } }
    if kind == "arrays" then
      return x, tf.zeros { 5, 1 }
    end
    local ds = tf.data.Dataset.from_tensor_slices({ x, tf.zeros { 5, 1 } })
      :batch(1)
    return kind == "filter" and ds:filter(function()
      return true
    end) or ds
  end

  -- Train two epochs with a backup every `freq` batches; end before batch
  -- `stop` of the first. Returns the batches made, by epoch.
  local function run(m, kind, freq, stop)
    local x, y = data(kind)
    local made = {}
    local ok, e = pcall(m.fit, m, x, y, { batch_size = kind == "arrays" and 1
      or nil, epochs = 2, verbose = 0, shuffle = false, callbacks = {
      C.BackupAndRestore { backup_dir = folder, save_freq = freq }, {
        on_epoch_begin = function(_, epoch)
          made[#made + 1] = "epoch " .. epoch
        end,
        on_train_batch_begin = function(_, batch)
          if batch == stop then
            error("pulled the plug", 0)
          end
          made[#made + 1] = batch
        end } } })
    assert.equal(stop == nil, ok, tostring(e))
    return made
  end

  for _, kind in ipairs { "arrays", "data set", "filter" } do
    it("goes on at the batch after its backup, with " .. kind, function()
      run(model(), kind, 2, 3)
      local m = model()
      assert.same({ "epoch 0", 2, 3, 4, "epoch 1", 0, 1, 2, 3, 4 },
        run(m, kind, 2))
      assert.equal(10, m.optimizer.iterations:read_value():item())
      assert.equal(20 / 16, m.variables[1]:read_value():item())
    end)

    it("goes on with the next epoch after the last batch, with " .. kind,
      function()
        local m = model()
        local x, y = data(kind)
        assert.is_false((pcall(m.fit, m, x, y, { verbose = 0, epochs = 2,
          batch_size = kind == "arrays" and 1 or nil, shuffle = false,
          callbacks = {
            C.BackupAndRestore { backup_dir = folder, save_freq = 5 },
            { on_epoch_end = function()
              error("pulled the plug", 0)
            end } } })))
        m = model()
        assert.same({ "epoch 1", 0, 1, 2, 3, 4 }, run(m, kind, 5))
        assert.equal(20 / 16, m.variables[1]:read_value():item())
      end)
  end

  it("has written what TensorBoard shows of the epochs before", function()
    local found = {}
    local x, y = data "arrays"
    model():fit(x, y, { epochs = 2, verbose = 0, callbacks = {
      C.TensorBoard { log_dir = folder },
      { on_epoch_begin = function(_, epoch)
        if epoch == 1 then
          local pipe = io.popen("cat " .. folder .. "/train/*")
          found[1] = pipe:read "*a"
          pipe:close()
        end
      end } } })
    assert.matches("epoch_loss", found[1], 1, true)
  end)
end)
