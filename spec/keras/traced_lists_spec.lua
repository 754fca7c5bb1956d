--- What batches trained one by one see of a model whose layers, metrics and
--- fields change between them.
local tf = require "tfdist"

if tf.config.functions_run_eagerly() then
  return -- in the suite that does without graphs
end

local K = tf.keras
local L = K.layers

local Net = K.Model:subclass "ListsNet"
function Net:init()
  K.Model.init(self)
  self.first, self.out, self.more = L.Dense(4), L.Dense(2), {}
end
function Net:call(x)
  x = self.first(x)
  for _, layer in ipairs(self.more) do x = layer(x) end
  return self.out(x)
end

-- What batches of the class's model give; change(model, step) comes before each.
local function batches(class, eagerly, change)
  tf.random.set_seed(3)
  local model = class()
  model:compile { optimizer = K.optimizers.SGD(0.01),
    loss = "mse", run_eagerly = eagerly }
  local found = {}
  for step = 1, 9 do
    change(model, step)
    found[step] = model:train_on_batch(tf.ones { 3, 2 } * (step / 8),
      tf.ones { 3, 2 }, { return_dict = true })
  end
  for _, v in ipairs(model.variables) do found[#found + 1] = v:totable() end
  return found
end

local function same_as_eager(class, change)
  local want, got = batches(class, true, change), batches(class, false, change)
  assert.are.same(want, got)
  return got
end

describe("batches trained one by one", function()
  it("train layers that came in between", function()
    same_as_eager(Net, function(model, step)
      if step == 4 then
        model.more[1] = L.Dense(4, { activation = "tanh" })
      elseif step == 6 then
        model.first.trainable = false
      elseif step == 8 then
        model.more[1].trainable, model.first.trainable = false, true
      end
    end)
  end)

  it("train layers in a list that is too long to be compared", function()
    local class = Net:subclass "LongNet"
    function class:init()
      Net.init(self)
      for i = 1, 70 do self.more[i] = L.Activation "linear" end
    end
    same_as_eager(class, function(model, step)
      if step == 5 then
        model.more[66] = L.Dense(4, { kernel_initializer = "ones" })
      elseif step == 7 then
        model.more[66].trainable = false
      end
    end)
  end)

  it("count metrics that came in between", function()
    local class = Net:subclass "CountingNet"
    function class:train_step(x, y)
      local logs = Net.train_step(self, x, y)
      if self.extra ~= nil then self.extra:update_state(tf.reduce_sum(x)) end
      return logs
    end
    local got = same_as_eager(class, function(model, step)
      if step == 5 then model.extra = K.metrics.Sum { name = "extra" } end
    end)
    assert.is_nil(got[4].extra)
    assert.are.equal(4.5, got[6].extra) -- 6 times 6 / 8, reset before
  end)

  it("reset metrics as the class and the script say", function()
    local class = Net:subclass "KeepingNet"
    function class:reset_metrics()
      self.resets = (self.resets or 0) + 1
    end
    same_as_eager(class, function(model, step)
      assert.are.equal(step > 1 and step - 1 or nil, model.resets)
    end)
    local listing = Net:subclass "ListingNet"
    function listing:metrics()
      return self.listed or {}
    end
    local got = same_as_eager(listing, function(model, step)
      model.listed = step > 5 and { model.sum } or nil
      model.sum = model.sum or K.metrics.Sum { name = "sum" }
      model.sum:update_state(step)
    end)
    assert.is_nil(got[5].sum)
    assert.are.equal(21, got[6].sum)
    assert.are.equal(7, got[7].sum)
  end)

  it("see numbers that are none, and fields that go", function()
    local class = Net:subclass "FactorNet"
    function class:call(x)
      local factor = self.factor or 1
      return Net.call(self, x) * (factor == factor and factor or 2)
    end
    same_as_eager(class, function(model, step)
      model.factor = ({ [3] = 0 / 0, [4] = 0 / 0, [5] = 0 / 0, [6] = 0.5,
        [7] = 0.5, [8] = 0.5 })[step]
    end)
  end)
end)
