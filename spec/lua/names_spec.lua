-- Names that are not there, operators that tensors refuse, handles that were
-- released: one kind and one wording each.
local tf = require "tfdist"
local errors = require "tfdist.base.errors"
local expect = require "spec.support.expect"

local failure = expect.failure

describe("the names of ops", function()
  it("are numbers until they are used, which no collector looks at", function()
    local ops = require "tfdist.core.ops"
    assert(tf.add)
    for _, name in ipairs { "add", "matmul", "cast" } do
      assert.equal("number", type(ops.lazy.raw_ops[name]))
      assert.equal("function", type(tf.raw_ops[name]))
    end
    assert.equal("number", type(ops.lazy[""].matmul))
    assert.equal(tf.raw_ops.matmul, tf.linalg.matmul)
    assert.equal(tf.norm, tf.linalg.norm)
  end)
end)

describe("a name that tf does not have", function()
  it("is nil when it is no string, in every module", function()
    for _, module in ipairs { tf, tf.math, tf.nn, tf.linalg, tf.random,
      tf.debugging, tf.raw_ops, tf.keras, tf.keras.layers, tf.data, tf.train,
      tf.distribute } do
      for _, key in ipairs { {}, 2, 0 / 0, true, print, tf.constant(1) } do
        assert.is_nil(module[key])
      end
      assert.is_nil(module[nil])
    end
  end)

  it("is a KeyError when one that it has is near", function()
    for path, near in pairs {
      reducesum = "tf.reduce_sum", Variabel = "tf.Variable",
      constat = "tf.constant", softmax = "tf.nn.softmax",
      rsqrt = "tf.math.rsqrt",
    } do
      local e = failure(function() return tf[path] end)
      assert.equal("KeyError", e.kind)
      assert.equal("there is no tf." .. path, e.message)
      assert.equal("did you mean " .. near .. "?", e.hint)
    end
    local e = failure(function() return tf.nn.sofmax end)
    assert.equal("did you mean tf.nn.softmax?", e.hint)
    e = failure(function() return tf.math.reduce_summ end)
    assert.equal("did you mean tf.math.reduce_sum?", e.hint)
    e = failure(function() return tf.nn.reduce_sum end)
    assert.equal("did you mean tf.reduce_sum?", e.hint)
  end)

  it("is a KeyError with its place when it lies elsewhere", function()
    for name, places in pairs {
      Dataset = "tf.data.Dataset", Dense = "tf.keras.layers.Dense",
      Adam = "tf.keras.optimizers.Adam",
      MirroredStrategy = "tf.distribute.MirroredStrategy",
      TFRecordDataset = "tf.data.TFRecordDataset",
      CsvDataset = "tf.data.experimental.CsvDataset",
      Checkpoint = "tf.train.Checkpoint",
      Sequential = "tf.keras.Sequential",
      MeanSquaredError = "tf.keras.losses.MeanSquaredError or "
        .. "tf.keras.metrics.MeanSquaredError",
      ReduceOp = "tf.distribute.ReduceOp",
      set_seed = "tf.random.set_seed",
      map_structure = "tf.nest.map_structure",
      create_file_writer = "tf.summary.create_file_writer",
    } do
      local e = failure(function() return tf[name] end)
      assert.equal("KeyError", e.kind)
      assert.equal("there is no tf." .. name, e.message)
      assert.equal("did you mean " .. places .. "?", e.hint)
    end
  end)

  it("leaves out what modules share among themselves", function()
    for module, names in pairs {
      [tf.keras.losses] = "weighted weight_of weigh names object",
      [tf.keras.callbacks] = "format_path",
      [tf.keras.backend] = "returned",
      [tf.keras.optimizers] = "is_optimizer",
      [tf.nest] = "layout MAX_DEPTH",
    } do
      for name in names:gmatch "%S+" do
        assert.is_nil(rawget(module, name), name)
      end
    end
  end)

  it("is nil otherwise, so that programs can ask", function()
    for _, name in ipairs {
      "xyzzy", "__call", "_private", "Xyzzy", "get", "batch",
    } do
      assert.is_nil(tf[name])
    end
    assert.is_nil(tf.nn.xyzzy)
    assert.is_nil(tf[1])
  end)
end)

describe("a name that only TensorFlow has", function()
  local missing = require "tfdist.base.missing"

  it("is a NotImplementedError that names it", function()
    local count = 0
    for _, path in ipairs(missing.paths()) do
      local space = tf
      for name in path:gmatch "[^.]+" do
        space = space[name]
      end
      for _, name in ipairs(missing.names(path)) do
        local e = failure(function() return space[name] end)
        assert.equal("NotImplementedError", e.kind)
        assert.matches(name, e.message, 1, true)
        count = count + 1
      end
    end
    assert.is_true(count > 600)
    assert.equal("NotImplementedError", failure(function()
      return tf.keras.__version__
    end).kind)
  end)

  it("is told from the classes of errors that are here", function()
    local classes = { "Aborted", "AlreadyExists", "Cancelled", "DataLoss",
      "DeadlineExceeded", "FailedPrecondition", "Internal", "InvalidArgument",
      "NotFound", "OutOfRange", "ResourceExhausted", "Unavailable" }
    for _, name in ipairs(classes) do
      assert.equal(name, tf.errors[name .. "Error"])
      assert.equal("NotImplementedError", failure(function()
        return tf.errors[name:gsub("(%l)(%u)", "%1_%2"):upper()]
      end).kind)
    end
    assert.equal(tf.errors.UnimplementedError, failure(function()
      return tf.errors.UnknownError end).kind)
    assert.equal(tf.errors.OperatorNotAllowedInGraphError,
      failure(tf.function_(function(x)
        return x:item() > 0 and x
      end), tf.constant(1)).kind)
    assert.matches("is_error", failure(function()
      return tf.errors.OpError end).hint, 1, true)
  end)

  it("is no slip of another name", function()
    for name, hint in pairs { eig = "symmetric matrices",
      eigvals = "symmetric matrices" } do
      local e = failure(function() return tf.linalg[name] end)
      assert.equal("NotImplementedError", e.kind)
      assert.matches(hint, e.hint, 1, true)
    end
  end)
end)

describe("names of TensorFlow's for the same", function()
  it("are of one thing", function()
    for _, name in ipairs { "initializers", "losses", "metrics", "optimizers" }
    do
      assert.equal(tf.keras[name], tf[name])
    end
    assert.equal("float32", tf.dtypes.float32)
    assert.equal("float16", tf.dtypes.half)
    assert.equal("string", tf.dtypes.string)
  end)

  it("say what Python's None is", function()
    local e = failure(function() return tf.None end)
    assert.equal("KeyError", e.kind)
    assert.matches("-1 for an unknown size", e.hint, 1, true)
    e = failure(function() return tf.reshape(tf.zeros { 3 }, { nil, 3 }) end)
    assert.equal("TypeError", e.kind)
    assert.equal("an unknown size is written -1", e.hint)
  end)
end)

describe("help", function()
  local help = require "tfdist.host.help"
  local load_text = rawget(_G, "loadstring") or load

  local function about(topic)
    return (help.about(topic, function(text)
      return load_text("local tf = ... return " .. text)(tf)
    end))
  end

  it("knows the methods of what is made by functions", function()
    for topic, usage in pairs {
      ["tf.Variable.assign"] = "Variable.assign(value, ",
      ["tf.Variable:assign_add"] = "Variable.assign_add(delta, ",
      ["tf.distribute.MirroredStrategy.reduce"] =
        "MirroredStrategy.reduce(reduce_op, value, axis=nil)",
      ["tf.GradientTape.gradient"] = "GradientTape.gradient(target, sources",
      ["tf.keras.optimizers.Adam.apply_gradients"] =
        "optimizer:apply_gradients(grads, vars=nil",
      ["tf.train.Checkpoint.restore"] = "Checkpoint.restore(",
    } do
      assert.equal(usage, about(topic):sub(1, #usage))
    end
    assert.matches("\nmethods: assign, assign_add", about "tf.Variable")
  end)

  it("says what is not there", function()
    local e = failure(about, "tf.Variable.asign")
    assert.equal("KeyError", e.kind)
    assert.equal("there is no tf.Variable.asign", e.message)
    assert.equal("did you mean tf.Variable.assign?", e.hint)
    e = failure(about, "tf.distribute.Strategy")
    assert.equal("NotImplementedError", e.kind)
    assert.matches("MirroredStrategy", e.hint)
  end)
end)

describe("slips in the names of modules", function()
  it("are KeyErrors everywhere", function()
    for path, name in pairs {
      ["keras.optimizers"] = "Adamm", ["keras.losses"] = "MeanSquareError",
      ["keras.optimizers.schedules"] = "CosineDeca",
      ["keras.callbacks"] = "EarlyStoping", ["keras.metrics"] = "Acuracy",
      ["keras.initializers"] = "GlorotUniforms", ["keras.models"] = "Modl",
      ["keras.utils"] = "to_categoricall", ["keras.regularizers"] = "L11",
      ["keras.activations"] = "rellu", ["keras.datasets"] = "mnistt",
      ["keras.layers"] = "Densee", ["keras.constraints"] = "MaxNrm",
      io = "read_fil", train = "Chekpoint", distribute = "MirorredStrategy",
      data = "Datasets", ["data.Dataset"] = "from_tensor_slice",
      config = "list_physical_device", summary = "scalarr",
      errors = "OutOfRang",
    } do
      local space = tf
      for part in path:gmatch "[^.]+" do
        space = space[part]
      end
      local e = failure(function() return space[name] end)
      assert.equal("KeyError", e.kind, path)
      assert.matches("did you mean", e.hint, 1, true)
    end
  end)
end)

describe("a name that tensors do not have", function()
  it("is explained where other libraries have it", function()
    local x = tf.constant { 1, 2 }
    assert.matches("totable", failure(function() return x:numpy() end).hint)
    assert.matches("cast", failure(function() return x:astype("int32") end)
      .hint)
    assert.matches("Variable", failure(function() return x:assign(1) end).hint)
    assert.equal("t:transpose()", failure(function() return x:t() end).hint)
    local e = failure(function() return x:reduce_summ() end)
    assert.equal("KeyError", e.kind)
    assert.equal("did you mean reduce_sum?", e.hint)
  end)
end)

describe("order of tensors", function()
  local x, y = tf.constant { 1, 2 }, tf.constant { 3, 4 }
  local v = tf.Variable { 1.0, 2.0 }

  it("is refused between tensors of any kind", function()
    for _, fn in ipairs {
      function() return x < y end, function() return x <= y end,
      function() return x > v end, function() return v >= x end,
    } do
      local e = failure(fn)
      assert.equal("TypeError", e.kind)
      assert.matches("a:less", e.hint)
      assert.matches("a:greater", e.hint)
    end
  end)

  it("is refused with numbers, in the engine's words on LuaJIT", function()
    for _, fn in ipairs {
      function() return x > 1 end, function() return 1 <= x end,
      function() return v < 1 end,
    } do
      local ok, e = pcall(fn)
      assert.is_false(ok)
      e = errors.wrap(e)
      assert.equal("TypeError", e.kind)
      assert.matches("a:less", e.hint)
      assert.matches("a:greater", e.hint)
    end
  end)
end)

describe("a tensor where Lua's own functions want something else", function()
  local strategy = tf.distribute.OneDeviceStrategy "/cpu:0"
  local function hint(fn, x)
    local ok, e = pcall(fn, x)
    assert.is_false(ok)
    e = errors.wrap(e)
    return e.kind, e.hint
  end

  it("is explained by the engine's words", function()
    for _, x in ipairs { tf.constant(2), tf.Variable(2),
      tf.distribute.MirroredStrategy({ "/cpu:0" }):scope(function()
        return tf.Variable(2)
      end), strategy:scope(function() return tf.Variable(2) end) } do
      for _, fn in ipairs {
        function(t) return ("%.3f"):format(t) end, math.floor,
        function(t) return ("x"):rep(t) end,
      } do
        local kind, text = hint(fn, x)
        assert.equal("TypeError", kind)
        assert.equal("t:item() is the number of a tensor with one element",
          text)
      end
      for _, fn in ipairs { function(t) io.stdout:write(t) end,
        function(t) return table.concat { t } end } do
        local kind, text = hint(fn, x)
        assert.equal("TypeError", kind)
        assert.equal("tostring(t) is the text that print shows", text)
      end
    end
    assert.is_nil(errors.explain("x.lua:1: bad argument #1 to 'floor' "
      .. "(number expected, got nil)"))
    assert.is_nil(errors.explain("x.lua:1: bad argument #1 to 'floor' "
      .. "(number expected, got FILE*)"))
  end)
end)

describe("the rows of a tensor", function()
  local x = tf.constant { { 1, 2 }, { 3, 4 } }

  it("come from iter, from position 0", function()
    local seen = {}
    for i, row in x:iter() do
      seen[#seen + 1] = { i, row:totable() }
    end
    assert.same({ { 0, { 1, 2 } }, { 1, { 3, 4 } } }, seen)
    assert.equal(2, #x)
  end)

  it("come from nothing else", function()
    for _, fn in ipairs {
      function() local step = pairs(x) return step end,
      function() local n = 0 for _ in ipairs(x) do n = n + 1 end return n end,
      function() local n = 0 for _ in x do n = n + 1 end return n end,
    } do
      local ok, e = pcall(fn)
      assert.is_false(ok)
      assert.matches("t:iter%(%)", errors.report(e))
    end
  end)
end)

describe("a text of tensors", function()
  it("is made by ..", function()
    assert.equal("loss 2.5", "loss " .. tf.constant(2.5))
    assert.equal("2.5 is it", tf.constant(2.5) .. " is it")
  end)
end)

describe("a released handle", function()
  it("has one error for every use", function()
    local r = tf.constant { 1, 2 }
    local v = tf.Variable(1.0)
    local s = tf.IndexedSlices({ 1 }, { 0 }, { 3 })
    r:release()
    v:release()
    s:release()
    for name, fn in pairs {
      length = function() return #r end,
      shape = function() return r.shape end,
      dtype = function() return r.dtype end,
      plus = function() return r + 1 end,
      minus = function() return -r end,
      op = function() return tf.add(r, r) end,
      method = function() return r:sum() end,
      index = function() return r[0] end,
      item = function() return r:item() end,
      table = function() return r:totable() end,
      numel = function() return r:numel() end,
      to = function() return r:to("/cpu:0") end,
      iter = function() return r:iter() end,
      position = function() return tf.ones { 2 }[r] end,
      axis = function() return tf.reduce_sum({ 1 }, r) end,
      sizes = function() return tf.zeros(r) end,
      list = function() return tf.concat({ r, r }, 0) end,
      constant = function() return tf.constant { r } end,
      variable = function() return tf.Variable(r) end,
      cond = function() return tf.cond(r, print, print) end,
      v_name = function() return v.name end,
      v_shape = function() return v.shape end,
      v_assign = function() return v:assign(1.0) end,
      v_plus = function() return v + 1 end,
      s_values = function() return s.values end,
      s_times = function() return s * 2 end,
      s_dense = function() return s:to_dense() end,
    } do
      local e = failure(fn)
      assert.equal("FailedPrecondition", e.kind, name)
      assert.matches("handle is released$", e.message, name)
      assert.is_nil(e.message:find("operand_tensor", 1, true), name)
    end
  end)
end)

describe("the names of a value, for completion and listings", function()
  local fields = require "tfdist.base.fields"
  local dataset = tf.data.Dataset.range(2)
  local strategy = tf.distribute.OneDeviceStrategy "/cpu:0"

  for name, case in pairs {
    metric = { tf.keras.metrics.Mean(), "result" },
    loss = { tf.keras.losses.MeanSquaredError(), "get_config" },
    callback = { tf.keras.callbacks.EarlyStopping(), "on_epoch_end" },
    initializer = { tf.keras.initializers.Zeros(), "get_config" },
    schedule = { tf.keras.optimizers.schedules.CosineDecay(1, 1),
      "get_config" },
    ["loss scaling"] = { tf.keras.mixed_precision.LossScaleOptimizer(
      tf.keras.optimizers.SGD()), "get_scaled_loss" },
    module = { tf.Module(), "trainable_variables" },
    generator = { tf.random.Generator.from_seed(1), "uniform" },
    slices = { tf.IndexedSlices(tf.ones { 1 }, { 0 }), "indices" },
    iterator = { dataset:iter(), "get_next" },
    optional = { dataset:iter():get_next_as_optional(), "has_value" },
    strategy = { strategy, "run" },
    extended = { strategy.extended, "reduce_to" },
    context = { tf.distribute.get_replica_context(), "merge_call" },
  } do
    it("hold what is behind a function: " .. name, function()
      local found = {}
      fields.add(found, case[1])
      assert.is_true(found[case[2]], case[2])
      assert.is_not_nil(case[1][case[2]])
    end)
  end
end)

describe("the names that are not here #once", function()
  local process = require "spec.support.process"

  it("are not read by a program without mistakes, nor are texts of help",
    function()
      for _, host in ipairs(process.hosts) do
        local r = process.run(host.path .. " -e " .. process.quote [[
          local tf = require "tfdist"
          local s = tf.distribute.MirroredStrategy { "CPU:0" }
          s:scope(function()
            local model = tf.keras.Sequential { tf.keras.layers.Dense(1) }
            model:compile { optimizer = "sgd", loss = "mse", metrics = { "mae" } }
            model:fit(tf.ones { 2, 1 }, tf.ones { 2, 1 }, { verbose = 0 })
          end)
          assert(tf.data.Dataset.range(4):batch(2):iter():get_next())
          assert(tf.summary.create_file_writer and tf.train.Checkpoint {})
          for _, name in ipairs { "base.missing", "base.places", "host.help",
            "host.help_texts" } do
            print(package.loaded["tfdist." .. name])
          end]])
        assert.equal(("nil\n"):rep(4), r.out, r.err)
      end
    end)

  for _, host in ipairs(process.hosts) do
    it("are loaded when one is asked for, in " .. host.name, function()
      local r = process.run(host.path .. " -e " .. process.quote [[
        local tf = require "tfdist"
        local _ = tf.add(1, 2), tf.keras.layers.Dense
        print(package.loaded["tfdist.base.missing"])
        print(pcall(function() return tf.Graph end))
        print(type(package.loaded["tfdist.base.missing"]))]])
      assert.matches("^nil\nfalse.-tf.Graph is not implemented.-\ntable\n$",
        r.out)
    end)
  end
end)
