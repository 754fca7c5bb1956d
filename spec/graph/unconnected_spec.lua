--- Which gradients are nil and which are zeros, through choices and loops.
---
--- As in TensorFlow, nil says that the target does not depend on the source as
--- far as the graph knows. Eager code knows what ran. A traced choice knows what
--- its branches use: zeros where one of them, or another result, depends on the
--- source. A traced loop has a gradient for all that it takes: its variables,
--- rows, and what its condition and its body use.
local tf = require "tfdist"

local const = tf.constant
local stop = tf.stop_gradient

local function whole(x) return tf.cast(x, "int32") end
local function float(x) return tf.cast(x, "float32") end
local function double(x) return tf.cast(x, "float64") end

-- Three turns of body(vars...), or `turns`; the first variable.
local function loop(body, turns, ...)
  return (select(2, tf.while_loop(function(i) return tf.less(i, turns) end,
    function(i, ...) return i + 1, body(...) end,
    { const(0, "int32"), ... })))
end

-- name = { eager, traced, fn }: gradients of a = 3 and b = 5 where p holds, and
-- where it does not; "-" is nil.
local CHOICES = {
  ["of what one branch uses"] = { "5 3; 2 -", "5 3; 2 0", function(a, b, p)
    return tf.cond(p, function() return a * b end, function() return a * 2 end)
  end },
  ["of what no branch uses"] = { "6 -; 2 -", "6 -; 2 -", function(a, _, p)
    return tf.cond(p, function() return a * a end, function() return a * 2 end)
  end },
  ["of a branch that is constant"] = { "6 -; - -", "6 -; 0 -",
    function(a, _, p)
      return tf.cond(p, function() return a * a end,
        function() return const(3.0) end)
    end },
  ["of branches that are constant"] = { "1 -; 1 -", "1 -; 1 -",
    function(a, _, p)
      return tf.cond(p, function() return const(1.0) end,
        function() return const(3.0) end) + a
    end },
  ["of what one branch stops"] = { "- 3; 2 -", "0 3; 2 0", function(a, b, p)
    return tf.cond(p, function() return stop(a) * b end,
      function() return a * 2 end)
  end },
  ["of what both stop"] = { "- 3; - 6", "- 3; - 6", function(a, b, p)
    return tf.cond(p, function() return stop(a) * b end,
      function() return stop(a) * b * 2 end)
  end },
  ["of what is only used stopped"] = { "5 -; 2 -", "5 -; 2 -",
    function(a, b, p)
      return tf.cond(p, function() return a * stop(b) end,
        function() return a * 2 end)
    end },
  ["of what one branch casts to integers"] = { "- 3; 2 -", "0 3; 2 0",
    function(a, b, p)
      return tf.cond(p, function() return float(whole(a)) * b end,
        function() return a * 2 end)
    end },
  ["of what both cast to integers"] = { "- 3; - 6", "- 3; - 6",
    function(a, b, p)
      return tf.cond(p, function() return float(whole(a)) * b end,
        function() return float(whole(a)) * b * 2 end)
    end },
  ["of what a branch casts to float64"] = { "5 3; 2 -", "5 3; 2 0",
    function(a, b, p)
      return tf.cond(p, function() return float(double(a) * double(b)) end,
        function() return a * 2 end)
    end },
  ["of what is given on"] = { "1 -; - 1", "1 0; 0 1", function(a, b, p)
    return tf.cond(p, function() return a end, function() return b end)
  end },
  ["of a choice that is stopped"] = { "1 -; 1 -", "1 -; 1 -", function(a, b, p)
    return stop(tf.cond(p, function() return a * b end,
      function() return a end)) + a
  end },
  ["of a choice of integers"] = { "3 -; 5 -", "3 -; 5 -", function(a, b, p)
    return float(tf.cond(p, function() return whole(a) end,
      function() return whole(b) end)) * a
  end },
  ["of what another result depends on"] = { "6 -; 1 -", "6 0; 1 0",
    function(a, b, p)
      return (tf.cond(p, function() return a * a, b * b end,
        function() return a, b end))
    end },
  ["of what another result of one branch depends on"] = { "2 -; 3 -",
    "2 0; 3 0", function(a, b, p)
      return (tf.cond(p, function() return a * 2, b * b end,
        function() return a * 3, a end))
    end },
  ["of what a result of integers depends on"] = { "2 -; 3 -", "2 -; 3 -",
    function(a, b, p)
      return (tf.cond(p, function() return a * 2, whole(b) end,
        function() return a * 3, const(1, "int32") end))
    end },
  ["of a choice in a choice"] = { "1 -; 2 -", "1 0; 2 0", function(a, b, p)
    return tf.cond(p, function()
      return tf.cond(tf.greater(b, 100), function() return a * b end,
        function() return a * 1 end)
    end, function() return a * 2 end)
  end },
  ["of a loop in a choice"] = { "125 -; 1 -", "125 0; 1 0", function(a, b, p)
    return tf.cond(p, function()
      return loop(function(x) return x * stop(b) end, 3, a)
    end, function() return a * 1 end)
  end },
}

-- The same where nothing asks for p: { eager, traced, fn }.
local LOOPS = {
  ["of all that is used"] = { "135 27", "135 27", function(a, b)
    return loop(function(x) return x * a end, 3, b)
  end },
  ["of what the body stops"] = { "- 27", "0 27", function(a, b)
    return loop(function(x) return x * stop(a) end, 3, b)
  end },
  ["of a variable that the body stops"] = { "45 -", "45 0", function(a, b)
    return loop(function(x) return stop(x) * a end, 3, b)
  end },
  ["of a body that casts to float64"] = { "135 27", "135 27", function(a, b)
    return loop(function(x) return float(double(x) * double(a)) end, 3, b)
  end },
  ["of a body that casts to integers"] = { "45 -", "45 0", function(a, b)
    return loop(function(x) return float(whole(x)) * a end, 3, b)
  end },
  ["of what is not in it"] = { "8 -", "8 -", function(a)
    return loop(function(x) return x * 2 end, 3, a)
  end },
  ["of a variable that stays"] = { "8 -", "8 0", function(a, b)
    return loop(function(x, y) return x * 2, y end, 3, a, b)
  end },
  ["of a variable for itself"] = { "8 -", "8 0", function(a, b)
    return loop(function(x, y) return x * 2, y * 3 end, 3, a, b)
  end },
  ["of a variable that is replaced"] = { "2 -", "2 0", function(a, b)
    return loop(function() return a * 2 end, 3, b)
  end },
  ["of a body that is constant"] = { "1 -", "1 0", function(a, b)
    return loop(function() return const(2.0) end, 3, b) + a
  end },
  ["of what the condition uses"] = { "2 -", "2 0", function(a, b)
    return (tf.while_loop(function(x) return tf.less(x, b) end,
      function(x) return x * 2 end, { a }))
  end },
  ["of no turn"] = { "- 1", "0 1", function(a, b)
    return loop(function(x) return x * a end, 0, b)
  end },
  ["of a body that is stopped"] = { "1 -", "1 0", function(a, b)
    return loop(function(x) return stop(x * a) end, 3, b) + a
  end },
  ["of a choice in a loop"] = { "1 -", "1 0", function(a, b)
    return loop(function(x)
      return tf.cond(tf.greater(x, 100), function() return x * b end,
        function() return x * 1 end)
    end, 3, a)
  end },
  ["of rows that are not used"] = { "- 2", "0 2", function(a, b)
    return tf.map_fn(function() return const(2.0) end, tf.stack { a, a }) + b
  end },
  ["of rows that are stopped"] = { "- 6", "0 6", function(a, b)
    return tf.map_fn(function(y) return stop(y) * b end, tf.stack { a, a })
  end },
  ["of what each row meets stopped"] = { "10 -", "10 0", function(a, b)
    return tf.map_fn(function(y) return y * stop(b) end, tf.stack { a, a })
  end },
  ["of rows that a fold does not use"] = { "- 4", "0 4", function(a, b)
    return tf.foldl(function(x) return x * 2 end, tf.stack { a, a }, b)
  end },
  ["of rows that a scan stops"] = { "- 12", "0 12", function(a, b)
    return tf.scan(function(x, y) return stop(y) * x end, tf.stack { a, a }, b)
  end },
}

local function gradient(fn, a, b, p)
  local tape, y = tf.GradientTape(function(t)
    t:watch { a, b }
    return fn(a, b, p)
  end)
  local list = tape:gradient(y, { a, b })
  return list[1], list[2]
end

local function text_of(g)
  return g == nil and "-" or ("%g"):format(tf.reduce_sum(g):item())
end

local function said(run, p)
  local of_a, of_b = run(const(3.0), const(5.0), const(p))
  return text_of(of_a) .. " " .. text_of(of_b)
end

local function check(fn, given, eager, traced)
  local inside = tf.function_(function(a, b, p)
    return gradient(fn, a, b, p)
  end)
  local f = tf.function_(fn)
  local function outside(a, b, p)
    return gradient(f, a, b, p)
  end
  local at = 1
  for want in (eager .. ";"):gmatch "%s*(.-);" do
    assert.are.equal(want, said(function(a, b, p)
      return gradient(fn, a, b, p)
    end, given[at]))
    at = at + 1
  end
  at = 1
  for want in (traced .. ";"):gmatch "%s*(.-);" do
    assert.are.equal(want, said(inside, given[at]))
    assert.are.equal(want, said(outside, given[at]))
    at = at + 1
  end
end

describe("the gradient through tf.cond", function()
  for name, case in pairs(CHOICES) do
    it(name, function()
      check(case[3], { true, false }, case[1], case[2])
    end)
  end
end)

describe("the gradient through loops", function()
  for name, case in pairs(LOOPS) do
    it(name, function()
      check(case[3], { true }, case[1], case[2])
    end)
  end

  it("of a variable that the condition uses, and of one that is cast", function()
    local v, w = tf.Variable(3.0), tf.Variable(5.0)
    local function run(b)
      local tape, y = tf.GradientTape(function()
        return (tf.while_loop(function(x) return tf.less(x, w) end, function(x)
          return x * 2 + 0 * float(whole(v))
        end, { b }))
      end)
      local list = tape:gradient(y, { v, w })
      return list[1], list[2]
    end
    assert.is_nil((run(const(2.0))))
    local of_v, of_w = tf.function_(run)(const(2.0))
    assert.are.same({ 0, 0 }, { of_v:item(), of_w:item() })
  end)

  -- A tape sees no variable that is stopped; a call, which is one step of the
  -- tapes around it, has all that its loops capture.
  it("of a variable that each turn stops", function()
    local v, fixed = tf.Variable(3.0), tf.Variable(1.0, { trainable = false })
    local of_turn
    local function turns(x, read)
      return loop(function(z)
        local inner, part = tf.GradientTape(function()
          return z * stop(read(v)) * stop(fixed)
        end)
        of_turn = inner:gradient(part, v)
        return part
      end, 3, x)
    end
    local function differentiate_by(x, fn, read)
      local tape, y = tf.GradientTape(function(t)
        t:watch(x)
        return fn(x, read)
      end)
      local list = tape:gradient(y, { v, x, fixed })
      assert.is_nil(of_turn)
      assert.is_nil(list[3])
      return list[1], list[2]
    end
    local function check_both(want, fn, around, read)
      local x = const(2.0)
      local inside = tf.function_(function(z)
        return differentiate_by(z, fn, read)
      end)
      local list = { inside(x) }
      assert.are.same({ want, 27 }, { list[1] and list[1]:item() or "-",
        list[2]:item() })
      list = { differentiate_by(x, around, read) }
      assert.are.same({ 0, 27 }, { list[1]:item(), list[2]:item() })
    end
    local around = tf.function_(turns)
    check_both("-", turns, around, function(w) return w end)
    check_both(0, turns, around, tf.identity)
  end)

  it("of open sizes has zeros of the call's size", function()
    local f = tf.function_ { input_signature = {
      tf.TensorSpec({ -1 }, "float32") } }(function(x)
      local tape, y = tf.GradientTape(function(t)
        t:watch(x)
        return loop(function(z) return z + tf.reduce_sum(stop(x)) end, 3,
          const(0.0))
      end)
      return tape:gradient(y, x)
    end)
    for n = 1, 3 do
      assert.are.same({ n }, f(tf.ones { n }).shape)
    end
  end)
end)
