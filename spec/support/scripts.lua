--- Small scripts that use a part of the library each and return a number.
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

local M = {}

function M.tensors()
  local x = tf.constant { { 1, 2, 3 }, { 4, 5, 6 } }
  local y = tf.concat({ x, tf.ones { 1, 3 } }, 0)
  local z = tf.stack({ y[0], y[{ 1 }], y[-1] }, 0)
  return tf.reduce_sum(tf.transpose(z)):item() + #y + y:totable()[3][1]
end

function M.ops()
  local x = tf.reshape(tf.range(12, { dtype = "float32" }), { 3, 4 })
  local parts = tf.unstack(x, { axis = 1 })
  local sums = tf.add_n(parts)
  local top = tf.math.top_k(sums, 2)
  local image = tf.reshape(x, { 1, 3, 4, 1 })
  local conv = tf.nn.conv2d(image, tf.ones { 2, 2, 1, 1 }, 1, "SAME")
  local where = tf.where(tf.greater(x, 5), x, tf.zeros_like(x))
  return tf.reduce_sum(tf.matmul(x, x, { transpose_b = true })):item()
    + tf.reduce_max(conv):item() + top:item(0) + tf.reduce_sum(where):item()
end

function M.gradients()
  local w = tf.Variable { { 1, 2 }, { 3, 4 } }
  local x = tf.constant { { 1, 0 }, { 0, 2 } }
  local tape, loss = tf.GradientTape(function()
    return tf.reduce_sum(tf.square(tf.tanh(tf.matmul(x, w))))
  end)
  local gradient = tape:gradient(loss, w)
  w:assign_sub(gradient * 0.5)
  return tf.reduce_sum(w):item()
end

function M.rows()
  local table_ = tf.Variable(tf.ones { 5, 2 })
  local tape, loss = tf.GradientTape(function()
    return tf.reduce_sum(tf.gather(table_, { 1, 3, 1 }))
  end)
  local slices = tape:gradient(loss, table_)
  table_:scatter_sub(slices)
  return tf.reduce_sum(tf.convert_to_tensor(slices)):item()
    + tf.reduce_sum(table_):item()
end

function M.scopes()
  return tf.device("/cpu:0", function()
    return tf.tidy(function()
      local x = tf.fill({ 4 }, 2)
      return tf.reduce_sum(x * x)
    end):item()
  end)
end

-- One training step on all devices: variables, gradients, sums of replicas.
function M.replicas()
  local strategy = replicas.mirrored(replicas.available)
  local w, count
  strategy:scope(function()
    w = tf.Variable { { 1, 2 }, { 3, 4 } }
    count = tf.Variable(0, {
      synchronization = "ON_READ", aggregation = "SUM", trainable = false,
    })
  end)
  local function step(x)
    local tape, loss = tf.GradientTape(function()
      return tf.reduce_sum(tf.square(tf.matmul(x, w)))
    end)
    local gradient = tape:gradient(loss, w)
    local context = tf.distribute.get_replica_context()
    w:assign_sub(context:all_reduce("SUM", gradient) * 0.125)
    count:assign_add(2)
    return { loss = loss, rows = tf.ones { context.replica_id_in_sync_group
      + 1 } }
  end
  local out = strategy:run(step, { tf.constant { { 1, 0 }, { 0, 2 } } })
  local rows = strategy:gather(out.rows, 0)
  return strategy:reduce("SUM", out.loss):item() + tf.reduce_sum(w):item()
    + count:read_value():item() + #rows
end

return M
