--- tf.config, tf.device, tf.tidy, tf.print and the top level.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"
local leaks = require "spec.support.leaks"
local expect = require "spec.support.expect"

local caught = expect.caught

describe("tf.config", function()
  it("lists one processor and its logical devices", function()
    local physical = tf.config.list_physical_devices "CPU"
    assert.equal(1, #physical)
    assert.equal("/physical_device:CPU:0", physical[1].name)
    assert.equal("CPU", physical[1].device_type)
    assert.same({}, tf.config.list_physical_devices "GPU")
    local logical = tf.config.list_logical_devices()
    assert.equal(raw.device_count "CPU", #logical)
    assert.equal("/device:CPU:0", logical[1].name)
    assert.equal("CPU", logical[1].device_type)
    assert.equal("CPU /device:CPU:0", tostring(logical[1]))
  end)

  it("is fixed once a device was used", function()
    tf.constant(1):item()
    local e = caught(tf.config.set_logical_device_configuration, "CPU", 2)
    assert.equal("RuntimeError", e.kind)
    assert.matches("^config.set_logical_device_configuration: must come before",
      e.message)
    assert.equal("RuntimeError", caught(tf.config.set_queue_mode, "inline")
      .kind)
    assert.equal("RuntimeError", caught(
      tf.config.threading.set_intra_op_parallelism_threads, 1).kind)
  end)

  it("checks what it is given", function()
    assert.equal("ValueError", caught(tf.config.set_queue_mode, "fast").kind)
    assert.equal("ValueError", caught(
      tf.config.set_logical_device_configuration, "GPU:0", 2).kind)
    assert.equal("ValueError", caught(
      tf.config.set_logical_device_configuration, "CPU", 1.5).kind)
    assert.equal("TypeError", caught(tf.config.set_logical_device_configuration,
      "CPU").kind)
    assert.equal("ValueError", caught(tf.config.LogicalDeviceConfiguration,
      { memory_limit = 0 }).kind)
    assert.equal("ValueError", caught(
      tf.config.set_logical_device_configuration, "CPU",
      { tf.config.LogicalDeviceConfiguration { memory_limit = 100 } }).kind)
    assert.equal("TypeError", caught(
      tf.config.set_logical_device_configuration, "CPU", { 1 }).kind)
    for _, name in ipairs { "XCPU:0", "my CPU:0", "/job:a/device:CPU:0" } do
      local e = caught(tf.config.get_logical_device_configuration, name)
      assert.equal("ValueError", e.kind)
      assert.matches("^config%.get_logical_device_configuration: no physical "
        .. "device \"" .. name .. "\"; there is", e.message)
    end
    for _, name in ipairs { "CPU", "/CPU:0", "cpu:0", "/device:CPU:0",
      "/physical_device:CPU:0" } do
      assert.is_true(tf.config.experimental.get_memory_growth(name))
    end
    -- Plain tables are settings.
    assert.matches("CPU devices have no memory_limit", tostring(caught(
      tf.config.set_logical_device_configuration, "CPU",
      { { memory_limit = 100 }, {} })))
  end)

  it("counts bytes, live and at the peak", function()
    raw.collect()
    local before = tf.config.experimental.get_memory_info "CPU:0"
    tf.config.experimental.reset_memory_stats "CPU:0"
    local t = tf.constant(1, { shape = { 1000, 1000 } })
    t:wait()
    local during = tf.config.experimental.get_memory_info "CPU:0"
    assert.is_true(during.current >= before.current + 4e6)
    t:release()
    raw.collect()
    local after = tf.config.experimental.get_memory_info "CPU:0"
    assert.is_true(after.current < during.current)
    assert.is_true(after.peak >= during.current)
    tf.config.experimental.reset_memory_stats "CPU:0"
    local reset = tf.config.experimental.get_memory_info "CPU:0"
    assert.equal(reset.current, reset.peak)
    assert.equal("InvalidArgument", caught(
      tf.config.experimental.get_memory_info, "GPU:0").kind)
  end)
end)

describe("tf.device", function()
  leaks(before_each, after_each)
  local last = tf.config.list_logical_devices()
  last = last[#last].name

  it("places what is made inside and returns the results", function()
    local t, three = tf.device(last, function()
      return tf.constant(1), 3
    end)
    assert.truthy(t.device:find(last, 1, true))
    assert.equal(3, three)
  end)

  it("ends on errors and leaves the stack as it was", function()
    local depth = raw.device_depth()
    local e = caught(tf.device, last, function()
      tf.device "CPU:0"
      error({ mine = true }, 0)
    end)
    assert.same({ mine = true }, e)
    assert.equal(depth, raw.device_depth())
  end)

  it("without a function gives an object to close", function()
    local depth = raw.device_depth()
    local scope = tf.device(last)
    assert.equal(depth + 1, raw.device_depth())
    scope:close()
    scope:close()
    assert.equal(depth, raw.device_depth())
  end)

  it("names the devices there are", function()
    local e = caught(tf.device, "/cpu:77", print)
    assert.equal("InvalidArgument", e.kind)
    assert.truthy(e.message:find("/cpu:77", 1, true))
    assert.truthy(tostring(e):find("/cpu:0", 1, true))
    assert.equal("TypeError", caught(tf.device, 1, print).kind)
  end)

  it("nil lifts outer rules", function()
    tf.device(last, function()
      tf.device(nil, function()
        assert.truthy(tf.constant(1).device:find("CPU:0$"))
      end)
    end)
  end)
end)

describe("tf.tidy", function()
  leaks(before_each, after_each)

  it("releases what was made inside, except the results", function()
    local inner, outer
    local t, list = tf.tidy(function()
      inner = tf.constant { 1, 2 }
      outer = inner:reshape { 2, 1 }
      return tf.constant(7), { a = { tf.constant(8) } }
    end)
    assert.is_true(raw.is_released(inner))
    assert.is_true(raw.is_released(outer))
    assert.equal(7, t:item())
    assert.equal(8, list.a[1]:item())
  end)

  it("keeps variables and what tf.keep marks", function()
    local v, kept
    tf.tidy(function()
      v = tf.Variable(3)
      kept = tf.keep(tf.constant(4))
    end)
    assert.equal(3, v:item())
    assert.equal(4, kept:item())
  end)

  it("keeps what optimizers and datasets hold for later", function()
    local v, optimizer = tf.Variable { 1, 2 }, tf.keras.optimizers.SGD(1)
    local rows, cached, whole
    tf.tidy(function()
      optimizer:apply_gradients({ tf.ones { 2 } }, { v })
      local values = tf.constant { 5, 6 }
      rows = tf.data.Dataset.from_tensor_slices(values)
      whole = tf.data.Dataset.from_tensors { 7, 8 }
      cached = tf.data.Dataset.from_tensor_slices { 1, 2, 3 }:cache()
      for _ in cached:iter() do end
    end)
    optimizer:apply_gradients({ tf.ones { 2 } }, { v })
    assert.same({ -1, 0 }, v:totable())
    assert.equal(2, optimizer.iterations:item())
    local sum = 0
    for _, dataset in ipairs { rows, cached } do
      for x in dataset:iter() do sum = sum + x:item() end
    end
    for x in whole:iter() do sum = sum + tf.reduce_sum(x):item() end
    assert.equal(5 + 6 + 1 + 2 + 3 + 7 + 8, sum)
  end)

  it("leaves tensors from outside alone", function()
    local t = tf.constant(1)
    tf.tidy(function()
      return t:reshape { 1 }
    end)
    assert.equal(1, t:item())
  end)

  it("nests: the outer one answers for what the inner one gave", function()
    local from_inner
    tf.tidy(function()
      from_inner = tf.tidy(function()
        return tf.constant(1)
      end)
      assert.equal(1, from_inner:item())
    end)
    assert.is_true(raw.is_released(from_inner))
  end)

  it("releases on errors too", function()
    local inside
    local e = caught(tf.tidy, function()
      inside = tf.constant(1)
      error({ mine = true }, 0)
    end)
    assert.same({ mine = true }, e)
    assert.is_true(raw.is_released(inside))
  end)

  it("minds only its own coroutine", function()
    local other
    local co = coroutine.wrap(function()
      other = tf.constant(5)
    end)
    tf.tidy(function()
      co()
    end)
    assert.equal(5, other:item())
  end)

  it("needs a function", function()
    assert.equal("TypeError", caught(tf.tidy, 1).kind)
    assert.equal("TypeError", caught(tf.keep, 1).kind)
  end)
end)

describe("tf.print", function()
  it("writes values and structures to any stream", function()
    local out = {}
    tf.print("a", 1, { tf.constant(2), x = true }, {
      output_stream = function(line) out[#out + 1] = line end,
      sep = "|", ["end"] = ".",
    })
    assert.same({ "a|1|{ 2, x = true }." }, out)
    assert.equal("ValueError", caught(tf.print, 1,
      { output_stream = "nowhere" }).kind)
  end)

  it("refuses options of other types, in traced functions too", function()
    for name, x in pairs { output_stream = 3, sep = {}, ["end"] = true } do
      local function fn() tf.print("a", { [name] = x }) end
      for _, run in ipairs { fn, tf.function_(fn) } do
        local e = caught(run)
        assert.equal("TypeError", e.kind)
        assert.is_truthy(e.message:find("print: " .. name .. " must be", 1,
          true), e.message)
      end
    end
  end)

  it("writes the values of variables, in structures too", function()
    local out = {}
    local v = tf.Variable(2.5)
    tf.print(v, { v, { a = v } }, {
      output_stream = function(line) out[#out + 1] = line end })
    assert.same({ "2.5 { 2.5, { a = 2.5 } }\n" }, out)
  end)
end)

describe("the top level", function()
  it("knows its version and mode", function()
    assert.equal(raw.version(), tf.__version__)
    assert.equal(raw.version(), tf.version.VERSION)
    assert.is_true(tf.executing_eagerly())
    assert.is_nil(tf.group(1, 2))
    assert.is_nil(tf.no_op())
    assert.equal("tfdist " .. raw.version(), tostring(tf))
  end)

  it("names error kinds", function()
    assert.equal("OutOfRange", tf.errors.OutOfRange)
    assert.equal("InvalidArgument", tf.errors.InvalidArgumentError)
    local ok, e = pcall(tf.errors.raise, "NotFound", "no such thing")
    assert.is_false(ok)
    assert.is_true(tf.errors.is_error(e))
    assert.equal(tf.errors.NotFound, tf.errors.kind(e))
  end)

  it("has the initializers of keras under TensorFlow's old names", function()
    for name, value in pairs { zeros = 0, ones = 1, constant = 0 } do
      assert.same({ value, value },
        tf[name .. "_initializer"]()({ 2 }):totable(), name)
    end
    assert.same({ 2 }, tf.random_normal_initializer()({ 2 }).shape)
    assert.same({ 2 }, tf.random_uniform_initializer()({ 2 }).shape)
  end)

  it("takes settings that are always on", function()
    local set = tf.config.experimental.set_memory_growth
    local device = tf.config.list_physical_devices("CPU")[1]
    set(device, true)
    assert.is_true(tf.config.experimental.get_memory_growth(device))
    local ok, e = pcall(set, device, false)
    assert.is_false(ok)
    assert.equal("NotImplementedError", e.kind)
    tf.config.experimental.enable_op_determinism()
  end)

  it("lets GPUs round to TF32, and not the CPU", function()
    local experimental = tf.config.experimental
    local before = experimental.tensor_float_32_execution_enabled()
    for _, on in ipairs { false, true, before } do
      experimental.enable_tensor_float_32_execution(on)
      assert.equal(on, experimental.tensor_float_32_execution_enabled())
      local x = 1 + 2 ^ -20 -- whole: TF32 is for GPUs
      assert.equal(x, tf.matmul(tf.constant { { x } }, tf.ones { 1, 1 })[0][0]
        :item())
    end
  end)

  it("is nil for names that TensorFlow does not have", function()
    assert.is_nil(tf.no_such_name)
    assert.is_nil(tf.math.no_such_name)
  end)

  it("publishes no op that the library lacks", function()
    local _ = tf.constant
    assert.same({}, require "tfdist.core.ops".unknown)
  end)

  it("lists its names for completion", function()
    local names = getmetatable(tf).__names()
    local seen = {}
    for _, name in ipairs(names) do
      seen[name] = true
    end
    for _, name in ipairs { "constant", "Variable", "config", "math" } do
      assert.is_true(seen[name], name)
    end
  end)
end)
