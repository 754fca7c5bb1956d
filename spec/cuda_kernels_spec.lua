--- Kernels of GPU devices against the CPU's, as programs use them: the stand-ins
--- of spec/support/cuda run them on a model of a GPU.
local standins = require "spec.support.standins"

local exists, on_standin = standins.exists, standins.run

-- far(a, b): their largest difference, relative; on both devices: what f gives
-- as a list of tensors.
local COMPARE = [[
local tf = require "tfdist"
local function far(a, b)
  a, b = tf.cast(a, "float64"), tf.cast(b, "float64")
  local by = tf.reduce_max(tf.abs(b)):item() + 1e-9
  return tf.reduce_max(tf.abs(tf.identity(a) - b)):item() / by
end
local function on_both(what, tolerance, f)
  local cpu, gpu = tf.device("/cpu:0", f), tf.device("/gpu:0", f)
  assert(#cpu > 0 and #cpu == #gpu)
  for i = 1, #cpu do
    assert(gpu[i].device:match "GPU:0", gpu[i].device)
    local apart = tf.device("/cpu:0", function() return far(gpu[i], cpu[i]) end)
    if not (apart <= tolerance) then
      print(what, i, apart)
    end
  end
end
]]

describe("kernels of a GPU on stand-ins #once", function()
  if not exists(standins.FOLDER .. "/libcudnn.so.9")
    or not exists(standins.CUDA) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  local function nothing(text)
    local r = on_standin(COMPARE .. text)
    assert.equal(0, r.code, r.err)
    assert.equal("", r.err)
    assert.equal("", r.out)
  end

  it("step optimizers on rows that are named twice", function()
    nothing [[
      local O = tf.keras.optimizers
      local makers = {
        SGD = { {}, { momentum = 0.9 }, { momentum = 0.9, nesterov = true },
          { weight_decay = 0.1 } },
        Adam = { {}, { amsgrad = true } }, Adamax = { {} }, Nadam = { {} },
        RMSprop = { {}, { centered = true }, { momentum = 0.5 },
          { momentum = 0.5, centered = true } },
        Adagrad = { {} }, Adadelta = { {} }, Ftrl = { {} }, AdamW = { {} },
      }
      for name, options in pairs(makers) do
        for _, option in ipairs(options) do
          for _, dtype in ipairs { "float32", "float64" } do
            on_both(name .. " " .. dtype, 1e-5, function()
              option.learning_rate = 0.1
              local opt = O[name](option)
              local v = tf.Variable(tf.reshape(tf.range(24, { dtype = dtype })
                / 10, { 8, 3 }))
              for step = 1, 3 do
                local values = tf.reshape(tf.range(12, { dtype = dtype }) - 5,
                  { 4, 3 }) * step
                opt:apply_gradients({ tf.IndexedSlices(values, { 6, 1, 6, step },
                  { 8, 3 }) }, { v })
              end
              return { v:read_value() }
            end)
          end
        end
      end
    ]]
  end)

  it("name the row that is out of range, and leave the variable", function()
    local r = on_standin [[
      local tf = require "tfdist"
      tf.device("/gpu:0", function()
        local v = tf.Variable(tf.ones { 2, 2 })
        local ok, e = pcall(function()
          tf.keras.optimizers.SGD(0.5):apply_gradients(
            { tf.IndexedSlices(tf.ones { 2, 2 }, { 0, 5 }, { 2, 2 }) }, { v })
          v:read_value():totable()
        end)
        print(ok, e.kind, e.message)
        print(tf.reduce_sum(v):item())
      end)
    ]]
    assert.equal(0, r.code, r.err)
    assert.matches("^false\tInvalidArgument\tupdate_sgd: indices%[1%] = 5 is "
      .. "outside %[0, 2%)", r.out)
    assert.matches("\n4.0\n$", r.out)
  end)

  it("compute recurrent layers of half types and their gradients", function()
    nothing [[
      for _, dtype in ipairs { "float16", "bfloat16" } do
        for _, layer in ipairs { "LSTM", "GRU" } do
          on_both(layer .. " " .. dtype, dtype == "float16" and 4e-3 or 3e-2,
            function()
              tf.random.set_seed(5)
              local l = tf.keras.layers[layer](4, { return_sequences = true,
                recurrent_initializer = "glorot_uniform",
                dtype = dtype })
              local x = tf.cast(tf.random.stateless_normal({ 3, 5, 2 }, { 1, 2 }),
                dtype)
              l:build { 3, 5, 2 }
              local tape, y = tf.GradientTape(function(t)
                t:watch(x)
                local y = l(x)
                return tf.reduce_sum(y * y), y
              end)
              local wanted = { x }
              for i, v in ipairs(l.trainable_variables) do wanted[i + 1] = v end
              local got = tape:gradient(y, wanted)
              got[#got + 1] = y
              return got
            end)
        end
      end
    ]]
  end)

  it("convolve volumes, and give their gradients", function()
    nothing [[
      on_both("conv3d", 1e-5, function()
        local x = tf.random.stateless_normal({ 2, 4, 5, 6, 3 }, { 1, 2 })
        local w = tf.random.stateless_normal({ 3, 2, 3, 3, 4 }, { 3, 4 })
        local tape, y = tf.GradientTape(function(t)
          t:watch { x, w }
          local y = tf.nn.conv3d(x, w, { 1, 2, 1, 2, 1 }, "SAME")
          return tf.reduce_sum(y * y)
        end)
        local got = tape:gradient(y, { x, w })
        got[3] = y
        return got
      end)
    ]]
  end)

  it("add up more than a launch takes", function()
    nothing [[
      for _, dtype in ipairs { "float32", "int32" } do
        on_both("add_n " .. dtype, 0, function()
          local list = {}
          for i = 1, 40 do
            list[i] = tf.cast(tf.constant { 0.1 * i, i * i, -i / 3, 50 / i },
              dtype)
          end
          return { tf.add_n(list) }
        end)
      end
    ]]
  end)

  it("say what is wrong with counts, permutations and logits", function()
    local r = on_standin [[
      local tf = require "tfdist"
      local function fails(f)
        local ok, e = pcall(function() return f():totable() end)
        print(ok, e.kind, e.message)
      end
      local function whole(list)
        return tf.constant(list, { dtype = "int32" })
      end
      tf.device("/gpu:0", function()
        fails(function()
          return tf.math.bincount(whole { 1, 2, -7 }, { minlength = 4,
            maxlength = 4 })
        end)
        fails(function() return tf.math.invert_permutation(whole { 2, 1, 1 }) end)
        fails(function() return tf.math.invert_permutation(whole { 2, 3, 1 }) end)
        fails(function()
          return tf.random.stateless_categorical(tf.constant { { 0, 1 },
            { -math.huge, -math.huge } }, 3, { 1, 2 })
        end)
        print(tf.reduce_sum(tf.ones { 3 }):item())
      end)
    ]]
    assert.equal(0, r.code, r.err)
    assert.equal("false\tInvalidArgument\tbincount: arr holds -7 at position 2; "
      .. "expected 0 or more\n"
      .. "false\tInvalidArgument\tinvert_permutation: 1 occurs twice in x\n"
      .. "false\tInvalidArgument\tinvert_permutation: x[1] = 3 is outside [0, 3)\n"
      .. "false\tInvalidArgument\tstateless_categorical: row 1 of logits has no "
      .. "finite value; every row needs a class that can be drawn\n3.0\n",
      (r.out:gsub("\n +", "\n")))
  end)
end)
