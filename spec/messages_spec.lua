--- What a first mistake is answered: an error object that says what to write.
local R = require "spec.support.replicas"
local base = require "tfdist.keras.callbacks.base"
local notice = require "tfdist.base.notice"
local refused = require "spec.support.refused"
local text = require "tfdist.base.text"
local tf = require "tfdist"

local D = tf.data.Dataset
local O = tf.keras.optimizers

local check = refused.check

describe("a second structure in the place of a name", function()
  local x, y = tf.ones { 4, 2 }, tf.zeros { 4 }

  it("is refused by data sets, which take one structure", function()
    for name, make in pairs {
      from_tensor_slices = D.from_tensor_slices, from_tensors = D.from_tensors,
    } do
      for _, labels in ipairs { y, { 0, 1, 0, 1 } } do
        check(name, "TypeError", { "Dataset." .. name, "name must be a string",
          "features and labels", name .. "({ X, Y })" }, function()
            local made = make(x, labels)
            return made
          end)
      end
    end
    check("from_tensors", "TypeError", {
      "from_tensors({ tf.constant(X), tf.constant(Y) })" }, function()
      local made = D.from_tensors({ 1.5 }, { 2.5 })
      return made
    end)
  end)

  it("is refused by methods, ops and classes", function()
    check("take", "TypeError", { "Dataset.take", "the number 3", "(count)" },
      function()
        local made = D.range(3):take(2, 3)
        return made
      end)
    check("abs", "TypeError", { "abs", "a Tensor", "(x)" }, function()
      local made = tf.abs(x, y)
      return made
    end)
    check("add_n", "TypeError", { "add_n", "add_n({ X, Y })" }, function()
      local made = tf.add_n(x, y)
      return made
    end)
    check("Mean", "TypeError", { "name must be a string", "the number 3" },
      function()
        local made = tf.keras.metrics.Mean { name = 3 }
        return made
      end)
  end)

  it("leaves names alone", function()
    assert.equal(2, D.range(3, { name = "r" }):take(2, "t"):cardinality())
    assert.equal(1, tf.abs(-1.0, "a"):item())
    assert.equal("m", tf.keras.metrics.Mean("m").name)
    assert.equal("mean", tf.keras.metrics.Mean().name)
  end)
end)

describe("several values in the place of one table", function()
  it("are refused with the table", function()
    check("reshape", "TypeError", { "reshape", "shape goes in as one table: "
      .. "{ 2, 3 }" }, function()
        local made = tf.ones { 6 }:reshape(2, 3)
        return made
      end)
    check("zeros", "TypeError", { "zeros", "{ 2, 3 }" }, function()
      local made = tf.zeros(2, 3)
      return made
    end)
    check("concat", "TypeError", { "list of tensors", "concat({ a, b }, ...)" },
      function()
        local made = tf.concat(tf.ones { 2 }, tf.ones { 2 })
        return made
      end)
    local dense = tf.keras.layers.Dense
    check("Sequential", "TypeError", { "several layers go in as one table" },
      function()
        local made = tf.keras.Sequential(dense(3), dense(2))
        return made
      end)
    check("apply_gradients", "TypeError", { "lists of gradients and variables",
      "({ gradient }, { variable })" }, function()
        local done = O.SGD():apply_gradients(tf.constant(1.0), tf.Variable(1.0))
        return done
      end)
  end)
end)

describe("a colon in the place of a dot", function()
  it("is told", function()
    local keras = tf.keras
    for what, fn in pairs {
      ["tf.nn.relu"] = function() return (tf.nn:relu(tf.ones { 2 })) end,
      ["tf.keras.layers"] = function() return (keras.layers:Dense(3)) end,
      ["tf.keras.optimizers"] = function() return (keras.optimizers:SGD(1)) end,
      ["tf.keras.Sequential"] = function()
        return (keras:Sequential { keras.layers.Dense(1) })
      end,
      ["tf.distribute"] = function()
        return (tf.distribute:MirroredStrategy())
      end,
      ["Dataset.range"] = function() return (D:range(3)) end,
      ["the module tf "] = function() return (tf:ones { 2 }) end,
    } do
      check(what, "TypeError", { what, "dot" }, fn)
    end
  end)
end)

describe("a class in the place of an object", function()
  local keras = tf.keras

  it("is refused, or used as Keras does", function()
    local model = keras.Sequential { keras.layers.Dense(1) }
    local x = tf.ones { 2, 1 }
    check("loss", "TypeError", { "the class MeanSquaredError",
      "MeanSquaredError(...) makes" }, function()
        model:compile { optimizer = "sgd", loss = keras.losses.MeanSquaredError }
      end)
    check("metric", "TypeError", { "the class MeanAbsoluteError" }, function()
      model:compile { optimizer = "sgd", loss = "mse",
        metrics = { keras.metrics.MeanAbsoluteError } }
      model:fit(x, x, { verbose = 0 })
    end)
    check("callback", "TypeError", { "entry 1 is the class EarlyStopping" },
      function()
        model:compile { optimizer = "sgd", loss = "mse" }
        model:fit(x, x, { verbose = 0,
          callbacks = { keras.callbacks.EarlyStopping } })
      end)
    check("layer", "TypeError", { "Sequential: entry 1 is the class Dense" },
      function()
        local made = keras.Sequential { keras.layers.Dense }
        return made
      end)
    local layer = keras.layers.Dense(2,
      { kernel_initializer = keras.initializers.Zeros })
    assert.same({ { 0, 0 }, { 0, 0 } }, layer(x):totable())
  end)
end)

describe("one example in the place of a batch", function()
  it("is refused with batch and expand_dims", function()
    local model = tf.keras.Sequential { tf.keras.layers.Dense(1) }
    model:compile { optimizer = "sgd", loss = "mse" }
    check("fit", "InvalidArgument", { "{2}", "rank 2 or more",
      "dataset:batch(n)", "tf.expand_dims" }, function()
        model:fit(D.from_tensor_slices { tf.ones { 4, 2 }, tf.ones { 4, 1 } },
          { verbose = 0 })
      end)
  end)
end)

describe("modules", function()
  it("name the nearest of their names", function()
    for _, entry in ipairs {
      { "tf.keras.layers", function() return tf.keras.layer_s end },
      { "tf.keras.optimizers.Adam",
        function() return tf.keras.optimizers.adam end },
      { "tf.keras.losses.", function() return tf.keras.losses.MeanSqaredError end },
      { "tf.distribute.MirroredStrategy",
        function() return tf.distribute.MirorredStrategy end },
      { "tf.data.Dataset", function() return tf.data.dataset end },
      { "tf.nn.relu", function() return tf.nn.rlu end },
    } do
      check(entry[1], "KeyError", { "there is no tf.", entry[1] }, entry[2])
    end
    assert.is_nil(tf.keras.optimizers.Nonesuch)
    for _, module in ipairs { tf.distribute, tf.distribute.experimental,
      tf.keras, tf.data, tf.data.experimental } do
      assert.is_nil(module.Nonesuch)
    end
    for _, name in ipairs { "Strategy", "StrategyExtended", "ReplicaContext",
      "Server", "TPUStrategy" } do
      R.fails("NotImplementedError", "tf.distribute." .. name, function()
        return tf.distribute[name]
      end)
    end
    assert.is_true(tf.distribute.RunOptions()
      .experimental_enable_dynamic_batch_size)
  end)
end)

describe("a loop over what is not its iterator", function()
  it("says how data sets are read", function()
    local ds = D.range(4):batch(2)
    check("Dataset", "TypeError", { "a Dataset", "for x in dataset:iter() do" },
      function()
        for _ in ds do error "unreachable" end
      end)
    check("map", "TypeError", { "map_func must be a function", "a Dataset" },
      function()
        local made = ds:map(ds)
        return made
      end)
    local dist = R.mirrored(1):experimental_distribute_dataset(ds)
    check("DistributedDataset", "TypeError", { "a DistributedDataset",
      "for x in dist_dataset:iter() do" }, function()
        for _ in dist do error "unreachable" end
      end)
  end)
end)

describe("names", function()
  local keras = tf.keras

  it("nearly right are followed by the right one, spelt alike", function()
    for wrong, right in pairs {
      adamm = "adam", AdamW_ = "AdamW", rmsporp = "rmsprop", Adagard = "Adagrad",
    } do
      check(wrong, "ValueError", { '"' .. wrong .. '"', "mean " .. right .. "?" },
        function()
          local made = keras.optimizers.get(wrong)
          return made
        end)
    end
    for wrong, right in pairs {
      acuracy = "accuracy", Acuracy = "Accuracy",
      mean_squred_error = "mean_squared_error",
      MeanSquaredErr = "MeanSquaredError",
    } do
      check(wrong, "ValueError", { '"' .. wrong .. '"', "mean " .. right .. "?" },
        function()
          local made = keras.metrics.get(wrong)
          return made
        end)
    end
    check("optimizer", "TypeError", { "an optimizer is a name or an object",
      "Adam() makes one" },
      function()
        local made = keras.optimizers.get(keras.optimizers.Adam)
        return made
      end)
    check("hyperparameter", "KeyError", { '"momentun"', "momentum?" }, function()
      keras.optimizers.SGD().momentun = 1
    end)
  end)

  it("of methods too", function()
    check("Dataset", "KeyError", { 'method "bacth"', "did you mean batch?" },
      function()
        local made = D.range(3):bacth(2)
        return made
      end)
    check("DistributedDataset", "KeyError", { '"itre"', "did you mean iter?" },
      function()
        local ds = R.mirrored(1):experimental_distribute_dataset(
          D.range(4):batch(2))
        local made = ds:itre()
        return made
      end)
  end)

  it("of variables' own methods", function()
    check("asign", "KeyError", { '"asign"', "did you mean assign?" }, function()
      tf.Variable(1):asign(2)
    end)
  end)

  it("of devices that are not there come with what makes them", function()
    local n = R.available
    local name = "/cpu:" .. n
    check("cpu", "InvalidArgument", { 'no device "' .. name .. '"',
      "--cpu-devices=" .. n + 1, "TFDIST_CPU_DEVICES=" .. n + 1 }, function()
        local made = tf.distribute.OneDeviceStrategy(name)
        return made
      end)
    check("tpu", "InvalidArgument", { 'no device "/tpu:0"', "tfdist doctor" },
      function()
        local made = tf.distribute.OneDeviceStrategy("/tpu:0")
        return made
      end)
  end)
end)

describe("values of any length", function()
  local list, word = {}, ("x"):rep(5000)
  for i = 1, 5000 do
    list[i] = i
  end

  local function short(kind, words, fn)
    local e = check(words[1], kind, words, fn)
    assert.is_true(#e.message < 700, e.message)
    return e
  end

  it("are cut in messages", function()
    short("ValueError", { "broadcast_dynamic_shape", "{1, 2, 3, ", "52, …}",
      "and {3, 2}" }, function()
        local made = tf.broadcast_dynamic_shape(list, { 3, 2 })
        return made
      end)
    short("InvalidArgument", { "ensure_shape", "{2}", "…}" }, function()
      local made = tf.ensure_shape(tf.ones { 2 }, list)
      return made
    end)
    short("NotFound", { "Checkpoint.restore", "xxx…xxx" }, function()
      local made = tf.train.Checkpoint { v = tf.Variable(1) }:restore(word)
      return made
    end)
    short("ValueError", { "Adam", "unknown option", "..." }, function()
      local made = O.Adam { [word] = 1 }
      return made
    end)
    assert.matches("52, …", tostring(tf.TensorSpec(list)))
  end)

  it("are cut between characters", function()
    local e = short("NotFound", { "€…€" }, function()
      local made = tf.train.Checkpoint { v = tf.Variable(1) }:restore(
        ("€"):rep(500))
      return made
    end)
    assert.equal("", (e.message:gsub("€", ""):gsub("…", "")
      :gsub("[%w%p%s]", "")))
  end)

  it("are kept in errors of the user's own", function()
    assert.equal(word, require "tfdist.base.errors".wrap(word).message)
  end)
end)

describe("labels of another kind than the loss takes", function()
  local L = tf.keras.losses
  local p = tf.ones { 4, 3 } / 3

  it("are explained", function()
    for _, shape in ipairs { { 4 }, { 4, 1 } } do
      local y = tf.zeros(shape, "int32")
      for _, fn in ipairs { L.categorical_crossentropy,
        L.CategoricalCrossentropy(), L.CategoricalFocalCrossentropy() } do
        check("class numbers", "InvalidArgument", { "categorical_",
          "{4, 3}", "sparse_categorical_crossentropy", "tf.one_hot" },
          function()
            local made = fn(y, p)
            return made
          end)
      end
    end
    check("rows", "InvalidArgument", { "are for categorical_crossentropy" },
      function()
        local made = L.sparse_categorical_crossentropy(p, p)
        return made
      end)
  end)
end)

describe("shapes that do not fit a loss or metric", function()
  it("are told with the name of it", function()
    local a, b = tf.ones { 8, 2 }, tf.ones { 8, 3 }
    local keras = tf.keras
    for name, fn in pairs {
      mean_squared_error = function() return (keras.losses.mse(a, b)) end,
      MeanSquaredError = function()
        return (keras.losses.MeanSquaredError()(a, b))
      end,
      ["metrics.mse"] = function()
        keras.metrics.MeanSquaredError():update_state(a, b)
      end,
      ["metrics.mae"] = function()
        keras.metrics.MeanAbsoluteError():update_state(a, b)
      end,
      ["metrics.accuracy"] = function()
        keras.metrics.Accuracy():update_state(a, b)
      end,
    } do
      check(name, "InvalidArgument", { "y_true has shape {8, 2}",
        "y_pred {8, 3}" }, fn)
    end
    check("sparse", "InvalidArgument", { "sparse_categorical_accuracy",
      "one class number", "without \"sparse\"" }, function()
        keras.metrics.SparseCategoricalAccuracy():update_state(a, a)
      end)
  end)
end)

describe("a method that an object of a class does not have", function()
  local errors = require "tfdist.base.errors"
  local keras = tf.keras
  -- A slip for an object of each class, and what is there.
  local SLIPS = {
    model = { function()
      return keras.Sequential { keras.layers.Dense(1) }
    end, fitt = "fit", evalute = "evaluate" },
    layer = { function() return keras.layers.Dense(1) end, bulid = "build" },
    ["model of one's own"] = { function()
      return keras.Model:extend "Mine" ()
    end, fiit = "fit", add_wieght = "add_weight" },
    ["layer of one's own"] = { function()
      local Mine = keras.layers.Layer:extend "Mine"
      function Mine:project(x) return x end
      return Mine()
    end, proyect = "project", add_wieght = "add_weight" },
    loss = { function() return keras.losses.Huber() end,
      get_confg = "get_config" },
    metric = { function() return keras.metrics.AUC() end,
      reset_stat = "reset_state", update_stat = "update_state" },
    callback = { function() return keras.callbacks.EarlyStopping() end,
      on_epoch_ends = "on_epoch_end" },
    initializer = { function() return keras.initializers.Zeros() end,
      get_confg = "get_config" },
    regularizer = { function() return keras.regularizers.L2() end,
      get_confg = "get_config" },
    constraint = { function() return keras.constraints.NonNeg() end,
      get_confg = "get_config" },
    ["constraint of one's own"] = { function()
      return keras.constraints.Constraint:extend "Mine" ()
    end, get_confg = "get_config" },
    schedule = { function()
      return keras.optimizers.schedules.ExponentialDecay(1, 1, 1)
    end, get_confg = "get_config" },
    module = { function() return tf.Module:subclass "Mine" () end,
      variabels = "variables" },
  }

  -- What somebody sees of a call of object:name() in fn, as the host reports.
  local function caller(object, name)
    return assert((rawget(_G, "loadstring") or load)(
      ("local object = ... return function() object:%s() end"):format(name)))(
      object)
  end

  for what, slips in pairs(SLIPS) do
    it("is followed by the nearest one of its class: " .. what, function()
      local object = slips[1]()
      for name, right in pairs(slips) do
        if name ~= 1 then
          assert.is_nil(object[name])
          local hint = "did you mean " .. right .. "?"
          local ok, e = pcall(caller(object, name))
          assert.is_false(ok)
          assert.matches("nil value", e, 1, true)
          assert.matches(hint, errors.report(e), 1, true)
          -- Where it passes through the library it is an object.
          for _, through in ipairs {
            function(fn) tf.GradientTape(fn) end,
            function(fn) tf.device("/cpu:0", fn) end,
            function(fn) tf.name_scope("a", fn) end,
            function(fn) tf.tidy(fn) end,
            function(fn) R.mirrored(1):scope(fn) end,
            function(fn) R.mirrored(1):run(fn) end,
            function(fn) D.range(1):map(fn):iter()() end,
            function(fn)
              local m = keras.Sequential { keras.layers.Dense(1) }
              m:compile { loss = "mse" }
              m:fit(tf.ones { 1, 1 }, tf.ones { 1, 1 }, { verbose = 0,
                callbacks = { { on_epoch_end = function() fn() end } } })
            end,
          } do
            local seen = R.fails("RuntimeError", name, through,
              caller(object, name))
            assert.equal(hint, seen.hint)
          end
        end
      end
    end)
  end

  it("stays nil to who asks, and is no slip of other classes", function()
    local layer = keras.layers.Dense(1)
    layer.fit_count = (layer.fit_count or 0) + 1
    assert.equal(1, layer.fit_count)
    assert.is_nil(layer.fitt)
    local _, e = pcall(caller(layer, "fitt"))
    assert.is_nil(errors.explain(e))
    -- A table of the user's own is nobody's object.
    assert.is_nil(keras.Sequential {}.fitt)
    _, e = pcall(caller({}, "fitz"))
    assert.is_nil(errors.explain(e))
  end)
end)

describe("a function that forgets to return", function()
  local v = tf.Variable(1.0)

  it("is named where its value is missed", function()
    check("gradient", "TypeError", { "GradientTape.gradient",
      "missing argument target", "return loss" }, function()
        local tape, loss = tf.GradientTape(function()
          local _ = v * v
        end)
        local grads = tape:gradient(loss, v)
        return grads
      end)
    check("minimize", "TypeError", { "optimizer:minimize", "returned nothing" },
      function()
        local done = O.SGD():minimize(function()
          local _ = v * v
        end, { v })
        return done
      end)
  end)
end)

describe("strategies", function()
  it("name the nearest field, and know all others", function()
    local s = R.mirrored(1)
    check("runn", "KeyError", { 'MirroredStrategy has no field or method "runn"',
      "did you mean run?" }, function()
        s:runn(print)
      end)
    for _, x in ipairs { s, s.extended, tf.distribute.get_replica_context() } do
      R.fails("KeyError", 'has no field or method "nonesuch"', function()
        return x.nonesuch
      end)
    end
    local e = R.fails("KeyError", "distribute_dataset", function()
      return s.distribute_dataset
    end)
    assert.equal("did you mean experimental_distribute_dataset?", e.hint)
    for _, name in ipairs { "assign_to_logical_device", "configure",
      "experimental_split_to_logical_devices" } do
      e = R.fails("NotImplementedError", name .. " is not implemented",
        function() return s[name] end)
      assert.matches("TensorFlow has it", e.hint)
    end
    assert.is_nil(s.cluster_resolver)
    e = R.fails("NotImplementedError", "tf.TensorShape is not implemented",
      function() return tf.TensorShape end)
    assert.matches("shapes are plain lists", e.hint)
    local opt = O.SGD()
    check("aply_gradients", "KeyError", { "apply_gradients?" }, function()
      opt:aply_gradients({}, {})
    end)
    assert.is_nil(opt.nonesuch)
  end)

  it("say why a value to reduce may be missing", function()
    local s = R.mirrored(1)
    check("reduce", "TypeError", { "missing argument value", "returns nothing" },
      function()
        local sum = s:reduce("SUM", s:run(function() end))
        return sum
      end)
  end)

  it("tell models and optimizers of another scope", function()
    local s = R.mirrored(1)
    local keras = tf.keras
    local x = tf.ones { 4, 2 }
    local model = keras.Sequential {
      keras.layers.Dense(2, { input_shape = { 2 } }),
    }
    check("compile", "ValueError", { '"' .. model.name .. '"', "outside the scope of the "
      .. "MirroredStrategy", "strategy:scope" }, function()
        s:scope(function()
          model:compile { optimizer = "sgd", loss = "mse" }
        end)
      end)
    local opt = s:scope(function() return O.SGD() end)
    model:compile { optimizer = opt, loss = "mse" }
    check("fit", "RuntimeError", { "optimizer SGD was made in the scope of a "
      .. "MirroredStrategy", "where its variables are made" }, function()
        model:fit(x, x, { verbose = 0 })
      end)
  end)

  it("say where a replica context was asked for and is nil", function()
    local s = R.mirrored(1)
    local ok, e = pcall(s.scope, s, function()
      local context = tf.distribute.get_replica_context()
      return context:all_reduce("SUM", 1.0)
    end)
    assert.is_false(ok)
    e = require "tfdist.base.errors".wrap(e)
    assert.matches("get_replica_context%(%) at .*messages_spec.lua:%d+ is nil "
      .. "in cross%-replica context", e.hint)
  end)
end)

describe("an error in a replica function", function()
  it("has a place even when a tail call left no frame", function()
    local s = R.mirrored(1)
    for _, fn in ipairs {
      function() return s:run(print) end,
      function() s:run(print) end,
    } do
      check("nested", "RuntimeError", { "strategy:run", "replica 0",
        "cannot start another run" }, function()
          -- The place is a line of this function or of those above.
          local ok, e = pcall(s.run, s, fn)
          assert(not ok and e.where:find "messages_spec.lua:%d+$", e.where)
          s:run(function()
            local made = s:run(print)
            return made
          end)
        end)
    end
  end)

  it("has no frame of the library's own calls", function()
    local s = R.mirrored(1)
    local ok, e = pcall(function()
      s:run(function()
        local x = tf.ones { 2 } + tf.ones { 3 }
        return x
      end)
    end)
    assert.is_false(ok)
    local run_at = e.traceback:find("(run on replica 0)", 1, true)
    local next_line = e.traceback:sub(run_at):match "\n([^\n]*)"
    assert.matches("messages_spec.lua:%d+:", next_line)
  end)
end)

describe("apply_gradients outside of strategy:run", function()
  it("names strategy:run", function()
    local s = R.mirrored(R.available >= 2 and 2 or 1)
    local v, opt = s:scope(function()
      return tf.Variable(1.0, { name = "w" }), O.SGD()
    end)
    for _, optimizer in ipairs { opt, O.SGD { momentum = 0.5 } } do
      check("apply_gradients", "RuntimeError", { 'variable "w"', s.name,
        "strategy:run" }, function()
          local done = optimizer:apply_gradients({ tf.constant(1.0) }, { v })
          return done
        end)
      check("minimize", "RuntimeError", { 'variable "w"', "strategy:run" },
        function()
          local done = optimizer:minimize(function() return v * 2 end, { v })
          return done
        end)
    end
    -- Other mistakes keep their own words.
    check("variables", "TypeError", { "expected variables" }, function()
      local done = opt:apply_gradients({ tf.constant(1.0) }, { 3 })
      return done
    end)
    check("lengths", "ValueError", { "2 gradients for 1 variables" },
      function()
        local done = opt:apply_gradients({ 1, 2, n = 2 }, { v })
        return done
      end)
  end)
end)

describe("a data set that is not there", function()
  it("says what brings it", function()
    for _, name in ipairs { "mnist", "fashion_mnist" } do
      local x, why, kind = tf.keras.datasets[name].load_data {
        path = "/no/such" }
      assert.is_nil(x)
      assert.equal("NotFound", kind)
      assert.matches("apt%-get install dataset%-fashion%-mnist", why)
    end
  end)
end)

describe("a slip in the name of a method", function()
  it("names the nearest, whatever the object", function()
    local s = R.mirrored(1)
    local ds = D.range(4):batch(2)
    local shared = s:experimental_distribute_dataset(ds)
    local objects = {
      runn = { s, "run" }, update_nonslot = { s.extended, "update_non_slot" },
      all_reduc = { tf.distribute.get_replica_context(), "all_reduce" },
      get_nxt = { ds:iter(), "get_next" },
      get_nextt = { shared:iter(), "get_next" },
      gradent = { tf.GradientTape(function() end), "gradient" },
      flus = { tf.summary.create_noop_writer(), "flush" },
      has_valu = { tf.data.experimental.Optional.empty(), "has_value" },
      get_per_replica_batchsize = { tf.distribute.InputContext(),
        "get_per_replica_batch_size" },
      make_experimental_numpy_dataset = { s,
        "experimental_make_numpy_dataset" },
      SerializeToStrin = { tf.train.Example { features =
        tf.train.Features { feature = {} } }, "SerializeToString" },
    }
    for name, entry in pairs(objects) do
      local e = R.fails("KeyError", name, function()
        return entry[1][name]
      end)
      assert.equal("did you mean " .. entry[2] .. "?", e.hint)
    end
  end)

  it("says that a method was called with a dot", function()
    local keras = tf.keras
    local example = tf.train.Example { features = tf.train.Features() }
    local concrete = tf.function_(function() end):get_concrete_function()
    local optional = tf.data.experimental.Optional.empty()
    for name, method in pairs {
      ["Example.SerializeToString"] = example.SerializeToString,
      ["Zeros.get_config"] = keras.initializers.Zeros().get_config,
      ["LearningRateSchedule.get_config"] = keras.optimizers.schedules
        .CosineDecay(1, 1).get_config,
      ["Bidirectional.reset_states"] = keras.layers.Bidirectional(
        keras.layers.GRU(1)).reset_states,
      ["Module.extend"] = tf.Module.extend,
      ["ConcreteFunction.graph"] = concrete.graph,
      ["ConcreteFunction.pretty_printed_signature"] =
        concrete.pretty_printed_signature,
      ["Optional.has_value"] = optional.has_value,
      ["Optional.get_value"] = optional.get_value,
    } do
      for _, self in ipairs { {}, "x", 3 } do
        local e = R.fails("TypeError", name .. ": the first argument must be "
          .. "the ", method, self)
        assert.matches("with a colon$", e.hint)
      end
    end
  end)

  it("leaves the fields of strategies as they are", function()
    local s = R.mirrored(1)
    R.fails("TypeError", "num_replicas_in_sync cannot be set", function()
      s.num_replicas_in_sync = "x"
    end)
    R.fails("TypeError", "run cannot be set", function() s.run = print end)
    assert.equal(1, s.num_replicas_in_sync)
  end)

  it("leaves the methods of replica contexts as they are", function()
    local context = tf.distribute.get_replica_context()
    for _, name in ipairs { "all_reduce", "merge_call", "devices",
      "num_replicas_in_sync" } do
      R.fails("TypeError", "ReplicaContext: " .. name .. " cannot be set",
        function() context[name] = true end)
    end
    assert.equal(1, context.num_replicas_in_sync)
    assert.equal(3, context:all_reduce("SUM", tf.constant(3)):item())
    context.note = "own" -- luacheck: ignore 122
    assert.equal("own", context.note)
    context.note = nil
  end)
end)

describe("a list of sizes", function()
  it("is shown without asking what the user put into it", function()
    local hostile = setmetatable({}, { __tostring = function()
      error("asked", 0)
    end })
    assert.equal("{2, a table, a function, true, x}",
      text.shape { 2, hostile, print, true, "x" })
  end)
end)

describe("an object whose __eq fails", function()
  it("is named as any other", function()
    local hostile = setmetatable({}, { __eq = function() error("asked", 0) end })
    for _, fn in ipairs { tf.abs, tf.constant, tf.function_, D.range,
      D.from_tensors, tf.keras.layers.Dense } do
      R.fails("TypeError", "got a table", fn, hostile)
    end
  end)
end)

describe("a line on stderr", function()
  it("is one write, which nobody else's divides", function()
    local stderr, written = io.stderr, {}
    io.stderr = { write = function(_, ...) -- luacheck: ignore 122
      written[#written + 1] = { ... }
    end }
    finally(function() io.stderr = stderr end) -- luacheck: ignore 122
    notice.say "said"
    base.say({}, "%d said", 2)
    D.from_tensors { 1 }:map(function() error("ignored", 0) end)
      :ignore_errors { log_warning = true }:iter()()
    for i, line in ipairs { "tfdist: said\n", "tfdist: 2 said\n",
      "tfdist: ignored: RuntimeError: ignored\n" } do
      assert.equal(1, #written[i])
      assert.equal(line, written[i][1]:match "[^\n]*\n")
    end
    assert.equal(3, #written)
  end)
end)
