--- tf.autograph: nothing rewrites Lua code. An `if` or a loop on a tensor of a
--- traced function is written as tf.cond and tf.while_loop.
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"

local M = {}

local function same(fn)
  text.check_callable("autograph.experimental.do_not_convert", "func", fn)
  return fn
end

--- A function as it is; without one, what gives functions back as they are.
--- Source: tf.autograph.experimental.do_not_convert
local do_not_convert = options.wrap("autograph.experimental.do_not_convert",
  "func:later=nil", function(fn)
    if fn == nil then
      return same
    end
    return same(fn)
  end)

M.experimental = text.watch("tf.autograph.experimental",
  { do_not_convert = do_not_convert })

--- Nothing: there is no rewriting to tell of.
--- Source: tf.autograph.set_verbosity
M.set_verbosity = options.wrap("autograph.set_verbosity",
  "level alsologtostdout=false", function(level)
    options.integer("autograph.set_verbosity", "level", level, 0)
  end)

return M
