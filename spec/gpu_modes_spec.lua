-- The stand-ins run what streams have taken late, at once, beside the host, and
-- each stream's beside the others': the bits are the same.
local seed = require "spec.support.seed"
local standins = require "spec.support.standins"

-- One in so many ops of the table, drawn.
local SHARE = os.getenv "TFD_LONG" and 1 or 12

-- What drawn ops make on two GPUs, read when all are under way.
local OPS = [[
local cases = require "spec.support.cases"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local unpack = table.unpack or unpack
local function inputs(case)
  local list, dtype = {}, case.dtypes[1]
  for i, given in ipairs(case.inputs) do
    list[i] = tf.constant(cases.values(given, i - 1, dtype),
      { dtype = given.dtype or dtype, shape = given.dims })
  end
  return list
end
local function hash(text, from)
  for byte in text:gmatch "." do
    from = (from * 31 + byte:byte()) %% 1000003
  end
  return from
end
local made, names, lines = {}, {}, {}
for _, family in ipairs(cases.families) do
  for _, case in ipairs(cases.load(family)) do
    for gpu = 0, hash(case.name, %d) %% %d == 0 and 1 or -1 do
      tf.random.set_seed(5)
      tf.device("/gpu:" .. gpu, function()
        for i, out in ipairs { case.fn(tf, unpack(inputs(case))) } do
          made[#made + 1] = out
          names[#made] = ("%%s, %%d on GPU %%d"):format(case.name, i, gpu)
        end
      end)
    end
  end
end
for i, out in ipairs(made) do
  lines[i] = ("%%s: %%d"):format(names[i],
    hash(raw.tensor_bytes(tf.convert_to_tensor(out)), 0))
end
table.sort(lines) -- cases have no order
print(table.concat(lines, "\n"))
]]

describe("GPUs of the stand-ins #once", function()
  if not standins.exists(standins.FOLDER .. "/libnccl.so.2")
    or not standins.exists(standins.NCCL) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  local late = {}

  local function check(text, mode)
    late[text] = late[text] or standins.run(text, "LUA_PATH='./?.lua;;'")
    assert.equal(0, late[text].code, late[text].err)
    assert.is_true(#late[text].out > 20)
    local r = standins.run(text, ("LUA_PATH='./?.lua;;' TFD_STANDIN_SEED=%d "
      .. "TFD_STANDIN_MODE=%s"):format(seed, mode))
    assert.equal(0, r.code, r.err)
    assert.equal(late[text].out, r.out, "seed " .. seed)
  end

  for _, mode in ipairs { "serial", "alone", "threads" } do
    it("train to the same bits in mode " .. mode, function()
      check(standins.TRAINING:format '"/gpu:0", "/gpu:1"', mode)
    end)

    it("compute the same bits in mode " .. mode, function()
      check(OPS:format(seed, SHARE), mode)
    end)
  end
end)
