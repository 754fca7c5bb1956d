--- What a misused call says: one error object of the right kind, with the
--- user's value and the expectation in its message and the user's line as its
--- place; never a crash, never a bare string.

local catalogue = require "spec.fuzz.catalogue"
local raw = require "tfdist.core.raw"
local refused = require "spec.support.refused"
local tf = require "tfdist"

local unpack = table.unpack or unpack -- luacheck: ignore 113 143

local function call(fn, args)
  local result = fn(unpack(args, 1, args.n))
  return result
end
refused.help(call)

-- Every op of the registry

local a_tensor = tf.zeros { 2, 3 }
local an_index = tf.zeros({ 2 }, { dtype = "int32" })
local released = tf.zeros { 2 }
released:release()
local tape = tf.GradientTape()
tape:close()

local PLACEHOLDERS = {
  t = a_tensor, n = an_index, ["t*"] = { a_tensor }, i = 1, f = 1, l = { 1 },
  d = "float32", b = true,
}

local function placeholder(kind)
  if kind:sub(1, 1) == "e" then return kind:match "%((%w+)" end
  return PLACEHOLDERS[kind]
end

--- Required arguments that pass the first checks; the others are nil.
local function arguments(sig)
  local args = { n = sig.n }
  for i = 1, sig.n do
    if sig.required[i] then args[i] = placeholder(sig.kinds[i]) end
  end
  return args
end

local function with(sig, i, value)
  local args = arguments(sig)
  args[i] = value
  return args
end

local function each_op(fn)
  for _, op in ipairs(catalogue.ops) do
    fn(op.sig.what, op.fn, op.sig)
  end
end

--- fn(what, op, sig, i, parameter) for the parameters of some kinds.
local function each_parameter(kinds, fn)
  each_op(function(what, op, sig)
    for i = 1, sig.n do
      if kinds[sig.kinds[i]] or kinds[sig.kinds[i]:sub(1, 1) .. "("] then
        fn(what, op, sig, i, sig.names[i])
      end
    end
  end)
end

--- Each of `values` ({ value, kind of error }) is refused for each parameter.
local function refuse_all(kinds, values)
  each_parameter(kinds, function(what, op, sig, i, name)
    for _, entry in ipairs(values) do
      local args = with(sig, i, entry[1])
      refused.check(("%s with %s = %s"):format(what, name, type(entry[1])),
        entry[2], { what, name, entry[3] }, function()
          call(op, args)
        end)
    end
  end)
end

describe("every op", function()
  it("names the argument that is missing", function()
    each_op(function(what, op, sig)
      for i = 1, sig.n do
        if sig.required[i] then
          local args = arguments(sig)
          args.n = i - 1
          refused.check(what, "TypeError", { what .. ": missing argument "
            .. sig.names[i] }, function() call(op, args) end)
        end
      end
    end)
  end)

  it("names the nearest option for one that it does not know", function()
    each_op(function(what, op, sig)
      local args = arguments(sig)
      local last = 0
      for i = 1, sig.n do
        if sig.required[i] then last = i end
      end
      args[last + 1], args.n = { nme = "x" }, last + 1
      local e = refused.check(what, "ValueError",
        { what .. ': unknown option "nme"' }, function() call(op, args) end)
      assert.equal("did you mean name?", e.hint)
    end)
  end)

  it("refuses more arguments than it has", function()
    each_op(function(what, op, sig)
      local args = arguments(sig)
      args.n = sig.n + 2
      args[sig.n + 1], args[sig.n + 2] = "name", 5
      refused.check(what, "TypeError", { what .. ": takes at most ",
        "the number 5" },
        function() call(op, args) end)
    end)
  end)

  it("refuses an argument that is given twice", function()
    each_op(function(what, op, sig)
      if not sig.required[1] or sig.kinds[1] == "l" then return end
      local args = arguments(sig)
      local last = 0
      for i = 1, sig.n do
        if sig.required[i] then last = i end
      end
      args[last + 1], args.n = { [sig.names[1]] = args[1] }, last + 1
      refused.check(what, "TypeError", { sig.names[1] .. " is given twice" },
        function() call(op, args) end)
    end)
  end)

  it("refuses released tensors", function()
    each_parameter({ t = true, n = true, ["t?"] = true, ["n?"] = true },
      function(what, op, sig, i, name)
        local args = with(sig, i, released)
        refused.check(what, "FailedPrecondition", { what, name, "released" },
          function() call(op, args) end)
      end)
    each_parameter({ ["t*"] = true }, function(what, op, sig, i, name)
      local args = with(sig, i, { a_tensor, released })
      refused.check(what, "FailedPrecondition",
        { what, name .. "[2]", "released" },
        function() call(op, args) end)
    end)
  end)

  it("says what was given in place of a tensor", function()
    refuse_all({ t = true, n = true, ["t?"] = true, ["n?"] = true }, {
      { raw.device_at("CPU", 0), "TypeError", "a device" },
      { raw.context_new(), "TypeError", "a context" },
      { tape, "TypeError", "a GradientTape" },
      { print, "TypeError", "a function" },
      { "x", "TypeError", 'the string "x"' },
      { coroutine.create(print), "TypeError", "a thread" },
      { io.stdout, "TypeError", "" },
    })
  end)

  it("says what was given in place of a list of tensors", function()
    refuse_all({ ["t*"] = true }, {
      { a_tensor, "TypeError", "a Tensor" }, { 5, "TypeError", "the number 5" },
      { "x", "TypeError", 'the string "x"' },
      { { a_tensor, print }, "TypeError", "a function" },
      { { n = "x" }, "TypeError", 'the string "x"' },
      { { a_tensor, nil, a_tensor, n = 3 }, "TypeError", "nil" },
    })
  end)

  it("refuses what is no whole number", function()
    refuse_all({ i = true }, {
      { 1.5, "ValueError", "1.5" }, { 0 / 0, "ValueError", "nan" },
      { 1 / 0, "ValueError", "inf" }, { -1 / 0, "ValueError", "-inf" },
      { 2 ^ 63, "ValueError", "9.22" }, { -2 ^ 64, "ValueError", "-1.84" },
      { "x", "TypeError", '"x"' }, { { 1, 2 }, "TypeError", "a table" },
      { true, "TypeError", "true" }, { a_tensor, "TypeError", "{2, 3}" },
      { print, "TypeError", "a function" },
    })
  end)

  it("refuses what is no list of whole numbers", function()
    refuse_all({ l = true }, {
      { { 1.5 }, "ValueError", "1.5" }, { { 0 / 0 }, "ValueError", "nan" },
      { { 2 ^ 63 }, "ValueError", "9.22" }, { 0.5, "ValueError", "0.5" },
      { { "a" }, "TypeError", '"a"' }, { { { 1 } }, "TypeError", "a table" },
      { { 1, nil, 3, n = 3 }, "TypeError", "nil" },
      { { 1, n = 2 ^ 53 }, "TypeError", "nil" },
      { { 1, 2, n = -1 }, "TypeError", "-1" },
      { "x", "TypeError", '"x"' }, { true, "TypeError", "true" },
      { print, "TypeError", "a function" }, { a_tensor, "TypeError", "rank 2" },
      { { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, "ValueError", "9 entries; 8" },
    })
  end)

  it("refuses what is no boolean", function()
    refuse_all({ b = true }, {
      { 1, "TypeError", "the number 1" }, { "true", "TypeError", '"true"' },
      { { 1, 2 }, "TypeError", "a table" }, { a_tensor, "TypeError",
        "a Tensor" },
    })
  end)

  it("refuses what is no number", function()
    refuse_all({ f = true }, {
      { "1", "TypeError", '"1"' }, { true, "TypeError", "true" },
      { { 1, 2 }, "TypeError", "a table" }, { a_tensor, "TypeError",
        "{2, 3}" },
    })
  end)

  it("lists the choices of an enumeration", function()
    refuse_all({ ["e("] = true }, {
      { "zzz", "ValueError", 'must be one of' }, { 5, "TypeError", "got the" },
      { { 1, 2 }, "TypeError", "must be one of" },
    })
  end)

  it("lists the dtypes there are", function()
    each_parameter({ d = true }, function(what, op, sig, i)
      for _, value in ipairs { "float99", 5, { 1, 2 }, print } do
        local args = with(sig, i, value)
        refused.check(what, "TypeError", { what, "is no dtype", "bfloat16" },
          function() call(op, args) end)
      end
    end)
  end)
end)

-- Axes

-- Ops whose axis cannot be checked on a {2, 3} of floats alone.
local AXIS_ARGUMENTS = {
  concat = { { a_tensor, a_tensor } }, stack = { { a_tensor, a_tensor } },
  one_hot = { an_index, 3 },
  split_v = { a_tensor, { 1, 1 } }, split = { a_tensor, 1 },
  gather_grad = { a_tensor, an_index, { 2, 3 } },
  roll = { a_tensor, 1 }, repeat_ = { a_tensor, 2 },
  reduce_any = { tf.cast(a_tensor, "bool") },
  reduce_all = { tf.cast(a_tensor, "bool") },
}
-- Gradient ops: their callers have checked the axis.
local UNCHECKED = {
  layer_normalization_grad = true, group_normalization_grad = true,
  gather_grad = true,
}

describe("an axis outside the tensor", function()
  it("is a ValueError that shows it, the rank and the shape", function()
    refused.check("reduce_sum", "ValueError", {
      "ValueError: reduce_sum: axis 2 is outside a tensor of rank 2 {64, 10}; "
        .. "axes count from 0, -1 is the last" }, function()
      local x = tf.reduce_sum(tf.zeros { 64, 10 }, 2)
      return x
    end)
  end)

  it("is refused by every op that has one", function()
    each_op(function(what, op, sig)
      local i = sig.index.axis
      if i == nil or UNCHECKED[what] then return end
      local base = AXIS_ARGUMENTS[what] or { a_tensor }
      if what == "repeat" then base = AXIS_ARGUMENTS.repeat_ end
      for _, axis in ipairs { 4, -5, 2 ^ 31, -2 ^ 31, 2 ^ 53, -2 ^ 63 } do
        local args = arguments(sig)
        for j = 1, #base do args[j] = base[j] end
        args[i] = axis
        refused.check(what .. " axis " .. axis, "ValueError",
          { what, ("axis %.0f is outside"):format(axis) }, function()
            call(op, args)
          end)
      end
    end)
  end)
end)

-- Functions and methods

-- Functions that take anything, or nothing to check.
local function each_function(fn)
  for _, entry in ipairs(catalogue.functions) do
    -- Methods, below the name of their class, are tested with their class, and
    -- constructors in spec/calls_spec.lua.
    if entry.sig ~= nil and entry.class == nil
      and not entry.name:find "%.%u%w*%.[%w_]+$" then
      fn(entry.name, entry.fn, entry.sig)
    end
  end
end

local function plain_arguments(sig)
  local args, last = { n = 0 }, 0
  for i = 1, sig.n do
    if sig.required[i] then
      args[i] = placeholder(sig.kinds[i] or "t") or a_tensor
      last = i
    end
  end
  args.n = last
  return args
end

describe("every function", function()
  it("knows its parameters", function()
    local known = 0
    each_function(function() known = known + 1 end)
    assert.is_true(known > 350, ("%d signatures"):format(known))
  end)

  it("refuses options that it does not know", function()
    each_function(function(name, fn, sig)
      local args = plain_arguments(sig)
      -- Loop variables, structures and the like are tables with any keys.
      local kind = sig.kinds[args.n + 1]
      if kind == "table" or kind == "nest" or kind == "dict" then return end
      args.n = args.n + 1
      args[args.n] = { zzzz = 1 }
      refused.check(name, "ValueError", { sig.what, 'unknown option "zzzz"' },
        function() call(fn, args) end)
    end)
  end)

  it("refuses surplus arguments", function()
    each_function(function(name, fn, sig)
      local args = plain_arguments(sig)
      args.n = sig.n + 1
      args[args.n] = 5
      refused.check(name, "TypeError", { sig.what, "takes at most" }, function()
        call(fn, args)
      end)
    end)
  end)

  it("names what is missing", function()
    each_function(function(name, fn, sig)
      for i = 1, sig.n do
        if sig.required[i] then
          local args = plain_arguments(sig)
          args.n = i - 1
          refused.check(name, "TypeError", { sig.what .. ": missing argument "
            .. sig.names[i] }, function() call(fn, args) end)
        end
      end
    end)
  end)
end)

local WRONG_SELVES = { 3, "x", {}, print }

local function dot_for_colon(class, noun, methods)
  for name, method in pairs(methods) do
    if type(method) == "function" and name:sub(1, 2) ~= "__" then
      refused.check(class .. "." .. name, "TypeError", { name,
        "the first argument must be the " .. noun .. " itself, got nil",
        "with a colon" }, function() method() end)
      for _, self in ipairs(WRONG_SELVES) do
        refused.check(class .. "." .. name, "TypeError",
          { "must be the " .. noun .. " itself, got " }, function()
            method(self)
          end)
      end
    end
  end
end

describe("a dot for the colon", function()
  it("is seen by every method of tensors", function()
    local methods = {}
    for _, name in ipairs(catalogue.methods) do
      methods[name] = tf.Tensor[name]
    end
    dot_for_colon("Tensor", "tensor", methods)
  end)

  it("is seen by the methods of variables", function()
    local v = tf.Variable { 1 }
    local methods = {}
    for _, name in ipairs { "assign", "assign_add", "assign_sub", "read_value",
      "value", "scatter_update", "scatter_nd_add", "sparse_read" } do
      methods[name] = v[name]
    end
    dot_for_colon("Variable", "variable", methods)
  end)

  it("is seen by the methods of tapes", function()
    local methods = {}
    for _, name in ipairs { "watch", "watched_variables", "gradient", "reset",
      "jacobian", "batch_jacobian", "stop_recording", "close" } do
      methods[name] = tape[name]
    end
    dot_for_colon("GradientTape", "tape", methods)
  end)

  it("is seen by the methods of generators", function()
    local generator = tf.random.Generator.from_seed(1)
    local methods = {}
    for _, name in ipairs { "normal", "uniform", "truncated_normal", "split",
      "skip", "reset" } do
      methods[name] = generator[name]
    end
    dot_for_colon("Generator", "generator", methods)
  end)

  it("by its text", function()
    local x = tf.zeros { 2 }
    local e = refused.check("sum", "TypeError", { "Tensor.sum: the first "
      .. "argument must be the tensor itself, got the number 0" }, function()
      local y = x.sum(0)
      return y
    end)
    assert.equal("call tensor:sum(axis, keepdims) with a colon", e.hint)
  end)
end)

describe("a misspelt option", function()
  it("is named with the nearest one", function()
    local e = refused.check("Adam", "ValueError",
      { 'Adam: unknown option "learningrate"' }, function()
        local x = tf.keras.optimizers.Adam { learningrate = 1 }
        return x
      end)
    assert.equal("did you mean learning_rate?", e.hint)
  end)

  it("of a table with a list in it too is named", function()
    refused.check("reduce_sum", "ValueError", { "reduce_sum" }, function()
      local x = tf.reduce_sum(a_tensor, { 0, keepdims = true })
      return x
    end)
  end)
end)

describe("a released handle", function()
  it("cannot be used in any way", function()
    local v = tf.Variable { 1 }
    v:release()
    for label, fn in pairs {
      method = function() local x = released:sum() return x end,
      operator = function() local x = released + 1 return x end,
      negation = function() local x = -released return x end,
      length = function() local x = #released return x end,
      property = function() local x = released.shape return x end,
      index = function() local x = released[0] return x end,
      item = function() local x = released:item() return x end,
      assign = function() v:assign { 2 } end,
      ["read"] = function() local x = v + 1 return x end,
      watch = function() tf.GradientTape(function(t) t:watch(released) end) end,
      list = function() local x = tf.concat({ released }, 0) return x end,
      constant = function() local x = tf.constant(released) return x end,
    } do
      refused.check(label, "FailedPrecondition", { "released" }, fn)
    end
  end)

  it("can be printed and released again", function()
    assert.matches("released", tostring(released))
    released:release()
  end)
end)
