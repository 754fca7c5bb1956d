--- The benches of traced functions: training steps as they are recorded once and
--- run by the runtime, against the same steps run op by op and against others.
local dist = require "rows_dist"
local report = require "report"
local worker = require "worker"

local M = {}

local NETWORKS = {
  { "tiny", "tiny 4-64-64-2, 4 rows" },
  { "mlp", "MLP 784-512-512-10", floor = 1.08 },
  { "cnn", "CNN 32-64-FC64", floor = 1.10 },
  { "lenet", "LeNet-5", floor = 1.12 },
  { "lstm", "LSTM 2 x 512, 50 steps", floor = 1.06, rounds = 3 },
  { "gpt", "GPT 4 x 256, 16 x 128 tokens", rounds = 3, trace = 50e-3 },
}

-- Others that do the same networks, with one core and device, in all the ways
-- that they have.
local PEERS = {
  { "TensorFlow", { { "tf", "a traced function" },
                    { "xla", "compiled by XLA" } } },
  { "JAX", { { "jax", "compiled" } } },
  { "PyTorch", { { "torch", "op by op" }, { "compiled", "compiled" } } },
}

local function lines(bench, network, rounds)
  local name, title = network[1], network[2]
  dist.line(bench, title .. ", traced / eager", rounds, "traced", "eager")
  dist.line(bench, "  fused / node by node", rounds, "traced", "apart")
  dist.line(bench, "  traced / floor", rounds, "traced", "floor",
    { goal = network.floor and { at_most = network.floor } })
  for _, peer in ipairs(PEERS) do
    dist.best_line(bench, ("  x faster than %s"):format(peer[1]), rounds,
      "traced", peer[2], { faster = true,
        goal = name ~= "lenet" and { at_least = 1 } or nil })
  end
  dist.alone(bench, "  trace", rounds, "trace",
    network.trace and { at_most = network.trace, unit = "s" } or nil)
  dist.alone(bench, "  program and the first touch of its memory", rounds,
    "first")
end

local function traced(bench)
  local mine, hand = dist.ours(bench, 1), dist.floor(bench)
  local apart = dist.ours(bench, 1, "TFDIST_FUSION=0 ")
  local tf, jax, torch = dist.tensorflow(bench, 1), dist.jax(bench, 1),
    dist.torch(bench)
  for _, network in ipairs(NETWORKS) do
    local name = network[1]
    local known = network.floor ~= nil -- to the floor program
    local list = {
      { "traced", mine, "traced " .. name }, { "eager", mine, "plain " .. name },
      { "apart", apart, "traced " .. name }, { "trace", mine, "trace " .. name },
      { "first", mine, "first " .. name },
      { "floor", known and hand, "step " .. name .. " 1" },
      { "tf", tf, "step " .. name }, { "xla", tf, "xla " .. name },
      { "jax", jax, "step " .. name },
      { "torch", torch, "single " .. name },
      { "compiled", torch, "compiled " .. name },
    }
    lines(bench, network,
      dist.ask(bench, list, bench.short and 3 or network.rounds or 5))
  end
  report.note "one core for each"
  worker.stop(mine, hand, apart, tf, jax, torch)
end

M.all = {
  { name = "traced", title = "training steps as traced functions",
    run = traced },
}

return M
