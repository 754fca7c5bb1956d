-- What fit shows: the lines of the manual, at any width, in files and pipes.
local progress = require "tfdist.keras.progress"

-- A display that writes into a list, with a clock that only `tick` moves.
local function display(form, more)
  local t = { written = {}, time = 0 }
  more = more or {}
  t.p = progress.new(form, {
    write = function(s)
      t.written[#t.written + 1] = s
    end,
    now = function()
      return t.time
    end,
    width = function()
      return more.columns or 120
    end,
    utf8 = more.utf8 ~= false,
  })
  return t
end

local LOGS = { { "loss", 0.3512 }, { "accuracy", 0.8731 } }

describe("progress", function()
  it("draws the bar of the manual", function()
    local t = display "bar"
    t.p:begin(469, 1, 3)
    t.time = 312 * 0.01902
    t.p:update(312, 312 * 128, LOGS)
    assert.equal("Epoch 2/3\n", t.written[1])
    assert.equal("\r 312/469 ━━━━━━━━━━━━━━━━━━━━──────────"
      .. "  3s left · 19 ms/step · 6.7k ex/s · loss 0.3512 · accuracy 0.8731"
      .. "\27[K", t.written[2])
  end)

  it("leaves the last line of the manual", function()
    local t = display "bar"
    t.p:begin(469, 1, 3)
    t.time = 9.1
    t.p:done(469, 60000)
    t.time = 10.4 -- validation is not counted
    t.p:note "saved runs/fashion/ckpt-2"
    t.p:finish { { "loss", 0.3471 }, { "accuracy", 0.8748 },
      { "val_loss", 0.362 }, { "val_accuracy", 0.8704 } }
    assert.equal("\r 469/469  9.1 s · 6.6k ex/s · loss 0.3471 · accuracy "
      .. "0.8748 · val_loss 0.3620 · val_accuracy 0.8704 · saved "
      .. "runs/fashion/ckpt-2\27[K\n", t.written[2])
  end)

  it("draws at most ten times a second", function()
    local t = display "bar"
    t.p:begin(1000, 0, 1)
    for step = 1, 1000 do
      t.time = step * 0.001
      if t.p:due() then
        t.p:update(step, step, LOGS)
      end
    end
    assert.is_true(#t.written >= 9 and #t.written <= 11, #t.written)
  end)

  it("writes no control characters into files, and a heartbeat a minute",
    function()
      local t = display "lines"
      t.p:begin(469, 1, 3)
      for step = 1, 468 do
        t.time = step * 0.3
        t.p:update(step, step, LOGS)
      end
      t.p:done(469, 60000)
      t.p:finish(LOGS)
      assert.equal(4, #t.written)
      assert.equal("epoch 2/3 step 200/469 loss 0.3512 accuracy 0.8731\n",
        t.written[2])
      assert.equal(" 469/469  2:20 · 427 ex/s · loss 0.3512 · accuracy 0.8731\n",
        t.written[4])
      assert.is_nil(table.concat(t.written):find "[\r\27]")
    end)

  it("is as wide as the terminal", function()
    for columns = 20, 120 do
      local t = display("bar", { columns = columns })
      t.p:begin(469, 1, 3)
      t.time = 5
      t.p:update(250, 250 * 64, LOGS)
      local line = t.written[2]:match "^\r(.*)\27%[K$"
      local _, continued = line:gsub("[\128-\191]", "")
      assert.is_true(#line - continued < columns, line)
    end
  end)

  it("keeps to ASCII where the locale is not UTF-8", function()
    local t = display("bar", { utf8 = false })
    t.p:begin(4, 0, 1)
    t.time = 1
    t.p:update(2, 20, LOGS)
    t.p:finish(LOGS)
    local all = table.concat(t.written)
    assert.is_nil(all:find "[\128-\255]")
    assert.matches("2/4 ===============...............  1s left - 500 ms/step - "
      .. "20 ex/s - loss 0.3512", all, 1, true)
  end)

  it("does without a bar when the number of steps is not known", function()
    local t = display "bar"
    t.p:begin(nil, 0, 1)
    t.time = 2
    t.p:update(20, 200, LOGS)
    assert.equal("\r 20/?  100 ms/step · 100 ex/s · loss 0.3512 · accuracy "
      .. "0.8731\27[K", t.written[2])
    t.p:finish {}
    assert.matches(" 20/20  2.0 s", t.written[3], 1, true)
  end)

  it("says nothing at all in form none", function()
    local t = display "none"
    t.p:begin(4, 0, 1)
    t.time = 100
    t.p:update(2, 20, LOGS)
    t.p:finish(LOGS)
    t.p:interrupt()
    assert.same({}, t.written)
  end)

  it("leaves a line half drawn before something else is said", function()
    local t = display "bar"
    t.p:begin(4, 0, 1)
    t.p:interrupt()
    assert.equal(1, #t.written)
    t.time = 1
    t.p:update(2, 20, LOGS)
    t.p:interrupt()
    assert.equal("\n", t.written[3])
    t.p:interrupt()
    assert.equal(3, #t.written)
  end)

  it("writes numbers as people read them", function()
    assert.equal("0.3512", progress.value(0.35124))
    assert.equal("123.4500", progress.value(123.45))
    assert.equal("1.2000e-05", progress.value(1.2e-5))
    assert.equal("0.0000", progress.value(0))
    assert.equal("nan", progress.value(0 / 0))
    assert.equal("[0.5000 0.2500]", progress.value { 0.5, 0.25 })
    assert.equal("820 us", progress.step_time(820e-6))
    assert.equal("19 ms", progress.step_time(0.0194))
    assert.equal("1.2 s", progress.step_time(1.2))
    assert.equal("999", progress.rate(999))
    assert.equal("6.7k", progress.rate(6700))
    assert.equal("1.2M", progress.rate(1.2e6))
    assert.equal("3s", progress.left(3.2))
    assert.equal("2:05", progress.left(125))
    assert.equal("1:00:01", progress.left(3601))
    assert.equal("9.1 s", progress.duration(9.14))
  end)

  it("chooses its form by verbose and the terminal", function()
    if os.getenv "TFDIST_PROGRESS" then
      return pending "TFDIST_PROGRESS is set"
    end
    assert.equal("bar", progress.form("auto", true))
    assert.equal("lines", progress.form("auto", false))
    assert.equal("bar", progress.form(1, true))
    assert.equal("lines", progress.form(2, true))
    assert.equal("none", progress.form(0, true))
  end)
end)
