--- The benches of traced functions: training steps as they are recorded once and
--- run by the runtime, against the same steps run op by op and against others.
local dist = require "rows_dist"
local report = require "report"
local worker = require "worker"

local M = {}

-- `floor` is the goal against the hand-written program; `unwritten`: there is
-- no such program.
local NETWORKS = {
  { "tiny", "tiny 4-64-64-2, 4 rows" },
  { "mlp", "MLP 784-512-512-10", floor = 1.08 },
  { "cnn", "CNN 32-64-FC64", floor = 1.10 },
  { "lenet", "LeNet-5", floor = 1.12 },
  { "resnet", "ResNet-20", rounds = 3, unwritten = true },
  { "lstm", "LSTM 2 x 512, 50 steps", floor = 1.06, rounds = 3 },
  { "gpt", "GPT 4 x 256, 16 x 128 tokens", floor = 1.07, rounds = 3,
    trace = 50e-3 },
}

-- Others that do the same networks, with one core and device, in all the ways
-- that they have.
local PEERS = {
  { "TensorFlow", { { "tf", "a traced function" },
                    { "xla", "compiled by XLA" } } },
  { "JAX", { { "jax", "compiled" } } },
  { "PyTorch", { { "torch", "op by op" }, { "compiled", "compiled" } } },
}

-- What the first call of each takes beyond the next.
local FIRST = { { "tf first", "TensorFlow" }, { "xla first", "XLA" },
                { "jax first", "JAX" },
                { "compiled first", "torch.compile" } }

local function floor_line(bench, network, title, rounds, name)
  dist.line(bench, title, rounds, name, "floor",
    { goal = network.floor and { at_most = network.floor } })
  if network.unwritten then
    report.note "  there is no hand-written program of this network"
  end
end

local function lines(bench, network, rounds)
  local name, title = network[1], network[2]
  dist.line(bench, title .. ", traced / eager", rounds, "traced", "eager")
  dist.line(bench, "  fused / node by node", rounds, "traced", "apart")
  floor_line(bench, network, "  traced / floor", rounds, "traced")
  for _, peer in ipairs(PEERS) do
    dist.best_line(bench, ("  x faster than %s"):format(peer[1]), rounds,
      "traced", peer[2], { faster = true,
        goal = name ~= "lenet" and { at_least = 1 } or nil })
  end
  dist.alone(bench, "  trace", rounds, "trace",
    network.trace and { at_most = network.trace, unit = "s" } or nil)
  dist.alone(bench, "  trace and passes", rounds, "passes",
    network.trace and { at_most = network.trace, unit = "s" } or nil)
  dist.alone(bench, "  program and the first touch of its memory", rounds,
    "first")
  for _, entry in ipairs(FIRST) do
    dist.alone(bench, ("  trace and program of %s"):format(entry[2]), rounds,
      entry[1])
  end
end

local function traced(bench)
  local mine, hand = dist.ours(bench, 1), dist.floor(bench)
  local apart = dist.ours(bench, 1, "TFDIST_FUSION=0 ")
  local tf, jax, torch = dist.tensorflow(bench, 1), dist.jax(bench, 1),
    dist.torch(bench)
  for _, network in ipairs(NETWORKS) do
    local name = network[1]
    local list = {
      { "traced", mine, "traced " .. name }, { "eager", mine, "plain " .. name },
      { "apart", apart, "traced " .. name }, { "trace", mine, "trace " .. name },
      { "first", mine, "first " .. name },
      { "passes", mine, "trace_passes " .. name },
      { "floor", not network.unwritten and hand, "step " .. name .. " 1" },
      { "tf", tf, "step " .. name }, { "xla", tf, "xla " .. name },
      { "jax", jax, "step " .. name },
      { "torch", torch, "single " .. name },
      { "compiled", torch, "compiled " .. name },
      { "tf first", tf, "first " .. name },
      { "xla first", tf, "xla_first " .. name },
      { "jax first", jax, "first " .. name },
      { "compiled first", torch, "first " .. name },
    }
    lines(bench, network,
      dist.ask(bench, list, bench.short and 3 or network.rounds or 5))
  end
  report.note "one core for each"
  worker.stop(mine, hand, apart, tf, jax, torch)
end

--- All cores --------------------------------------------------------------------

-- Two devices with a core each, or one with both; peers in the same ways.
local BOTH = {
  { "TensorFlow", { { "tf two", "two devices" },
                    { "tf all", "one device, all cores" },
                    { "xla all", "one device, all cores, compiled by XLA" } } },
  { "JAX", { { "jax two", "two devices" },
             { "jax all", "one device, all cores" } } },
  { "PyTorch", { { "torch all", "one process, all cores" },
                 { "compiled all", "one process, all cores, compiled" } } },
}

local function lines_of_both(bench, network, rounds)
  dist.line(bench, network[2] .. ", traced, 2 devices / eager", rounds, "two",
    "eager")
  dist.line(bench, "  traced, 2 devices / 1 device with all cores", rounds,
    "two", "all", { goal = { at_most = 1.03 } })
  floor_line(bench, network, "  traced, 2 devices / floor", rounds, "two")
  for _, peer in ipairs(BOTH) do
    dist.best_line(bench, ("  x faster than %s"):format(peer[1]), rounds,
      "two", peer[2], { faster = true, goal = { at_least = 1 } })
  end
end

local function all_cores(bench)
  local mine, whole = dist.ours(bench, 2), dist.ours_whole(bench)
  local tf_two, tf_all = dist.tensorflow(bench, 2), dist.tensorflow(bench, 1, true)
  local jax_two, jax_all = dist.jax(bench, 2), dist.jax(bench, 1, true)
  local torch, hand = dist.torch(bench, "all"), dist.floor(bench)
  for _, network in ipairs(NETWORKS) do
    local name = network[1]
    lines_of_both(bench, network, dist.ask(bench, {
      { "two", mine, "traced_step " .. name .. " 2" },
      { "eager", mine, "step " .. name .. " 2" },
      { "all", whole, "traced " .. name },
      { "floor", not network.unwritten and hand, "step " .. name .. " 2" },
      { "tf two", tf_two, "step " .. name }, { "tf all", tf_all, "step " .. name },
      { "xla all", tf_all, "xla " .. name },
      { "jax two", jax_two, "step " .. name },
      { "jax all", jax_all, "step " .. name },
      { "torch all", torch, "single " .. name },
      { "compiled all", torch, "compiled " .. name },
    }, bench.short and 3 or network.rounds or 5))
  end
  worker.stop(mine, whole, hand, tf_two, tf_all, jax_two, jax_all, torch)
end

--- A tape around -----------------------------------------------------------------

local function around(bench)
  local mine = dist.ours(bench, 1)
  for _, network in ipairs(NETWORKS) do
    local name, goal = network[1], network.floor and { at_most = 1.1 } or nil
    local list = { { "around", mine, "gradients " .. name .. " around" },
                   { "inside", mine, "gradients " .. name .. " inside" } }
    dist.line(bench, network[2] .. ", tape around / inside",
      dist.ask(bench, list, bench.short and 3 or network.rounds or 5), "around",
      "inside", { goal = goal })
  end
  report.note "one core"
  worker.stop(mine)
end

M.all = {
  { name = "traced", title = "training steps as traced functions",
    run = traced },
  { name = "around", title = "gradients of traced functions",
    run = around },
  { name = "both", title = "traced training steps with all cores",
    run = all_cores },
}

return M
