--- tf.flags.
local flags = require "tfdist.flags"

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
    assert.equal('flags: --epochs needs a number, got "many"',
      error_of("--epochs", "many").message)
    assert.equal("flags: --epochs needs a value", error_of("--epochs").message)
    assert.equal("ValueError", error_of("--verbose=maybe").kind)
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
    assert.truthy(help:find("--epochs +passes over the data %(default 5%)"))
    assert.truthy(help:find("--log%-dir +%(default runs%)"))
    assert.truthy(help:find("--sizes +%(default 64,32%)"))
  end)

  it("does not change the defaults", function()
    parse("--sizes", "1")
    parse().sizes[1] = 0
    assert.same({ 64, 32 }, DEFAULTS.sizes)
  end)
end)
