-- Random models, traced against eager; TFD_MODELS says how many of them. Those of
-- the first thousand seeds were looked at one by one, so that a test that fails
-- is news; `make check-long` draws others.
local models = require "spec.support.random_models"
local tf = require "tfdist"

if tf.config.functions_run_eagerly() then
  return -- in the suite that does without graphs
end

local SEED = require "spec.support.seed"
local LONG = os.getenv "TFD_LONG" ~= nil
local SLOW = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"
local MANY = tonumber(os.getenv "TFD_MODELS") or LONG and 200
  or SLOW and 3 or 8
local KNOWN = 1000

describe("random models", function()
  it(("give the same traced, %d of them from seed %d"):format(MANY, SEED),
    function()
      for i = 0, MANY - 1 do
        local seed = LONG and SEED + i or (SEED * 7919 + i) % KNOWN
        assert.are.same({}, (models.differences(seed)),
          "lua5.4 spec/support/random_models.lua " .. seed)
      end
    end)
end)
