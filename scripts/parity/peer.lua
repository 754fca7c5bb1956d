--- Training here and at a peer, step by step: losses, fit's history, metrics.
---
--- usage: tfdist --cpu-devices=2 scripts/parity/peer.lua FOLDER COMMAND...
---        [--only=TEXT] [--common] [--steps=200] [--again] [--seconds=2400]
--- COMMAND is a peer's program: python scripts/parity/keras_peer.py. --only
--- takes the cases with this text in their names, --common those that every
--- peer knows, --steps bounds their length; --again compares with the answers
--- that are in FOLDER. First weights and batches are the same on both sides;
--- on our side there are 1 replica and 2, if there are as many devices.
--- Prints a line for each: steps or epochs, the largest relative difference of
--- a loss (or of a number of fit), that of the last weights (relative to their
--- norm; a bias in front of a normalisation has no gradient but rounding), the
--- bound. Ends with status 1 when a difference is over its bound.
local peer = require "spec.parity.peer"
local tf = require "tfdist"

local opt = tf.flags { only = "", common = false, again = false,
  steps = 200, seconds = 2400 }

local folder = assert(opt[1], "a folder is missing")
local command = table.concat(opt, " ", 2)

local list = peer.cases(opt.only ~= "" and { opt.only } or {}, function(case)
  return case.common or not opt.common
end)
for _, case in ipairs(list) do
  case.steps = case.steps and math.min(case.steps, opt.steps)
end
local replicas = peer.replicas()
local data, why = peer.plan(folder, list, replicas)
if data == nil then
  io.stderr:write(why, "\n")
  os.exit(1)
end
local found = opt.again and peer.answers(folder)
  or assert(peer.ask(command, folder, opt.seconds))

print(("%d cases, compared with %s"):format(#list, found.peer))
print(("%-38s %8s %7s %10s %10s %8s  %s"):format("case", "replicas", "steps",
  "difference", "weights", "bound", "ok"))
local missed, total = 0, 0
for _, case in ipairs(list) do
  for _, n in ipairs(case.replicas or replicas) do
    local row = peer.compare(case, data, folder, n, found.answers)
    total = total + 1
    if not row.ok then missed = missed + 1 end
    print(("%-38s %8d %7s %10s %10s %8.0e  %s"):format(row.name, n, row.steps,
      row.difference and ("%.1e"):format(row.difference) or "-",
      row.weights and ("%.1e"):format(row.weights) or "-", row.bound,
      row.ok and "ok" or "MISS " .. (row.message or "at" .. row.where)))
    io.flush()
  end
end
print(("%d comparisons, %d over their bounds"):format(total, missed))
os.exit(missed == 0 and total > 0 and 0 or 1)
