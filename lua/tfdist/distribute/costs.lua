--- What an all_reduce between workers costs by the model that chooses its way:
--- with a latency of each step, a cost of each message that a worker sends in it,
--- of each byte that it sends and of each byte that it adds up (ways.h).
local raw = require "tfdist.core.raw"

local M = {}

local WAYS = { "whole", "direct", "doubling", "ring", "halving" }
-- Those that add up in the order of workers; shared memory has no others.
local IN_ORDER = { "whole", "direct" }
local SIZES = { 4, 1024, 65536, 1048576, 26214400, 67108864 }

--- The costs of a transport: step, message, byte and sum, in seconds; and the
--- ways that it has.
--- Errors: NotFound.
---@param transport string
---@return table
function M.of(transport)
  local step, message, byte, sum = raw.transport_costs(transport)
  return { step = step, message = message, byte = byte, sum = sum,
    ways = transport == "shm" and IN_ORDER or WAYS }
end

--- Seconds of one way.
---@param costs table
---@param way string
---@param workers integer
---@param bytes number
---@return number
function M.seconds(costs, way, workers, bytes)
  return raw.collective_cost(way, workers, bytes, costs.step, costs.message,
    costs.byte, costs.sum)
end

--- The cheapest way and its seconds; in_order: of those that add up in the order
--- of workers, which are taken unless others are asked for.
---@param costs table
---@param workers integer
---@param bytes number
---@param in_order boolean|nil
---@return string, number
function M.best(costs, workers, bytes, in_order)
  local best, least
  for _, way in ipairs(in_order and IN_ORDER or costs.ways) do
    local seconds = M.seconds(costs, way, workers, bytes)
    if best == nil or seconds < least then
      best, least = way, seconds
    end
  end
  return best, least
end

--- "4 B", "64 KiB", "25 MiB".
---@param bytes number
---@return string
function M.size(bytes)
  for _, unit in ipairs { { 1048576, "MiB" }, { 1024, "KiB" } } do
    if bytes >= unit[1] then
      return ("%g %s"):format(bytes / unit[1], unit[2])
    end
  end
  return ("%g B"):format(bytes)
end

--- "0.32 us", "5.2 ms".
---@param seconds number
---@return string
function M.time(seconds)
  if seconds < 1e-3 then
    return ("%.3g us"):format(seconds * 1e6)
  elseif seconds < 1 then
    return ("%.3g ms"):format(seconds * 1e3)
  end
  return ("%.3g s"):format(seconds)
end

--- A table of all ways over sizes.
---@param costs table
---@param title string
---@param workers integer
---@return string[]
function M.lines(costs, title, workers)
  local out = {
    ("all_reduce over %s among %d workers"):format(title, workers),
    ("  %s each step, %s each message, %.3g ns each byte, %.3g ns each byte "
      .. "added"):format(M.time(costs.step), M.time(costs.message),
      costs.byte * 1e9, costs.sum * 1e9),
  }
  local head = ("  %-8s"):format ""
  for _, way in ipairs(costs.ways) do
    head = head .. ("%10s"):format(way)
  end
  out[#out + 1] = head .. "  in order  of all"
  for _, bytes in ipairs(SIZES) do
    local row = ("  %-8s"):format(M.size(bytes))
    for _, way in ipairs(costs.ways) do
      row = row .. ("%10s"):format(M.time(M.seconds(costs, way, workers,
        bytes)))
    end
    out[#out + 1] = ("%s  %-8s  %s"):format(row, (M.best(costs, workers, bytes,
      true)), (M.best(costs, workers, bytes)))
  end
  return out
end

--- The same by hosts: inside them and then between them, against all workers
--- over TCP, where those of one host share its wire.
---@param workers integer
---@param hosts integer
---@return string[]
function M.host_lines(workers, hosts)
  local out = {
    ("all_reduce among %d workers on %d hosts"):format(workers, hosts),
    ("  %-8s%14s%10s  cheaper"):format("", "hierarchical", "tcp"),
  }
  for _, bytes in ipairs(SIZES) do
    local by_hosts, flat = raw.hosts_cost(workers, hosts, bytes)
    out[#out + 1] = ("  %-8s%14s%10s  %s"):format(M.size(bytes),
      M.time(by_hosts), M.time(flat), by_hosts < flat and "hierarchical"
        or "tcp")
  end
  return out
end

return M
