local leaks = require "spec.support.leaks"
local raw = require "tfdist.core.raw"

local process = require "spec.support.process"
local expect = require "spec.support.expect"

local failure = expect.caught

if rawget(_G, "jit") == nil then
  describe("tfdist.ffi", function()
    it("says that it needs LuaJIT", function()
      package.loaded["tfdist.ffi"] = nil
      local e = failure(require, "tfdist.ffi")
      assert.matches("needs LuaJIT", tostring(e))
    end)
  end)
  return
end

describe("tfdist.ffi", function()
  local ffi

  setup(function()
    ffi = require "tfdist.ffi"
  end)

  leaks(before_each, after_each)

  it("takes and gives the same objects as everything else", function()
    local t = ffi.tensor_from_values({ 1, 2, 3, 4, 5, 6 }, "float32", { 2, 3 })
    assert.equal("tensor", raw.kind(t))
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, raw.tensor_to_table(t))
    local u = raw.tensor_from_table { 7, 8 }
    assert.equal(8, ffi.tensor_item(u, 1))
    assert.equal("float32", ffi.tensor_dtype(u))
    assert.equal(2, ffi.tensor_size(u))
    assert.equal(-1, ffi.tensor_dim(u, 3))
    assert.is_true(ffi.tensor_is_dense(u))
    assert.is_true(rawequal(raw.device_current(), ffi.device_current()))
    assert.equal("/cpu:0", ffi.device_short_name(ffi.tensor_device(u)))
  end)

  it("offers every function of the C API", function()
    for name, fn in pairs(raw) do
      local by_hand = {
        adopt = 1, binary_metamethod = 1, binder = 1, check_interrupt = 1,
        collect = 1, device_position = 1, fail = 1, forward_ended = 1,
        graph_call = 1,
        graph_calls = 1,
        graph_into_walk = 1, graph_key = 1, graph_list = 1,
        graph_quick = 1, index = 1, is_operand = 1,
        is_released = 1, item = 1, json_decode = 1, json_encode = 1, kind = 1,
        known_dims = 1,
        message_field = 1, message_number = 1, metatable = 1, monotonic = 1,
        note_position = 1,
        op_function = 1, op_run = 1, open_dim = 1, operand_count = 1,
        refuse_open = 1, release = 1, retain = 1, same_elements = 1,
        same_fields = 1, same_values = 1,
        set_environment = 1, set_hook = 1,
        set_library_prefix = 1, set_position = 1, set_raise = 1,
        stop_devices = 1,
        tape_followed = 1, tensor_bytes = 1, tensor_dims = 1,
        tensor_from_table = 1,
        tensor_is_pending = 1, tensor_pointer = 1, tensor_to_flat = 1,
        tensor_to_table = 1, terminal_width = 1, unary_metamethod = 1,
        walk_gradients = 1, walk_wanted = 1, wall_time = 1
      }
      if type(fn) == "function" and not by_hand[name]
        and not name:find("^tidy_") then
        assert.is_function(ffi[name], name)
      end
    end
  end)

  it("returns several results in order", function()
    local current, peak, reserved = ffi.device_memory(ffi.device_current())
    assert.is_true(peak >= current and reserved >= 0)
    assert.is_number(current)
  end)

  it("keeps objects alive and gives new references", function()
    local v = ffi.variable_new(raw.tensor_from_table { 1, 2 }, "v", true, nil)
    ffi.variable_assign_add(v, raw.tensor_from_table { 1, 1 })
    assert.same({ 2, 3 }, raw.tensor_to_table(ffi.variable_read(v)))
    assert.equal("v", ffi.variable_name(v))
    assert.is_true(ffi.variable_is_trainable(v))
    ffi.variable_set_distribution(v, "on_read", "SUM")
    assert.equal("on_read", ffi.variable_synchronization_of(v))
    assert.equal("sum", raw.variable_aggregation_of(v))
  end)

  it("takes lists of handles with holes", function()
    local tape = ffi.tape_new(false, true)
    local x = raw.tensor_from_table { 1 }
    ffi.tape_watch(tape, x)
    local y = raw.op_run(raw.op_find("identity"), { x })
    local walk = ffi.walk_begin(tape, { y }, { x, raw.tensor_from_table { 5 } },
      { nil, n = 1 }, false)
    assert.equal("done", ffi.walk_next(walk))
    assert.same({ 1 }, raw.tensor_to_table(ffi.walk_gradient(walk, 0)))
    assert.is_nil(ffi.walk_gradient(walk, 1))
  end)

  it("raises the same errors", function()
    local t = raw.tensor_from_table { 1 }
    local e = failure(ffi.tensor_item, t, 9)
    assert.equal(tostring(failure(raw.tensor_item, t, 9)):gsub("^[^ ]+ ", ""),
      tostring(e):gsub("^[^ ]+ ", ""), nil)
    assert.equal("TypeError", failure(ffi.tensor_item, 7, 0).kind)
    assert.equal("TypeError", failure(ffi.tensor_item,
      raw.device_current(), 0).kind)
    assert.equal("ValueError", failure(ffi.tensor_from_values, { 1 }, "float",
      {}).kind)
    t:release()
    assert.equal("FailedPrecondition", failure(ffi.tensor_item, t, 0).kind)
    assert.equal("NotImplementedError", failure(ffi.op_find, "none").kind)
  end)

  it("shows elements in place and keeps their tensor alive", function()
    local view = ffi.view(raw.tensor_from_table { 1.5, 2.5, 3.5 })
    collectgarbage()
    collectgarbage()
    assert.equal(3, view.n)
    assert.equal(1.5, view[0])
    assert.equal(3.5, view[2])
    assert.equal("IndexError", failure(function() return view[3] end).kind)
    assert.equal("IndexError", failure(function() return view[-1] end).kind)
    assert.equal("TypeError", failure(function() view[0] = 1 end).kind)
    assert.equal(7, tonumber(ffi.view(raw.tensor_from_table({ 7 },
      "int64"))[0]))
  end)

  it("speeds up size and element access, unless switched off", function()
    assert.equal(os.getenv("TFDIST_FFI") ~= "0", raw.ffi_enabled)
    local code = "local r = require 'tfdist.core.raw' "
      .. "print(r.ffi_enabled, r.tensor_pointer ~= nil, "
      .. "r.item(r.tensor_from_table { 4, 5 }, 1))"
    local host = process.build .. "/tfdist-luajit -e "
    assert.equal("true\ttrue\t5\n", process.run("TFDIST_FFI=1 " .. host
      .. process.quote(code)).out)
    assert.equal("false\tfalse\t5\n", process.run("TFDIST_FFI=' 0' " .. host
      .. process.quote(code)).out)
  end)

  it("stays right when compiled", function()
    local t = raw.tensor_from_table { 1, 2, 3, 4 }
    local flags = raw.tensor_from_table { true, false }
    local sum, count = 0, 0
    for i = 1, 2e4 do
      sum = sum + raw.item(t, i % 4) + raw.tensor_size(t)
      count = count + (raw.item(flags, i % 2) and 1 or 0)
    end
    assert.equal(2e4 * 2.5 + 2e4 * 4, sum)
    assert.equal(1e4, count)
    local ok = true
    for i = 1, 500 do
      ok = ok and not pcall(raw.item, t, 4 + i)
    end
    assert.is_true(ok)
    t:release()
    for _ = 1, 200 do
      ok = ok and not pcall(raw.tensor_size, t)
    end
    assert.is_true(ok)
  end)
end)
