local leaks = require "spec.support.leaks"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
require "tfdist.core.ops" -- what C asks of Lua

-- The function of an op.
local function op_function(op)
  local sig = options.signature(raw.op_name(op), raw.op_schema(op)
    .. " name=nil")
  return raw.op_function(op, sig.index, sig)
end

local function tensor(value, dtype)
  return (raw.tensor_from_table(value, dtype))
end

-- Attribute slots of an op with the schema's defaults, `given` by name.
local function slots(op, given)
  local list = {}
  for name, kind, default in (raw.op_schema(op) .. " "):gmatch(
    "([%w_]+):([bidefl])[^= ]*=?(%S*) ") do
    local value = given[name] or tonumber(default) or 0
    if kind == "l" then
      list[#list + 1] = -1
      for _ = 1, 8 do
        list[#list + 1] = 0
      end
    elseif kind ~= "f" then
      list[#list + 1] = value
    end
  end
  return list
end

-- The error object that fn raises.
local function failure(fn, ...)
  local ok, e = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_table(e)
  return e
end

describe("handles", function()
  leaks(before_each, after_each)

  it("know their kind", function()
    local t = tensor { 1, 2 }
    local v = raw.variable_new(t, "v", true)
    assert.equal("tensor", raw.kind(t))
    assert.equal("variable", raw.kind(v))
    assert.equal("device", raw.kind(raw.device_current()))
    assert.equal("tape", raw.kind(raw.tape_new(false, true)))
    for _, x in ipairs { 1, "s", true, {}, print, io.stdout } do
      assert.is_nil(raw.kind(x))
    end
    assert.is_nil(raw.kind(nil))
  end)

  it("tell operands from other things", function()
    local t = tensor { 1 }
    assert.is_true(raw.is_operand(t))
    assert.is_true(raw.is_operand(raw.variable_new(t, "v", true)))
    assert.is_false(raw.is_operand(raw.device_current()))
    assert.is_false(raw.is_operand(1))
    t:release()
    assert.is_false(raw.is_operand(t))
  end)

  it("are counted in plain lists of nothing else", function()
    local t, v = tensor { 1 }, raw.variable_new(tensor { 1 }, "v", true)
    assert.equal(0, raw.operand_count {})
    assert.equal(2, raw.operand_count { t, v })
    assert.equal(2, raw.operand_count { t, v, n = 2 })
    assert.equal(2, raw.operand_count({ t, t }, true))
    local device, meta = raw.device_current(), setmetatable({ t }, {})
    for _, x in pairs { 1, t, meta, { t, 1 }, { t, nil, v }, { t, n = 2 },
      { t, v, n = 1 }, { t, x = v }, { [2] = t }, { device }, { t, { v } },
      { t, n = "1" }, { t, [0] = v } } do
      assert.is_nil(raw.operand_count(x))
    end
    assert.is_nil(raw.operand_count(nil))
    assert.is_nil(raw.operand_count({ t, v }, true))
    t:release()
    assert.is_nil(raw.operand_count { t, v })
  end)

  it("are compared as they are in lists", function()
    local a, b = tensor { 1 }, tensor { 1 }
    assert.is_true(raw.same_elements({ a, b }, { a, b, 1 }, 2))
    assert.is_false(raw.same_elements({ a, b }, { a, a }, 2))
    assert.is_true(raw.same_elements({ a, b }, { a, a }, 1))
    assert.is_false(raw.same_elements({ a }, nil, 1))
  end)

  it("refuse everything but a second release once released", function()
    local t = tensor { 1, 2 }
    t:release()
    t:release()
    raw.release(t)
    assert.is_true(raw.is_released(t))
    assert.equal("tensor", raw.kind(t))
    for _, name in ipairs { "tensor_rank", "tensor_wait", "tensor_to_table",
      "item", "tensor_bytes", "tensor_to_flat", "tensor_device" } do
      local e = failure(raw[name], t)
      assert.equal("FailedPrecondition", e.kind)
      assert.matches("handle is released", e.message)
    end
    local e = failure(raw.op_run, raw.op_find("identity"), { t })
    assert.equal("FailedPrecondition", e.kind)
  end)

  it("name the method, the argument and what was given", function()
    local e = failure(raw.tensor_rank, 3)
    assert.equal("TypeError", e.kind)
    assert.equal("Tensor:rank: the first argument must be the tensor itself, "
      .. "got a number", e.message)
    assert.matches("with a colon", e.hint)
    e = failure(raw.tensor_dim, tensor { 1 }, "x")
    assert.matches("Tensor:dim: argument \"axis\" must be a whole number, "
      .. "got a string", e.message)
    e = failure(raw.tensor_dim, tensor { 1 }, 1.5)
    assert.matches("whole number, got 1%.5", e.message)
    e = failure(raw.variable_assign, tensor { 1 }, tensor { 1 })
    assert.matches("must be the variable itself, got a tensor", e.message)
    e = failure(raw.tensor_to_device, tensor { 1 }, nil)
    assert.matches("\"device\" must be a device, got nil", e.message)
  end)

  it("are not fooled by foreign userdata or borrowed metatables", function()
    assert.equal("TypeError", failure(raw.tensor_rank, io.stdout).kind)
    local mt = raw.metatable("tensor")
    local fake = setmetatable({}, mt)
    assert.equal("TypeError", failure(raw.tensor_rank, fake).kind)
    if mt.__gc == nil then return end -- LuaJIT's handles have no finaliser
    -- The finaliser called by hand on anything does nothing.
    mt.__gc(io.stdout)
    mt.__gc(fake)
    mt.__gc(1)
    local t = tensor { 1, 2, 3 }
    mt.__gc(t)
    assert.is_true(raw.is_released(t))
  end)

  it("are the same object for the same device, variable and tape", function()
    assert.is_true(rawequal(raw.device_current(), raw.device_at("CPU", 0)))
    assert.is_true(rawequal(raw.device_current(),
      raw.device_find("/device:CPU:0")))
    local tape = raw.tape_new(false, true)
    local v = raw.variable_new(tensor { 1, 2 }, "v", true)
    raw.variable_read(v)
    assert.is_true(rawequal(v, raw.tape_variable(tape, 0)))
    raw.tape_stop(tape)
  end)

  it("forget a released object's identity", function()
    for i = 1, 50 do
      local v = raw.variable_new(tensor { i }, "v" .. i, true)
      assert.equal("v" .. i, raw.variable_name(v))
      v:release()
    end
  end)

  it("give a tensor a second life of its own", function()
    local t = tensor { 4, 5 }
    local u = raw.retain(t)
    assert.is_false(rawequal(t, u))
    t:release()
    assert.same({ 4, 5 }, raw.tensor_to_table(u))
  end)

  it("keep devices through release and collection", function()
    local d = raw.device_current()
    d:release()
    collectgarbage()
    assert.equal("/cpu:0", raw.device_short_name(raw.device_find("CPU:0")))
    assert.equal("/cpu:0", raw.device_short_name(d))
  end)

  it("are freed by the collector", function()
    raw.collect()
    local before = raw.live_handles("tensor")
    for _ = 1, 100 do
      tensor { 1, 2, 3 }
    end
    raw.collect()
    assert.is_true(raw.live_handles("tensor") <= before)
  end)

  it("may come and go inside finalisers", function()
    local made = 0
    local probe = function()
      local t = tensor { 1, 2, 3 }
      made = made + raw.tensor_size(t)
      raw.collect()
      t:release()
    end
    local newproxy = rawget(_G, "newproxy")
    if newproxy then
      getmetatable(newproxy(true)).__gc = probe
    else
      setmetatable({}, { __gc = probe })
    end
    collectgarbage()
    collectgarbage()
    assert.equal(3, made)
  end)

  it("brought back to life by a finaliser are open or read as released",
    function()
      local back
      -- The finaliser alone holds the tensor.
      ;(function()
        local t = tensor { 1, 2, 3 }
        local function probe() back = t end
        local newproxy = rawget(_G, "newproxy")
        if newproxy then
          getmetatable(newproxy(true)).__gc = probe
        else
          setmetatable({}, { __gc = probe })
        end
      end)()
      collectgarbage()
      collectgarbage()
      -- Others take the places of what was collected.
      local others = {}
      for i = 1, 5000 do others[i] = tensor { i } end
      assert.equal("tensor", raw.kind(back))
      if raw.is_released(back) then
        assert.equal("FailedPrecondition", failure(raw.tensor_size, back).kind)
      else
        assert.same({ 1, 2, 3 }, raw.tensor_to_table(back))
      end
      assert.equal(5000, raw.tensor_to_table(others[5000])[1])
    end)

  it("come in any number, in any order, and again", function()
    raw.collect()
    local before = raw.live_handles("tensor")
    for _ = 1, 3 do
      local kept = {}
      for i = 1, 30000 do kept[i] = tensor { i } end
      for i = 1, 30000 do
        if i % 3 ~= 0 then kept[i] = nil end
      end
      raw.collect()
      assert.equal(before + 10000, raw.live_handles("tensor"))
      for i = 30001, 50000 do kept[i] = tensor { i } end
      for i = 3, 50000, 3 do
        assert.equal(i, raw.tensor_item(kept[i], 0))
      end
      kept = nil
      raw.collect()
      assert.is_true(raw.live_handles("tensor") <= before, kept)
    end
  end)
end)

describe("arguments", function()
  leaks(before_each, after_each)

  it("take lists, with n where the length needs saying", function()
    assert.equal(2, raw.tensor_rank(raw.tensor_from_values({ 0 }, "float32",
      { 2, 3 })))
    assert.equal(0, raw.tensor_rank(raw.tensor_from_values({ 1 }, "float32",
      {})))
    assert.equal(1, raw.tensor_rank(raw.tensor_from_values({ 1 }, "float32",
      { 4, 5, n = 1 })))
    local values = {}
    for i = 1, 100 do
      values[i] = i
    end
    local t = raw.tensor_from_values(values, "int32", { 100 })
    assert.same(values, raw.tensor_to_table(t))
  end)

  it("name the element of a list that is wrong", function()
    local e = failure(raw.tensor_from_values, { 1, 2 }, "float32", { 1, "x" })
    assert.equal("TypeError", e.kind)
    assert.matches("\"dims\"%[2%] must be a whole number, got a string",
      e.message)
    e = failure(raw.tensor_from_values, { 1, {} }, "float32", { 2 })
    assert.matches("\"values\"%[2%] must be a number, got a table", e.message)
    e = failure(raw.op_run, 0, { 7 })
    assert.matches("\"inputs\"%[1%] must be handle, got a number", e.message)
    assert.equal("TypeError", failure(raw.op_run, 0, 5).kind)
  end)

  it("read enums in any case and list the names there are", function()
    assert.equal("float64", raw.tensor_dtype(raw.tensor_from_values({ 1 },
      "Float64", {})))
    local e = failure(raw.tensor_from_values, { 1 }, "float", {})
    assert.equal("ValueError", e.kind)
    assert.matches("\"float32\", \"float64\"", e.message)
  end)

  it("refuse numbers that a C int cannot hold", function()
    local t = tensor { 1 }
    assert.equal("ValueError", failure(raw.tensor_dim, t, 2 ^ 40).kind)
    assert.equal("TypeError", failure(raw.tensor_dim, t, 1e300).kind)
    assert.equal("TypeError", failure(raw.tensor_dim, t, 0 / 0).kind)
  end)

  it("refuse zero bytes in names", function()
    assert.equal("ValueError", failure(raw.device_find, "CPU:0\0x").kind)
  end)

  it("keep zero bytes in data", function()
    local t = raw.tensor_from_bytes("\0\1\0\2", "uint8", { 4 })
    assert.same({ 0, 1, 0, 2 }, raw.tensor_to_table(t))
    assert.equal("\0\1\0\2", raw.tensor_bytes(t))
  end)

  it("may be nil where the header says so", function()
    raw.device_push(nil)
    raw.device_pop()
    raw.context_enter(nil)
    assert.is_not_nil(raw.variable_new(tensor { 1 }, "v", true, nil))
  end)

  it("count from nothing when missing", function()
    assert.equal("TypeError", failure(raw.tensor_rank).kind)
    assert.matches("got nil", failure(raw.tensor_rank).message)
    assert.equal("TypeError", failure(raw.device_find).kind)
  end)
end)

describe("results", function()
  leaks(before_each, after_each)

  it("of several values come in the header's order", function()
    local current, peak, reserved = raw.device_memory(raw.device_current())
    assert.is_number(current)
    assert.is_true(peak >= current)
    assert.is_number(reserved)
  end)

  it("are nil for a NULL handle", function()
    local tape = raw.tape_new(false, true)
    local x, y = tensor { 1 }, tensor { 2 }
    raw.tape_watch(tape, x)
    local z = raw.op_run(raw.op_find("identity"), { x })
    local walk = raw.walk_begin(tape, { z }, { x, y }, nil, false)
    assert.equal("done", raw.walk_next(walk))
    assert.same({ 1 }, raw.tensor_to_table(raw.walk_gradient(walk, 0)))
    assert.is_nil(raw.walk_gradient(walk, 1))
    assert.equal(1, select("#", raw.walk_gradient(walk, 1)))
  end)

  it("carry C's error kind and message", function()
    local e = failure(raw.device_find, "TPU:0")
    assert.equal("InvalidArgument", e.kind)
    assert.matches("cpu:0", e.message)
    e = failure(raw.tensor_from_bytes, "abc", "float32", { 1 })
    assert.equal("InvalidArgument", e.kind)
    assert.equal("IndexError", failure(raw.item, tensor { 1 }, 5).kind)
    assert.equal("NotImplementedError", failure(raw.op_find, "no_op_here").kind)
  end)
end)

describe("ops", function()
  local identity, reshape, fill

  leaks(before_each, after_each)

  setup(function()
    identity = raw.op_find("identity")
    reshape = raw.op_find("reshape")
    fill = raw.op_find("fill")
  end)

  local function slow(...)
    return "slow", select("#", ...), ...
  end

  it("know their names and schemas", function()
    assert.equal("identity", raw.op_name(identity))
    assert.matches("shape:l", raw.op_schema(reshape))
    assert.is_true(raw.op_count() > 4)
    assert.is_true(raw.op_is_differentiable(reshape))
    assert.is_false(raw.op_is_differentiable(fill))
  end)

  it("run with attribute slots", function()
    local t = raw.op_run(reshape, { tensor { 1, 2, 3, 4 } },
      { 2, 2, 2, 0, 0, 0, 0, 0, 0 })
    assert.same({ { 1, 2 }, { 3, 4 } }, raw.tensor_to_table(t))
    t = raw.op_run(fill, nil, { 1, 3, 0, 0, 0, 0, 0, 0, 0,
      raw.enums.dtype.int32 }, { 7 })
    assert.same({ 7, 7, 7 }, raw.tensor_to_table(t))
  end)

  it("refuse wrong numbers of inputs and attributes", function()
    assert.equal("InvalidArgument", failure(raw.op_run, identity, {}).kind)
    assert.equal("InvalidArgument", failure(raw.op_run, reshape,
      { tensor { 1 } }, { 1 }).kind)
    assert.equal("NotImplementedError", failure(raw.op_run, 99999, {}).kind)
    assert.equal("NotImplementedError", failure(raw.op_run, -1, {}).kind)
  end)

  it("have functions that follow the calling rule", function()
    local f, t = op_function(identity), tensor { 1, 2 }
    assert.same({ 1, 2 }, raw.tensor_to_table(f(t)))
    assert.same({ 1, 2 }, raw.tensor_to_table(f(raw.variable_new(t, "v", true))))
    assert.same({ 1, 2 }, raw.tensor_to_table(f { input = t }))
    assert.same({ 1, 2 }, raw.tensor_to_table(f(t, { name = "n" })))
    assert.equal(5, raw.tensor_to_table(f(5)))
    assert.equal("TypeError", failure(f).kind)
    assert.equal("TypeError", failure(f, t, 1).kind)
    assert.equal("ValueError", failure(f, t, { nam = "n" }).kind)
    local released = tensor { 1 }
    released:release()
    assert.equal("FailedPrecondition", failure(f, released).kind)
  end)

  it("take attributes by position and by name", function()
    local f, t = op_function(reshape), tensor { 1, 2, 3, 4 }
    local wanted = { { 1, 2 }, { 3, 4 } }
    assert.same(wanted, raw.tensor_to_table(f(t, { 2, 2 })))
    assert.same(wanted, raw.tensor_to_table(f(t, { shape = { 2, 2 } })))
    assert.same(wanted, raw.tensor_to_table(f { tensor = t, shape = { 2, 2 } }))
    assert.equal(1, raw.tensor_rank(f(t, { -1 })))
    assert.equal("TypeError", failure(f, t).kind)
    assert.equal("TypeError", failure(f, t, { 4 }, { shape = { 4 } }).kind)
    local e = failure(f, t, { 1, 1, 1, 1, 1, 1, 1, 1, 4 })
    assert.equal("reshape: shape has 9 entries; 8 is the most", e.message)
  end)

  it("give several results, and many", function()
    local unstack = raw.op_find("unstack")
    local numbers = {}
    for i = 1, 300 do
      numbers[i] = i
    end
    local a, b, c = raw.op_run(unstack, { tensor { 5, 6, 7 } },
      slots(unstack, { num = 3 }))
    assert.same({ 5, 6, 7 }, { raw.item(a), raw.item(b), raw.item(c) })
    local many = { raw.op_run(unstack, { tensor(numbers) },
      slots(unstack, { num = 300 })) }
    assert.equal(300, #many)
    assert.equal(300, raw.item(many[300]))
  end)

  it("turn operators and numbers into operands of the same dtype", function()
    local add = raw.binary_metamethod(raw.op_find("add"), nil, nil, slow)
    local f, i = tensor { 1, 2 }, tensor({ 1, 2 }, "int32")
    assert.same({ 2, 4 }, raw.tensor_to_table(add(f, f)))
    assert.same({ 1.5, 2.5 }, raw.tensor_to_table(add(f, 0.5)))
    assert.same({ 1.5, 2.5 }, raw.tensor_to_table(add(0.5, f)))
    local sum = add(i, 3)
    assert.equal("int32", raw.tensor_dtype(sum))
    assert.same({ 4, 5 }, raw.tensor_to_table(sum))
    assert.same({ "slow", 2, i, 0.5 }, { add(i, 0.5) })
    assert.same({ "slow", 2, 2 ^ 40, i }, { add(2 ^ 40, i) })
    local b = tensor { true }
    assert.same({ "slow", 2, b, 1 }, { add(b, 1) })
    assert.same({ "slow", 2, f, "x" }, { add(f, "x") })
    assert.same({ "slow", 2, f, {} }, { add(f, {}) })
    local e = failure(add, f, i)
    assert.equal("InvalidArgument", e.kind)
  end)

  it("negate with the operand given twice", function()
    local t = tensor { 1, -2 }
    local unm = raw.unary_metamethod(raw.op_find("negative"), nil, nil, slow)
    assert.same({ -1, 2 }, raw.tensor_to_table(unm(t, t)))
    assert.same({ "slow", 1, 5 }, { unm(5, 5) })
  end)

  it("are refused when made wrongly", function()
    assert.equal("NotImplementedError", failure(raw.op_function, 1e6, {},
      {}).kind)
    assert.equal("TypeError", failure(raw.op_function, identity, nil, {}).kind)
    assert.equal("TypeError", failure(raw.op_function, identity, {}, "x").kind)
    assert.equal("TypeError", failure(raw.unary_metamethod, identity, nil, nil,
      nil).kind)
    assert.equal("TypeError", failure(raw.unary_metamethod, identity, { "x" },
      nil, slow).kind)
  end)
end)

describe("running out of memory", function()
  leaks(before_each, after_each)

  after_each(function()
    raw.test_fail_allocation(0)
  end)

  it("collects and tries again once", function()
    local t = tensor { 1, 2, 3 }
    local f = op_function(raw.op_find("copy"))
    for n = 1, 6 do
      raw.test_fail_allocation(n)
      local ok, result = pcall(f, t)
      raw.test_fail_allocation(0)
      assert(ok, tostring(result))
      assert.same({ 1, 2, 3 }, raw.tensor_to_table(result))
    end
  end)

  it("keeps native memory near the limit while tensors are dropped", function()
    raw.collect()
    raw.memory_set_limit(8 * 2 ^ 20)
    local bytes = ("\0"):rep(2 ^ 18)
    local peak = 0
    for _ = 1, 400 do -- 100 MiB in all
      raw.tensor_from_bytes(bytes, "uint8", { 2 ^ 18 })
      peak = math.max(peak, raw.live_bytes())
    end
    assert.is_true(peak < 40 * 2 ^ 20, ("peak %d"):format(peak))
  end)
end)
