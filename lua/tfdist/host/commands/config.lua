--- `tfdist config check`: the cluster that a script started here would be in;
--- `tfdist config costs`: what sums between workers cost.
local cluster = require "tfdist.distribute.cluster"
local errors = require "tfdist.base.errors"
local costs = require "tfdist.distribute.costs"
local roles = require "tfdist.distribute.cluster.roles"
local text = require "tfdist.base.text"

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

local function fail(message)
  io.stderr:write("tfdist config: ", message, "\n")
  return errors.EXIT_USAGE
end

-- A whole number within bounds, or nil and what was expected.
local function whole(given, what, least, most)
  local n = tonumber(given)
  if n and n >= least and n <= most and n % 1 == 0 then
    return n
  end
  return nil, ("%s must be a whole number from %d to %d, got %s"):format(what,
    least, most, text.quote(given))
end

-- `costs` with what stands behind it.
local function costs_of(given, on)
  local workers, why = whole(given or "2", "WORKERS", 2, 65536)
  local hosts
  if workers and on then
    hosts, why = whole(on, "HOSTS", 1, workers)
  end
  return why and fail(why) or show_costs(workers, hosts)
end

--- 0 when the cluster can be used, 2 when it cannot.
return function(what, ...)
  if what == "costs" and select("#", ...) <= 2 then
    return costs_of(...)
  end
  if what ~= "check" or select("#", ...) > 0 then
    io.stderr:write(USAGE, "\n")
    return errors.EXIT_USAGE
  end
  local done, resolver, source = pcall(cluster.find)
  if not done then
    if not errors.is_error(resolver) then
      error(resolver, 0)
    end
    return fail(tostring(resolver))
  elseif resolver == nil then
    print "cluster  none: no TF_CONFIG, no mpirun, no Slurm step"
  else
    show(resolver, source)
  end
  return 0
end
