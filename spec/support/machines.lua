--- What specs of several machines need of this one.
local process = require "spec.support.process"

local M = {}

--- Why it cannot be, nil when it can: programs that are needed, as root.
function M.lacks(programs, packages)
  local r = process.run("test $(id -u) = 0 && PATH=$PATH:/usr/sbin:/sbin && "
    .. "for p in " .. programs .. "; do command -v $p || exit 1; done")
  if r.code ~= 0 then
    return "needs root and apt-get install " .. packages
  end
end

--- The same of network namespaces (netns.sh).
function M.no_namespaces()
  local why = M.lacks("ip", "iproute2")
  local probe = why == nil
    and process.run "spec/support/netns.sh '$ONE true && $TWO true'"
  if probe and probe.code ~= 0 then
    why = "no network namespaces on this machine: " .. probe.err
  end
  return why
end

return M
