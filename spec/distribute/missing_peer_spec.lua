--- Calls whose own deadline passes because a worker never comes to them: the
--- others say so, and whom they miss, long before the strategy's.
local files = require "spec.support.files"
local mpi = require "spec.support.mpi"
local standins = require "spec.support.standins"
local workers = require "spec.support.workers"

-- Calls arg[1] with little time when all have met; worker 1 does not, and waits
-- for the end of that.
local PROGRAM = 'local FOLDER = os.getenv "FOLDER"\n' .. workers.HEAD
  .. workers.TALK .. [[
local LITTLE = { timeout_seconds = 0.1 }
local function context() return tf.distribute.get_replica_context() end
local CALLS = {
  all_gather = function()
    return context():all_gather(tf.ones { 6 }, 0, LITTLE)
  end,
  all_reduce = function()
    return context():all_reduce("SUM", tf.ones { 6 }, LITTLE)
  end,
  of_slices = function()
    return context():all_reduce("SUM", tf.IndexedSlices(tf.ones { 1, 6 }, { 0 },
      { 3, 6 }), LITTLE)
  end,
  mean_of_integers = function()
    return context():all_reduce("MEAN", tf.constant { 1, 2 }, LITTLE)
  end,
  reduce_scatter = function()
    return context():reduce_scatter("SUM", tf.ones { 6 }, 0, LITTLE)
  end,
}
local ACROSS = {
  reduce_to = function()
    return s.extended:reduce_to("SUM", tf.ones { 6 }, "/cpu:0", LITTLE)
  end,
  batch_reduce_to = function()
    return s.extended:batch_reduce_to("MEAN",
      { { tf.ones { 6 }, "/cpu:0" } }, LITTLE)
  end,
}
s:reduce("SUM", tf.ones { 6 })
if w == 1 then
  take "over"
else
  local step = ACROSS[arg[1] ] or function()
    return s:run(CALLS[arg[1] ])
  end
  local ok, e = pcall(arg[2] and tf.function_(step) or step)
  put "over"
  print(ok and "nothing raised" or e.kind .. ": " .. e.message)
end
os.exit(0)]]

local SECONDS = 60 -- the strategy's deadline is 600

describe("a worker that never comes #once", function()
  local function misses(out, err)
    assert.is_truthy(out:find "^DeadlineExceeded: .*process 1", out .. err)
  end

  local function try(arguments, environment, each)
    local rs = files.in_folder(function(folder)
      return workers.run { program = PROGRAM, seconds = SECONDS, each = each,
        environment = ("FOLDER=%s %s"):format(folder, environment),
        arguments = function() return arguments end }
    end)
    misses(rs[1].out, rs[1].err)
    assert.equal(0, rs[1].code, rs[1].err)
    assert.equal(0, rs[2].code, rs[2].err)
    return rs[1].err
  end

  for _, transport in ipairs { "shm", "tcp", "hierarchical" } do
    it("is missed over " .. transport, function()
      try("all_gather", "TFDIST_TRANSPORT=" .. transport)
    end)
  end

  it("is missed by reductions, and by steps of recorded functions", function()
    for _, call in ipairs { "all_reduce", "reduce_scatter",
        "all_gather traced", "of_slices", "mean_of_integers", "reduce_to",
        "batch_reduce_to" } do
      try(call, "")
    end
  end)

  it("is missed by GPUs, by NCCL and through the hosts", function()
    if not standins.exists(standins.FOLDER .. "/libnccl.so.2")
       or not standins.exists(standins.NCCL) then
      pending "the stand-ins were not built: no CUDA toolkit here"
      return
    end
    for first, way in pairs { [0] = "through memory of the hosts", "NCCL" } do
      local err = try("all_reduce", ("TFDIST_PLUGINS=%s:%s "
        .. "TFDIST_CUDA_STANDIN=%s TFD_STANDIN_DEVICES=1 TFDIST_LOG=info")
        :format(standins.CUDA, standins.NCCL, standins.FOLDER), function(i)
          return "TFD_STANDIN_FIRST=" .. first * i
        end)
      assert.is_truthy(err:find("collectives: " .. way, 1, true), err)
    end
  end)

  for _, name in ipairs(mpi.all) do
    it("is missed over MPI (" .. name .. ")", function()
      local r = files.in_folder(function(folder)
        return mpi.run { mpi = name, program = PROGRAM, seconds = SECONDS,
          environment = "FOLDER=" .. folder, arguments = "all_gather" }
      end)
      misses(r.out, r.err)
    end)
  end
end)
