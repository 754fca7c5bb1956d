--- What a first mistake is answered: an error object that says what to write.
local R = require "spec.support.replicas"
local refused = require "spec.support.refused"
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
    check("zip", "TypeError", { "Dataset.zip", "a Dataset", "datasets",
      "zip({ X, Y })" }, function()
        local made = D.zip(D.range(3), D.range(3))
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
