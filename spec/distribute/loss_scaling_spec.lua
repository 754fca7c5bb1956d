-- Cases K: losses divided by the global batch size, alone and under strategies.
local R = require "spec.support.replicas"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local fails = R.fails

describe("loss scaling", function()
  it("K04 K05 the global batch size", function()
    local average = tf.nn.compute_average_loss
    local losses = { 1, 2, 3, 4, 5 }
    assert.equal(1.5, average(losses, { global_batch_size = 10 }):item())
    assert.equal(3, average(losses):item())
    fails("ValueError", "must be scalar", average, losses, nil, { 10 })
    fails("ValueError", "must be scalar", average, losses, nil,
      tf.constant({ 10 }, "int32"))
    fails("TypeError", "whole", average, losses, nil, 10.5)
    fails("TypeError", "whole", average, losses, nil, tf.constant(10.0))
    fails("InvalidArgument", "must be positive", average, losses, nil, -1)
    fails("InvalidArgument", "must be positive", average, losses, nil, 0)
  end)

  R.each(it, pending, "K06 K12 add up to the mean over replicas",
    function(s, n)
      local a, b = s:run(function()
        return tf.nn.compute_average_loss { 2.5, 6.2, 5 },
          tf.nn.scale_regularization_loss { 2.5, 6.2, 5 }
      end)
      assert.near(13.7 / 3, s:reduce("SUM", a):item(), 1e-5)
      assert.near(13.7, s:reduce("SUM", b):item(), 1e-5)
      s:scope(function()
        fails("RuntimeError", "cross replica context",
          tf.nn.compute_average_loss, { 1.0 })
        fails("RuntimeError", "cross replica context",
          tf.nn.scale_regularization_loss, { 1.0 })
        assert.equal(n, tf.nn.compute_average_loss({ 2.0 * n }, nil, 2):item())
      end)
    end, 1)

  it("K08 K09 K10 weights, dtypes, ranks", function()
    local average = tf.nn.compute_average_loss
    assert.equal(2.5, average({ 1, 2 }, { 1, 2 }):item())
    fails("InvalidArgument", nil, average, { 1, 2, 3 },
      tf.constant { 1.0, 2.0 })
    assert.equal("float64", average(tf.constant({ 1, 2 }, "float64")).dtype)
    fails("ValueError", "at least rank 1", average, tf.constant(1.0))
    assert.equal(0, raw.tensor_rank(average { 1.0 }))
    assert.near(13.7, tf.nn.scale_regularization_loss { 2.5, 6.2, 5 }:item(),
      1e-5)
  end)

  -- Of 1, 2, 3 ... n in the replicas' order, those above 1 count.
  R.each(it, pending, "a size that only a call of a traced function knows",
    function(s, n)
      local function masked(x)
        local count = tf.distribute.get_replica_context():all_reduce("SUM",
          tf.reduce_sum(tf.cast(tf.greater(x, 1), "int32")))
        local tape, loss = tf.GradientTape(function(t)
          t:watch(x)
          return tf.nn.compute_average_loss(x * x, { global_batch_size = count })
        end)
        return loss, tape:gradient(loss, x)
      end
      local step = tf.function_(function(x) return s:run(masked, { x }) end)
      for call = 1, 3 do
        local x = s:experimental_distribute_values_from_function(function(c)
          return tf.constant { (c.replica_id_in_sync_group + 1) * call }
        end)
        local count = call == 1 and n - 1 or n
        local losses, gradients = step(x)
        losses = s:experimental_local_results(losses)
        gradients = s:experimental_local_results(gradients)
        for i = 1, n do
          assert.near((i * call) ^ 2 / count, losses[i]:item(), 1e-4)
          assert.near(2 * i * call / count, gradients[i][0]:item(), 1e-4)
        end
      end
    end)

  it("a size that only a call knows is checked by the call", function()
    local average = tf.function_(function(x)
      return tf.nn.compute_average_loss(x,
        { global_batch_size = tf.reduce_sum(tf.cast(x, "int32")) })
    end)
    assert.equal(1, average(tf.constant { 1, 2 }):item())
    fails("InvalidArgument", "must be positive", average, tf.constant { 0, 0 })
    fails("InvalidArgument", "must be positive", average, tf.constant { 1, -2 })
    assert.equal(1, average(tf.constant { 4, 5 }):item())
    fails("TypeError", "whole", tf.function_(function(x)
      return tf.nn.compute_average_loss(x,
        { global_batch_size = tf.reduce_sum(x) })
    end), tf.constant { 1, 2 })
    fails("ValueError", "must be scalar", tf.function_(function(x)
      return tf.nn.compute_average_loss(x,
        { global_batch_size = tf.cast(x, "int32") })
    end), tf.constant { 1, 2 })
  end)
end)
