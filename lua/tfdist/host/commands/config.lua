--- `tfdist config check`: the cluster that a script started here would be in;
--- `tfdist config costs`: what sums between workers cost.
local cluster = require "tfdist.distribute.cluster"
local errors = require "tfdist.base.errors"
local costs = require "tfdist.distribute.costs"
local roles = require "tfdist.distribute.cluster.roles"

local USAGE = [[
usage: tfdist config check              the cluster of TF_CONFIG or Slurm
       tfdist config costs [WORKERS]    what sums between so many cost]]

local function count(n, what)
  return ("%d %s%s"):format(n, what, n == 1 and "" or "s")
end

local function show(resolver, source)
  local spec = resolver:cluster_spec()
  local jobs = spec:jobs()
  if #jobs == 0 then
    print("cluster  none in " .. source .. ": this process works alone")
    return
  end
  print("cluster  from " .. source)
  for _, job in ipairs(jobs) do
    print(("  %s, %s"):format(job, count(spec:num_tasks(job), "task")))
    for _, index in ipairs(spec:task_indices(job)) do
      print(("    %d  %s%s"):format(index, spec:task_address(job, index),
        job == resolver.task_type and index == resolver.task_id
          and "  (this process)" or ""))
    end
  end
  if resolver.task_type == nil then
    print "task     none given"
    return
  end
  print(("task     %s %d"):format(resolver.task_type, resolver.task_id))
  local done, chief = pcall(roles.is_chief, spec, resolver.task_type,
    resolver.task_id)
  if done then
    print("chief    " .. (chief and "yes" or "no"))
  end
end

local function show_costs(workers)
  for _, transport in ipairs { "shm", "tcp" } do
    for _, line in ipairs(costs.lines(costs.of(transport), transport,
      workers)) do
      print(line)
    end
  end
  return 0
end

--- 0 when the cluster can be used, 2 when it cannot.
return function(what, ...)
  local workers = tonumber((...) or 2)
  if what == "costs" and select("#", ...) <= 1 and workers and workers >= 2
    and workers <= 65536 and workers % 1 == 0 then
    return show_costs(workers)
  end
  if what ~= "check" or select("#", ...) > 0 then
    io.stderr:write(USAGE, "\n")
    return 2
  end
  local done, resolver, source = pcall(cluster.find)
  if not done then
    if not errors.is_error(resolver) then
      error(resolver, 0)
    end
    io.stderr:write("tfdist config: ", tostring(resolver), "\n")
    return errors.EXIT_USAGE
  elseif resolver == nil then
    print "cluster  none: no TF_CONFIG, no mpirun, no Slurm step"
  else
    show(resolver, source)
  end
  return 0
end
