--- `tfdist config check`: the cluster that a script started here would be in;
--- `tfdist config costs`: what sums between workers cost.
local cluster = require "tfdist.distribute.cluster"
local errors = require "tfdist.base.errors"
local costs = require "tfdist.distribute.costs"
local roles = require "tfdist.distribute.cluster.roles"

local USAGE = [=[
usage: tfdist config check              the cluster of TF_CONFIG or Slurm
       tfdist config costs [WORKERS [HOSTS]]
                                        what sums between so many cost]=]

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

local function show_costs(workers, hosts)
  for _, transport in ipairs { "shm", "tcp" } do
    for _, line in ipairs(costs.lines(costs.of(transport), transport,
      workers)) do
      print(line)
    end
  end
  for _, line in ipairs(hosts and costs.host_lines(workers, hosts) or {}) do
    print(line)
  end
  return 0
end

-- A whole number within bounds, or nil.
local function whole(text, least, most)
  local n = tonumber(text)
  return n and n >= least and n <= most and n % 1 == 0 and n or nil
end

--- 0 when the cluster can be used, 2 when it cannot.
return function(what, ...)
  local given, on = ...
  local workers = whole(given or 2, 2, 65536)
  local hosts = workers and on and whole(on, 1, workers)
  if what == "costs" and select("#", ...) <= 2 and workers
    and (hosts or not on) then
    return show_costs(workers, hosts)
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
