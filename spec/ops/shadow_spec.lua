--- Inference on sizes that are not known, held against every op of the case
--- table: build/spec/shadow watches the ops that run, hides sizes at random and
--- compares what is inferred then with the true shapes.

local process = require "spec.support.process"

local BUILD = process.build

describe("inference of shapes known in part #once", function()
  it("agrees with the true shapes and refuses nothing that runs", function()
    local made = process.run(("make -s BUILD=%s %s/spec/shadow")
      :format(BUILD, BUILD))
    assert.equal(0, made.code, made.out .. made.err)
    local seed = os.time()
    print("\nshadow: SHADOW_SEED=" .. seed)
    local r = process.run(("SHADOW_SEED=%d OMP_WAIT_POLICY=passive "
      .. "LUA_PATH='lua/?.lua;lua/?/init.lua;./?.lua;;' %s/spec/shadow "
      .. "/usr/bin/busted --output=TAP spec/ops/cases_spec.lua")
      :format(seed, BUILD))
    local last = r.out:match "shadow: [^\n]*" or r.out:sub(-2000)
    assert.matches("^shadow: %d%d%d%d%d%d+ inferences, 0 wrong, unseen:$",
      last, 1, false, r.err:sub(-2000))
    assert.equal(0, r.code, r.err:sub(-2000))
  end)
end)
