--- tfdist help NAME: what the prompt says of a name.
local process = require "spec.support.process"

for _, host in ipairs(process.hosts) do
  describe(host.name .. " help #once", function()
    it("says of a name of the library what the prompt says", function()
      for _, name in ipairs { "tf.while_loop", "tf.Variable.assign",
        "tf.data.Dataset:map", "tf.keras.layers.Dense", "tf.distribute" } do
        local r = process.run(host.path .. " help " .. name)
        assert.equal(0, r.code, r.err)
        assert.is_true(#r.out > 40, name)
        local prompt = process.run(host.path .. " -i", "?" .. name .. "\n").out
        assert.is_truthy(prompt:find(r.out, 1, true), name)
      end
    end)

    it("names the nearest of one that is not there", function()
      local r = process.run(host.path .. " help tf.while_lop")
      assert.equal(2, r.code)
      assert.equal("tfdist help: there is no tf.while_lop; did you mean "
        .. "tf.while_loop?\n", r.err)
      assert.equal(2, process.run(host.path .. " help tf.nosuch.name").code)
    end)
  end)
end
