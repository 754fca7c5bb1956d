--- Values that a trace has not: each use of one is one error that says what to
--- use instead.
local tf = require "tfdist"
local expect = require "spec.support.expect"

-- No call is a tail call: it would have no line on LuaJIT.
describe("what cannot be traced", function()
  local uses = {
    ["item"] = function(x) return (x[0]:item()) end,
    ["totable"] = function(x) return (x:totable()) end,
    ["toflat"] = function(x) return (x:toflat()) end,
    ["an element in math.floor"] = function(x) return (math.floor(x[0])) end,
    ["an element in math.max"] = function(x) return (math.max(x[0], 1)) end,
    ["an element in a format"] = function(x) return (("%d"):format(x[0])) end,
    ["a comparison of an element"] = function(x)
      if x[0] < 1 then return x end
    end,
    ["a comparison of two"] = function(x)
      if x[0] <= x[1] then return x end
    end,
    ["a comparison of all"] = function(x)
      if x > 0 then return x end
    end,
    ["a comparison in a branch"] = function(x)
      return (tf.cond(tf.greater(x[0], 0), function()
        if x[0] >= 1 then return x end
      end, function() return x end))
    end,
  }
  for name, use in pairs(uses) do
    it("says at its line what decides by values instead: " .. name, function()
      local e = expect.failure(tf.function_(use), tf.constant { 1.5, 2.5 })
      assert.are.equal("TypeError", tf.errors.kind(e), tostring(e))
      local info = debug.getinfo(use, "S")
      local line = tonumber(tostring(e)
        :match "^spec/graph/values_spec.lua:(%d+):")
      assert.is_not_nil(line, tostring(e))
      assert.is_true(line >= info.linedefined and line <= info.lastlinedefined,
        tostring(e))
      for _, word in ipairs { "tf.cond", "tf.where", "tf.while_loop",
        "tf.print" } do
        assert.is_not_nil(e.hint:find(word, 1, true), e.hint)
      end
      -- Outside there are values to look at.
      local ok, plain = pcall(use, tf.constant { 1.5, 2.5 })
      assert.is_true(ok or tostring(plain):find("tf.cond", 1, true) == nil)
    end)
  end
end)
