--- tf.flags.
local number_type = rawget(math, "type")
local flags = require "tfdist.base.flags"

local DEFAULTS = {
  epochs = 5, learning_rate = 0.1, log_dir = "runs", verbose = false,
  shuffle = true, sizes = { 64, 32 }, names = {},
}

local function parse(...)
  return flags.parse(DEFAULTS, { args = { ... } })
end

local function error_of(...)
  local ok, e = pcall(parse, ...)
  assert.is_false(ok)
  return e
end

describe("tf.flags", function()
  it("gives the defaults without arguments", function()
    assert.same(DEFAULTS, parse())
  end)

  it("reads values after a space or an equals sign", function()
    local opt = parse("--epochs", "3", "--log-dir=x y", "--learning_rate",
      "1e-3")
    assert.equal(3, opt.epochs)
    assert.equal("x y", opt.log_dir)
    assert.equal(0.001, opt.learning_rate)
  end)

  it("reads negative numbers as values", function()
    assert.equal(-2, parse("--epochs", "-2").epochs)
  end)

  it("switches booleans on and off", function()
    local opt = parse("--verbose", "--no-shuffle")
    assert.is_true(opt.verbose)
    assert.is_false(opt.shuffle)
    assert.is_false(parse("--verbose=false").verbose)
    assert.is_true(parse("--verbose=yes").verbose)
  end)

  it("splits lists and converts their elements", function()
    assert.same({ 1, 2, 3 }, parse("--sizes", "1,2,3").sizes)
    assert.same({ "a", "b" }, parse("--names=a,b").names)
  end)

  it("keeps other words, and all words after --", function()
    local opt = parse("one", "--epochs=1", "two", "--", "--epochs=2")
    assert.same({ "one", "two", "--epochs=2" }, { opt[1], opt[2], opt[3] })
    assert.equal(1, opt.epochs)
  end)

  it("names the nearest flag for an unknown one", function()
    local e = error_of("--epoch", "3")
    assert.equal("ValueError", e.kind)
    assert.equal('flags: unknown flag "--epoch"', e.message)
    assert.equal("did you mean --epochs?", e.hint)
    assert.equal("did you mean --log-dir?", error_of("--logdir=3").hint)
  end)

  it("says what a value must be", function()
    assert.matches('^flags: %-%-epochs needs a [whole ]*number, got "many"$',
      error_of("--epochs", "many").message)
    assert.equal('flags: --learning-rate needs a number, got "many"',
      error_of("--learning-rate", "many").message)
    assert.equal("flags: --epochs needs a value", error_of("--epochs").message)
    assert.equal("ValueError", error_of("--verbose=maybe").kind)
  end)

  it("takes whole numbers where the default is an integer", function()
    if number_type == nil then -- LuaJIT has one kind of numbers
      assert.equal(2.5, parse("--epochs=2.5").epochs)
      return
    end
    local e = error_of("--epochs=2.5")
    assert.equal("ValueError", e.kind)
    assert.equal('flags: --epochs needs a whole number, got "2.5"', e.message)
    assert.equal('flags: --epochs needs a whole number, got "1e99"',
      error_of("--epochs", "1e99").message)
    assert.equal('flags: --sizes needs a whole number, got "0.5"',
      error_of("--sizes=1,0.5").message)
    assert.equal("1000", ("%d"):format(parse("--epochs=1e3").epochs))
    assert.equal("integer", number_type(parse("--epochs=3.0").epochs))
    assert.equal(0.5, flags.parse({ x = 0.0 }, { args = { "--x=0.5" } }).x)
  end)

  it("takes the kinds of numbers that types say", function()
    local more = { args = { "--clip=0.5", "--rates=1,.5" },
      types = { clip = "float", rates = "float" } }
    local opt = flags.parse({ clip = 0, rates = { 1 } }, more)
    assert.equal(0.5, opt.clip)
    assert.same({ 1, 0.5 }, opt.rates)
    local whole, why = pcall(flags.parse, { n = 2 }, { args = { "--n=0.5" },
      types = { n = "integer" } })
    assert.is_false(whole)
    assert.equal('flags: --n needs a whole number, got "0.5"', why.message)
    for types, message in pairs {
      [{ clip = "int" }] = "types%.clip", [{ clap = "float" }] = "clap",
      [{ name = "float" }] = "the default of name is no number",
    } do
      local ok, e = pcall(flags.parse, { clip = 0, name = "" },
        { args = {}, types = types })
      assert.is_false(ok)
      assert.matches(message, e.message)
    end
  end)

  it("switches off without a dash too, but names of flags come first",
    function()
      assert.is_false(parse("--noshuffle").shuffle)
      local opt = flags.parse({ tice = true, notice = false },
        { args = { "--notice" } })
      assert.is_true(opt.tice)
      assert.is_true(opt.notice)
      assert.equal("ValueError", error_of("--noepochs").kind)
    end)

  it("helps for -h, unless that is a flag or a word", function()
    local exit, stdout, out = os.exit, io.stdout, {}
    rawset(os, "exit", function(code) error({ code = code }) end)
    rawset(io, "stdout", { write = function(_, ...) out = { ... } end })
    local ok, e = pcall(parse, "-h")
    rawset(os, "exit", exit)
    rawset(io, "stdout", stdout)
    assert.is_false(ok)
    assert.equal(0, e.code)
    assert.matches("%-%-help, %-h +this text", out[1])
    assert.equal("-h", parse("--", "-h")[1])
    assert.equal("-h", flags.parse({ h = 1 }, { args = { "-h" } })[1])
  end)

  it("keeps to the choices", function()
    local ok, e = pcall(flags.parse, { mode = "a" },
      { args = { "--mode", "c" }, choices = { mode = { "a", "b" } } })
    assert.is_false(ok)
    assert.equal("flags: --mode must be one of a, b, got c", e.message)
  end)

  it("shows all flags with their defaults", function()
    local help = flags.help_text(DEFAULTS, { program = "train.lua",
      help = { epochs = "passes over the data" } })
    assert.truthy(help:find("usage: train.lua", 1, true))
    assert.truthy(help:find("--epochs +passes over the data %(" .. (number_type
      and "whole number, " or "") .. "default 5%)"))
    assert.truthy(help:find("--log%-dir +%(default runs%)"))
    assert.truthy(help:find("--sizes +%(" .. (number_type
      and "whole numbers, " or "") .. "default 64,32%)"))
  end)

  it("does not change the defaults", function()
    parse("--sizes", "1")
    parse().sizes[1] = 0
    assert.same({ 64, 32 }, DEFAULTS.sizes)
  end)
end)
