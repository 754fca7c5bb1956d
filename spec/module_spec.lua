--- tf.Module.
local tf = require "tfdist"
local leaks = require "spec.support.leaks"
local expect = require "spec.support.expect"

local names = expect.names

local function var(name, trainable)
  return tf.Variable(1, { name = name, trainable = trainable })
end

describe("a subclass of tf.Module", function()
  leaks(before_each, after_each)

  it("makes objects with init, calls and methods", function()
    local Scale = tf.Module:subclass "Scale"
    function Scale:init(factor)
      self.factor = tf.Variable(factor)
    end
    function Scale:__call(x)
      return self.factor * x
    end
    function Scale:twice(x)
      return self(self(x))
    end
    local scale = Scale(3)
    assert.equal(6, scale(2):item())
    assert.equal(18, scale:twice(2):item())
    assert.is_true(tf.Module.is_module(scale))
    assert.is_false(tf.Module.is_module {})
    assert.equal('Scale "scale" (1 variables)', tostring(scale))
  end)

  it("lists variables by field name, own before those of submodules", function()
    local Node = tf.Module:subclass "Node"
    local child = Node()
    child.a = var "child_a"
    local parent = Node()
    parent.z = var "z"
    parent.child = child
    parent.list = { var "list_1", { deep = var("list_2", false) } }
    assert.same({ "list_1", "list_2", "z", "child_a" },
      names(parent.variables))
    assert.same({ "list_1", "z", "child_a" },
      names(parent.trainable_variables))
    assert.same({ "list_2" }, names(parent.non_trainable_variables))
    assert.same({ child }, parent.submodules)
  end)

  it("counts shared variables once and survives circles", function()
    local Node = tf.Module:subclass "Node"
    local a, b = Node(), Node()
    local v = var "v"
    a.v, a.same, a.other, b.v, b.back = v, v, b, v, a
    assert.same({ "v" }, names(a.variables))
    assert.same({ b }, a.submodules)
  end)

  it("has a name in snake case unless it is given one", function()
    local MyLayer = tf.Module:subclass "MyLayer"
    assert.equal("my_layer", MyLayer().name)
    assert.equal("encoder", MyLayer("encoder").name)
    local ok, e = pcall(MyLayer, "not a word")
    assert.is_false(ok)
    assert.equal("ValueError", e.kind)
  end)

  it("inherits from its own superclass", function()
    local A = tf.Module:subclass "A"
    function A:init()
      self.a = var "a"
    end
    function A:hello()
      return "A"
    end
    local B = A:subclass "B"
    function B:init()
      A.init(self)
      self.b = var "b"
    end
    local b = B()
    assert.equal("A", b:hello())
    assert.same({ "a", "b" }, names(b.variables))
  end)

  it("puts its name scope around methods that ask for it", function()
    local Layer = tf.Module:subclass "Layer"
    Layer.build = tf.Module.with_name_scope(function(self)
      self.w = var "w"
    end)
    local layer = tf.name_scope("net", function()
      return Layer()
    end)
    layer:build()
    assert.equal("net/layer/w", layer.w.name)
    assert.equal("v", var("v").name)
  end)

  it("says so when it cannot be called", function()
    local Mute = tf.Module:subclass "Mute"
    local ok, e = pcall(Mute(), 1)
    assert.is_false(ok)
    assert.equal("TypeError", e.kind)
  end)
end)

describe("a class made by hand", function()
  leaks(before_each, after_each)

  it("has the properties through tf.Module.index", function()
    local Linear = setmetatable({}, { __index = tf.Module })
    function Linear.hello()
      return "hello"
    end
    local meta = { __index = tf.Module.index(Linear) }
    local layer = setmetatable({ w = var "w" }, meta)
    assert.same({ "w" }, names(layer.variables))
    assert.equal("hello", layer:hello())
    assert.is_true(tf.Module.is_module(layer))
    local outer = tf.Module:subclass "Outer"()
    outer.layer = layer
    assert.same({ "w" }, names(outer.variables))
  end)
end)
