--- The calling rule.
local options = require "tfdist.base.options"
local expect = require "spec.support.expect"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function parse(signature, ...)
  return options.parser("f", signature)(...)
end

local caught = expect.caught

describe("a signature", function()
  it("reads names, kinds and defaults", function()
    local sig = options.signature("f", "a b:t? c:e(x|y)=y d=-1.5 e='two words' "
      .. "f=true g=nil h:l=nil i=float32 j=inf")
    assert.equal(10, sig.n)
    assert.same({ true, false, false }, { sig.required[1], sig.required[2],
      sig.required[3] })
    assert.equal("e(x|y)", sig.kinds[3])
    assert.equal("t?", sig.kinds[2])
    assert.same({ "y", -1.5, "two words", true }, { sig.defaults[3],
      sig.defaults[4], sig.defaults[5], sig.defaults[6] })
    assert.is_nil(sig.defaults[7])
    assert.equal("float32", sig.defaults[9])
    assert.equal(math.huge, sig.defaults[10])
  end)
end)

describe("positional arguments", function()
  it("arrive in order, with defaults for what is left out", function()
    assert.same({ 1, 2, 3 }, { parse("a b=2 c=3", 1) })
    assert.same({ 1, 7, 3 }, { parse("a b=2 c=3", 1, 7) })
    assert.same({ 1, 2, 9 }, { parse("a b=2 c=3", 1, nil, 9) })
  end)

  it("keep false", function()
    assert.same({ 1, false }, { parse("a b=true", 1, false) })
  end)

  it("may be lists in optional positions", function()
    local _, axis = parse("a axis=nil", 1, { 0, 1 })
    assert.same({ 0, 1 }, axis)
    _, axis = parse("a axis=nil", 1, { 5, n = 3 })
    assert.same({ 5, n = 3 }, axis)
  end)

  it("may be any table in required positions", function()
    for _, value in ipairs { {}, { 1, 2 }, { b = 1 }, { other = 1 } } do
      local a, b = parse("a b=2", value)
      assert.equal(value, a)
      assert.equal(2, b)
    end
  end)

  it("may be tables with a metatable anywhere", function()
    local object = setmetatable({ b = 1 }, {})
    local a, b = parse("a=nil b=2", object)
    assert.equal(object, a)
    assert.equal(2, b)
  end)
end)

describe("a trailing options table", function()
  it("gives arguments by name", function()
    assert.same({ 1, 5, 6 }, { parse("a b=2 c=3", 1, { c = 6, b = 5 }) })
    assert.same({ 1, 5, 6 }, { parse("a b=2 c=3", 1, 5, { c = 6 }) })
    assert.same({ 1, 2, 3 }, { parse("a b=2 c=3", 1, {}) })
  end)

  it("may come after all positions", function()
    assert.same({ 1, 2 }, { parse("a b", 1, 2, {}) })
  end)

  it("may be the only argument of a constructor", function()
    assert.same({ 4, 3 }, { parse("a=2 b=3", { a = 4 }) })
  end)

  it("may give all required arguments when it names them", function()
    assert.same({ 1, 2, 3 }, { parse("a b c=3", { a = 1, b = 2 }) })
    assert.same({ 1, 2 }, { parse("a b", 1, { b = 2 }) })
    assert.same({ 1, { c = 2 } }, { parse("a b", 1, { c = 2 }) })
    assert.same({ 1, 2 }, { parse("a b=2", { a = 1 }) })
    assert.same({ 1, 3 }, { parse("a b=2", { a = 1, b = 3 }) })
  end)

  it("is a value in the place of a structure that alone is required",
    function()
      local a, b = parse("a:nest b=2", { a = 1, b = 3 })
      assert.same({ a = 1, b = 3 }, a)
      assert.equal(2, b)
      assert.same({ 1, 3 }, { parse("a:nest b", { a = 1, b = 3 }) })
      assert.same({ 1, 3 }, { parse("a:nest b=2", 1, { b = 3 }) })
      assert.same({ { a = 1 } }, { parse("a:nest=nil", { a = 1 }) })
      assert.same({ {} }, { parse("a:nest=nil", {}) })
    end)

  it("names the option that a slip among others means", function()
    local e = caught(options.parser("f", "a b"), 1, { b = 2, bb = 2 })
    assert.equal('f: unknown option "bb"', e.message)
    e = caught(options.parser("f", "size drop=false"), { siz = 2 })
    assert.equal("ValueError", e.kind)
    assert.equal("did you mean size?", e.hint)
  end)

  it("names the nearest option for an unknown key", function()
    local e = caught(options.parser("Adam", "learning_rate=0.001 beta_1=0.9"),
      { learningrate = 1 })
    assert.equal("ValueError", e.kind)
    assert.equal('Adam: unknown option "learningrate"', e.message)
    assert.equal("did you mean learning_rate?", e.hint)
    e = caught(options.parser("sum", "x axis=nil keepdims=false"), 1,
      { keep_dim = true })
    assert.equal("did you mean keepdims?", e.hint)
  end)

  it("lists the options when none is near", function()
    local e = caught(options.parser("f", "x axis=nil"), 1, { zzzzzz = 1 })
    assert.equal("options are x, axis", e.hint)
  end)

  it("is a value where the parameter takes tables", function()
    local out = { out = 1 }
    local x, y, epochs = parse("x y:table=nil epochs=1", 0, out)
    assert.same({ 0, out, 1 }, { x, y, epochs })
    x, y, epochs = parse("x y:table=nil epochs=1", 0, { epochs = 2 })
    assert.same({ 0, nil, 2 }, { x, y, epochs })
  end)

  it("is no such value with an option and a slip of another", function()
    local f = options.parser("f", "inputs:table=nil outputs:table=nil")
    local e = caught(f, { inputs = 1, output = 2 })
    assert.equal('f: unknown option "output"', e.message)
    assert.equal("did you mean outputs?", e.hint)
    for _, own in ipairs {
      { inputs = 1, heads = 2 }, { inputs = 1, inputs2 = 2 },
      { outputs = 1, outputs2 = 2 },
    } do
      assert.same({ own }, { f(own) })
    end
    local g = options.parser("g", "x y:table=nil verbose=1")
    for _, own in ipairs { { y = 1, z = 2 }, { y = 1, x2 = 2 } } do
      local x, y = g(0, own)
      assert.same({ 0, own }, { x, y })
    end
    e = caught(g, 0, { y = 1, verbos = 2 })
    assert.equal('g: unknown option "verbos"', e.message)
    assert.is_false(require "tfdist".is_tensor { x = 1, y = 2 })
  end)

  it("cannot mix list elements and options", function()
    local e = caught(options.parser("f", "x axis=nil"), 1, { 1, axis = 2 })
    assert.equal("ValueError", e.kind)
  end)

  it("cannot repeat a positional argument", function()
    local e = caught(options.parser("f", "x axis=nil"), 1, 0, { axis = 2 })
    assert.equal("TypeError", e.kind)
    assert.truthy(e.message:find("axis is given twice", 1, true))
  end)
end)

describe("a wrong number of arguments", function()
  it("is a TypeError that names the parameters", function()
    local e = caught(options.parser("f", "a b=nil"), 1, 2, 3)
    assert.equal("TypeError", e.kind)
    assert.equal("f: takes at most 2 arguments (a, b), got one more: "
      .. "the number 3", e.message)
  end)

  it("is a TypeError that names what is missing", function()
    local e = caught(options.parser("f", "a b"), 1)
    assert.equal("TypeError", e.kind)
    assert.equal("f: missing argument b", e.message)
    e = caught(options.parser("f", "a b=1"))
    assert.equal("f: missing argument a", e.message)
  end)

  it("is told by its form where a table names some", function()
    local f = options.parser("f", "rate steps name=nil")
    assert.equal("f(rate, steps, ...)", caught(f, { rate = 1 }).hint)
    assert.equal("the table in place of rate is taken as its value",
      caught(f, { 1, 2 }).hint)
  end)
end)

describe("wrapped functions", function()
  it("agree with the rule for every shape of signature", function()
    -- Oracle: assignment by position. Formula values, patterns of required
    -- and optional parameters up to five.
    for n = 0, 5 do
      for required = 0, n do
        local parts = {}
        for i = 1, n do
          parts[i] = i <= required and "p" .. i or "p" .. i .. "=" .. -i
        end
        local fn = options.wrap("f", table.concat(parts, " "), function(...)
          return select("#", ...), { ... }
        end)
        for given = required, n do
          local args, want = {}, {}
          for i = 1, n do
            args[i] = i <= given and i * 10 or nil
            want[i] = i <= given and i * 10 or -i
          end
          local count, got = fn(unpack(args, 1, given))
          assert.equal(n, count)
          assert.same(want, got)
        end
      end
    end
  end)

  it("pass all results on", function()
    local fn = options.wrap("f", "a", function(a)
      return a, nil, a
    end)
    assert.equal(3, select("#", fn(1)))
  end)
end)

describe("parameters that are true or false", function()
  local function both(self, a, b)
    return self, a, b
  end
  local class = {}
  local forms = {
    ["f"] = options.wrap("f", "x a=true b=false", both),
    ["C.f"] = options.method("C.f", "a=true b=false", both),
  }

  it("take these and nil", function()
    for _, fn in pairs(forms) do
      assert.same({ class, true, false }, { fn(class) })
      assert.same({ class, false, false }, { fn(class, false) })
      assert.same({ class, true, true }, { fn(class, nil, true) })
      assert.same({ class, false, true },
        { fn(class, { b = true, a = false }) })
    end
  end)

  it("refuse what Lua takes for true", function()
    for what, fn in pairs(forms) do
      for value, words in pairs {
        [0] = "the number 0", no = 'the string "no"',
      } do
        for _, call in ipairs {
          function() fn(class, value) end,
          function() fn(class, { a = value }) end,
          function() fn(class, { a = value, b = true }) end,
        } do
          local e = caught(call)
          assert.equal("TypeError", e.kind)
          assert.equal(("%s: a must be true or false, got %s"):format(what,
            words), e.message)
        end
      end
    end
  end)

  it("may name another kind", function()
    assert.equal("auto", options.wrap("f", "a:any=false", function(a)
      return a
    end)("auto"))
  end)
end)

describe("methods", function()
  local class = {}
  local run = options.method("Strategy.run", "fn args=nil", function(self, fn)
    return self, fn
  end, function(x)
    return getmetatable(x) == class
  end, "strategy")

  it("get self and the values", function()
    local object = setmetatable({}, class)
    local self, fn = run(object, print)
    assert.equal(object, self)
    assert.equal(print, fn)
  end)

  it("called with a dot raise a TypeError with the right form", function()
    local e = caught(run, print)
    assert.equal("TypeError", e.kind)
    assert.equal("Strategy.run: the first argument must be the strategy "
      .. "itself, got a function", e.message)
    assert.equal("call strategy:run(fn, args) with a colon", e.hint)
  end)
end)

describe("checks of values", function()
  it("accept whole numbers in range only", function()
    assert.equal(3, options.integer("f", "n", 3, 1, 4))
    assert.equal("ValueError", caught(options.integer, "f", "n", 1.5).kind)
    assert.equal("f: n must be a whole number, got 1.5",
      caught(options.integer, "f", "n", 1.5).message)
    assert.equal("TypeError", caught(options.integer, "f", "n", "1").kind)
    for _, x in ipairs { 2 ^ 63, -2 ^ 63 - 2 ^ 11, 1e300 } do
      assert.matches("^f: n must be a whole number of 64 bits, got ",
        caught(options.integer, "f", "n", x).message)
    end
    assert.equal(-2 ^ 63, options.integer("f", "n", -2 ^ 63))
    assert.equal(1e300, options.whole("f", "n", 1e300))
    assert.equal("f: n must be a whole number, got 1.5",
      caught(options.whole, "f", "n", 1.5).message)
    assert.equal("ValueError", caught(options.integer, "f", "n", 5, 1, 4).kind)
  end)

  it("take enumerations in any case", function()
    local choice, position = options.choice("f", "op", "Mean",
      { "sum", "mean" })
    assert.equal("mean", choice)
    assert.equal(1, position)
    local e = caught(options.choice, "f", "op", "maen", { "sum", "mean" })
    assert.equal("ValueError", e.kind)
    assert.equal("did you mean mean?", e.hint)
  end)
end)

describe("a list", function()
  local tf = require "tfdist"

  -- Where the key comes among the others is the engine's choice.
  it("has positions only, however it was filled", function()
    for _, key in ipairs { "x", "foo", 0, -1, 1.5 } do
      for n = 0, 9 do
        local first, last, tensors = { [key] = 1 }, {}, { [key] = 1 }
        for i = 1, n do
          first[i], last[i], tensors[i] = i, i, tf.constant(i)
        end
        last[key] = 1
        for _, t in ipairs { first, last } do
          expect.raises("TypeError", "f: the list a has ", options.list, "f",
            "a", t)
        end
        expect.raises("TypeError", "add_n: the list inputs has ", tf.add_n,
          tensors)
      end
    end
    local back = {}
    for i = 9, 1, -1 do
      back[i] = tf.constant(i)
    end
    assert.equal(45, tf.add_n(back):item())
    assert.equal(9, select(2, options.list("f", "a", back)))
    expect.raises("TypeError", "values has a key that is no position",
      tf.stack, { [0] = tf.constant(1), tf.constant(2) })
  end)
end)
