-- What is said where a checkpoint and the objects here have nothing in common.
local files = require "spec.support.files"
local notice = require "tfdist.base.notice"
local tf = require "tfdist"

local function variable(x)
  return tf.Variable(x)
end

describe("a restore of nothing", function()
  local dir, warn, lines
  before_each(function()
    dir, warn, lines = files.place(), notice.warn, {}
    notice.warn = function(line)
      lines[#lines + 1] = line
    end
  end)
  after_each(function()
    notice.warn = warn
    os.execute("rm -rf " .. dir)
  end)

  local function saved(way)
    local ckpt = tf.train.Checkpoint { net = { w = variable(7), b = variable(8) } }
    return ckpt[way](ckpt, dir .. "/c")
  end

  for way, other in pairs { save = "restore", write = "read" } do
    it("is told with the path and names of both sides, " .. other, function()
      local path = saved(way)
      local mine = tf.train.Checkpoint { model = { kernel = variable(1),
        bias = variable(2) } }
      local status = mine[other](mine, path)
      assert.are.equal(1, #lines)
      assert.truthy(lines[1]:find("Checkpoint." .. other, 1, true))
      for _, word in ipairs { path, "net/b, net/w", "model/bias, model/kernel" } do
        assert.truthy(lines[1]:find(word, 1, true), word .. " in " .. lines[1])
      end
      assert.is_nil(lines[1]:find("save_counter", 1, true))
      assert.are.same({ 1, 2 }, { mine.model.kernel:item(),
        mine.model.bias:item() })
      assert.is_false(pcall(status.assert_consumed, status))
    end)
  end

  it("names a few of many", function()
    local path, many = saved "write", {}
    for i = 1, 40 do many[i] = variable(i) end
    tf.train.Checkpoint { many = many }:read(path)
    assert.are.equal(1, #lines)
    assert.truthy(lines[1]:find("and 35 more", 1, true))
  end)

  it("is no news where one value has its place", function()
    local mine = tf.train.Checkpoint { net = { w = variable(1), c = variable(2) } }
    mine:restore(saved "save")
    assert.are.same({}, lines)
    assert.are.equal(7, mine.net.w:item())
  end)

  it("is no news where all that is here is still to be made", function()
    local path = saved "save"
    local net = {}
    local mine = tf.train.Checkpoint { net = net }
    local status = mine:restore(path)
    assert.are.same({}, lines)
    net.w, net.b = variable(0), variable(0)
    status:assert_consumed()
    assert.are.same({ 7, 8 }, { net.w:item(), net.b:item() })
  end)

  it("is no news of a file without values", function()
    local path = tf.train.Checkpoint {}:save(dir .. "/c")
    tf.train.Checkpoint { v = variable(1) }:restore(path)
    assert.are.same({}, lines)
  end)

  it("is told once of a model's weights", function()
    local function model(name)
      return tf.keras.Sequential { tf.keras.layers.Dense(1,
        { input_shape = { 1 }, name = name }) }
    end
    local path = dir .. "/w"
    tf.train.Checkpoint { net = { w = variable(7) } }:write(path)
    local mine = model "one"
    mine:load_weights(path)
    assert.are.equal(2, #lines) -- what has no value, what has no variable
    for _, line in ipairs(lines) do
      assert.truthy(line:find("^load_weights"))
    end
  end)
end)
