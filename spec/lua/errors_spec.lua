local errors = require "tfdist.base.errors"
local json = require "tfdist.core.json"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local expect = require "spec.support.expect"

local caught = expect.caught

local HERE = debug.getinfo(1, "S").short_src

local function line()
  return debug.getinfo(2, "l").currentline
end

describe("error objects", function()
  it("carry kind, message, hint and the raiser's position", function()
    local at
    local e = caught(function()
      at = line() + 1
      errors.raise("ValueError", "f: x is 3; expected 4", "count again")
    end)
    assert.equal("ValueError", e.kind)
    assert.equal("f: x is 3; expected 4", e.message)
    assert.equal("count again", e.hint)
    assert.equal(("%s:%d"):format(HERE, at), e.where)
    assert.equal(("%s:%d: ValueError: f: x is 3; expected 4\n"
      .. "hint: count again"):format(HERE, at), tostring(e))
    assert.matches("stack traceback:\n    " .. HERE:gsub("%p", "%%%0"),
      e.traceback)
  end)

  it("raised in C look the same", function()
    local at
    local e = caught(function()
      at = line() + 1
      raw.device_find("XPU:1")
    end)
    assert.equal(("%s:%d"):format(HERE, at), e.where)
    assert.is_true(errors.is_error(e))
    assert.is_nil(e.replica)
    assert.matches("tfdist doctor", e.hint)
  end)

  it("can be glued to text from either side", function()
    local e = errors.new("KeyError", "k")
    assert.equal("a " .. tostring(e), "a " .. e)
    assert.equal(tostring(e) .. " b", e .. " b")
    assert.equal(tostring(e) .. tostring(e), e .. e)
  end)

  it("show replica, worker and notes on lines of their own", function()
    local e = errors.new("RuntimeError", "m", "h")
    e.where, e.replica, e.worker = nil, 1, 2
    assert.equal(e, errors.note(e, "in layer \"dense\""))
    errors.note(e, "step 3")
    assert.equal("RuntimeError: m\n  replica 1 of worker 2\n"
      .. "  in layer \"dense\"\n  step 3\nhint: h", tostring(e))
    assert.equal("text", errors.note("text", "in layer"))
  end)

  it("know where they are from the distribution layer", function()
    errors.hooks.place = function()
      return 3, 1
    end
    local e = errors.new("Internal", "m")
    errors.hooks.place = nil
    assert.equal(3, e.replica)
    assert.equal(1, e.worker)
  end)

  it("are told from other values", function()
    assert.equal("KeyError", errors.kind(errors.new("KeyError", "k")))
    for _, x in ipairs { "text", 1, { kind = "KeyError" }, print } do
      assert.is_nil(errors.kind(x))
      assert.is_false(errors.is_error(x))
    end
    assert.is_nil(errors.kind(nil))
  end)
end)

describe("wrapping", function()
  it("makes an object of text and keeps the text and its place", function()
    local e = errors.wrap("train.lua:12: bad thing")
    assert.equal("RuntimeError", e.kind)
    assert.equal("bad thing", e.message)
    assert.equal("train.lua:12", e.where)
    assert.equal("train.lua:12: RuntimeError: bad thing", tostring(e))
    e = errors.wrap("no place")
    assert.equal("RuntimeError: no place", tostring(e))
  end)

  it("passes everything else through", function()
    local own = { 1 }
    assert.equal(own, errors.wrap(own))
    local e = errors.new("KeyError", "k")
    assert.equal(e, errors.wrap(e))
    assert.is_nil(errors.wrap(nil))
  end)
end)

describe("user errors", function()
  it("are left alone", function()
    local own = {}
    assert.equal(own, caught(error, own))
    assert.equal("text", caught(error, "text", 0))
  end)
end)

describe("reports", function()
  it("tell text, objects, tables and strangers apart", function()
    assert.matches("^oops\nstack traceback:\n", errors.report("oops"))
    assert.matches("^5\n", errors.report(5))
    assert.matches("KeyError: k\nstack traceback:", errors.report(
      errors.new("KeyError", "k")))
    assert.equal("mine", errors.report(setmetatable({}, {
      __tostring = function()
        return "mine"
      end,
    })))
    assert.matches("%(error object is a nil value%)", errors.report(nil))
  end)

  it("leave the library's frames out unless asked", function()
    local function raise()
      return raw.tensor_from_table({ 1, "x" })
    end
    local e = caught(raise)
    assert.is_nil(e.traceback:find("tfdist/", 1, true))
    errors.full_traceback = true
    e = caught(function()
      errors.raise("KeyError", "k")
    end)
    errors.full_traceback = false
    assert.matches("errors%.lua", e.traceback)
  end)

  it("of another coroutine show its frames", function()
    local co = coroutine.create(function()
      coroutine.yield()
    end)
    coroutine.resume(co)
    assert.matches(HERE:gsub("%p", "%%%0"), errors.traceback(0, co))
  end)

  it("stay short under deep recursion", function()
    local function down(n)
      if n == 0 then
        errors.raise("KeyError", "deep")
      end
      return (down(n - 1))
    end
    local e = caught(down, 500)
    local _, lines = e.traceback:gsub("\n", "")
    assert.is_true(lines < 40)
  end)
end)

describe("interrupts", function()
  after_each(function()
    raw.interrupt(false)
  end)

  it("raise Cancelled at the next call, once", function()
    local t = raw.tensor_from_table { 1 }
    raw.interrupt(true)
    local e = caught(raw.tensor_wait, t)
    assert.equal("Cancelled", e.kind)
    assert.equal("interrupted", e.message)
    assert.is_false(raw.is_interrupted())
    raw.tensor_wait(t)
  end)

  it("reach every way to run an op", function()
    local t = raw.tensor_from_table { 1 }
    local identity = raw.op_find("identity")
    for _, fn in ipairs {
      function() raw.op_run(identity, { t }) end,
      function() tf.identity(t) end,
      function() raw.unary_metamethod(identity, nil, nil, error)(t, t) end,
      function() raw.item(t) end,
      function() raw.item(t, 0) end,
      function() raw.tensor_to_table(t) end,
      function() raw.tensor_from_table { 1 } end,
      function() raw.check_interrupt() end,
    } do
      raw.interrupt(true)
      assert.equal("Cancelled", caught(fn).kind)
    end
  end)

  -- Where another failure would be passed over, or told as something else.
  it("are no answer to what the library tries", function()
    local function interrupted()
      raw.interrupt(true)
      raw.check_interrupt()
    end
    local path = os.tmpname()
    tf.train.Checkpoint { v = tf.Variable(1) }:write(path)
    local decode = json.decode
    finally(function()
      json.decode = decode
      os.remove(path)
      os.remove(path .. ".safetensors")
    end)
    for name, try in pairs {
      ["the graph of a checkpoint"] = function()
        json.decode = interrupted
        tf.train.Checkpoint { v = tf.Variable(1) }:read(path)
      end,
      ["the methods of a user's object"] = function()
        tf.train.Checkpoint { v = setmetatable({}, { __index = interrupted }) }
          :write(path)
      end,
      ["the weights of a model without an input"] = function()
        local Layer = tf.keras.layers.Layer:extend "Layer"
        Layer.build = interrupted
        tf.keras.Sequential { Layer() } (tf.keras.Input { 2 })
      end,
      ["whether x is a data set"] = function()
        local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
        m:compile { loss = "mse" }
        m:fit(setmetatable({}, { __index = interrupted }))
      end,
    } do
      assert.equal("Cancelled", caught(try).kind, name)
      json.decode = decode
    end
  end)
end)
