--- Cases that TensorFlow ran, here: how many differ, and which.
---
--- usage: tfdist --cpu-devices=3 scripts/parity/seeded.lua FILE...
---        [--case=ID] [--show=20]
--- FILE comes from scripts/parity/seeded. A table by family: runs, how many are
--- outside their bounds, how many more are listed with a reason (see
--- spec/parity/listed.lua), the largest difference of those within, in bounds;
--- then what is outside, at most --show of each file. --case shows the program
--- of one. Ends with status 1 when something is outside that is not listed.
local json = require "tfdist.core.json"
local seeded = require "spec.parity.seeded"
local tf = require "tfdist"

local opt = tf.flags { case = "", show = 20 }

local function new_family()
  return { cases = 0, outside = 0, listed = 0, worst = 0, at = "-" }
end

local function count(family, row)
  family.cases = family.cases + 1
  if row.outside then
    family.outside = family.outside + 1
  elseif row.listed then
    family.listed = family.listed + 1
  elseif row.over > family.worst then
    family.worst, family.at = row.over, row.id
  end
end

local LINE = "%-12s %6s %8s %7s %9s  %s"

local function print_families(plan, families, order)
  print(("seed %d, against %s"):format(plan.seed, plan.peer))
  print(LINE:format("family", "runs", "outside", "listed", "worst", "in"))
  local total = new_family()
  for _, name in ipairs(order) do
    local f = families[name]
    print(LINE:format(name, f.cases, f.outside, f.listed,
      ("%.2g"):format(f.worst), f.at))
    for _, key in ipairs { "cases", "outside", "listed" } do
      total[key] = total[key] + f[key]
    end
  end
  print(LINE:format("all", total.cases, total.outside, total.listed, "", ""))
  return total.outside
end

local function run(path)
  local plan = assert(seeded.load(path))
  local families, order, outside, why = {}, {}, {}, {}
  for _, case in ipairs(plan.cases) do
    if opt.case == "" or opt.case == case.id then
      if opt.case ~= "" then print(json.encode(case.program, true)) end
      if families[case.family] == nil then
        families[case.family] = new_family()
        order[#order + 1] = case.family
      end
      for _, n in ipairs(seeded.replicas(case)) do
        local row = seeded.compare(plan, case, n)
        count(families[case.family], row)
        if row.outside then
          outside[#outside + 1] = row
        elseif row.listed then
          why[row.listed] = (why[row.listed] or 0) + 1
        end
      end
    end
  end
  local wrong = print_families(plan, families, order)
  for reason, times in pairs(why) do
    print(("listed %d: %s"):format(times, reason))
  end
  for i = 1, math.min(#outside, opt.show) do
    local row = outside[i]
    print(("outside %s, %s, %d replicas: %.3g bounds: %s"):format(row.id,
      row.name, row.replicas, row.over, row.message or ""))
  end
  return wrong
end

local wrong = 0
for _, path in ipairs(opt) do wrong = wrong + run(path) end
os.exit(wrong == 0 and #opt > 0 and 0 or 1)
