--- Who gets how much of a batch: lists of what the runtime computes, for any
--- number of workers.
---
--- Names: G global batch size (nil = unknown), W workers, R replicas of each,
--- n = W * R, w a worker. Worker w has the replicas w * R .. w * R + R - 1.
local raw = require "tfdist.core.raw"

local M = {}

--- Replica i's piece of one batch of B rows: where it begins, its size. With G
--- known every replica gets its share of a full batch as long as rows are left,
--- so a short batch fills replicas in order. Otherwise (also for a batch larger
--- than G) the pieces are even.
---@param B integer
---@param G integer|nil
---@param n integer
---@param i integer
---@return integer first, integer count
function M.piece(B, G, n, i)
  return raw.input_piece(B, G or -1, n, i)
end

--- Shares of a full batch: replica i's at [i + 1].
---@param G integer
---@param n integer
---@return integer[]
function M.shares(G, n)
  local list = {}
  for i = 1, n do
    local _, count = M.piece(G, G, n, i - 1)
    list[i] = count
  end
  return list
end

--- Sizes that worker w uses in turn to cut its own stream of batches of G.
---@return integer[]
function M.sizes_for_worker(G, W, R, w)
  local list = {}
  for i = 1, W * R do
    list[i] = raw.input_turn(G, W, R, w, i - 1)
  end
  return list
end

--- "4 and 4", "3, 2 and 2".
function M.list_text(list)
  local parts = {}
  for i = 1, #list do
    parts[i] = ("%d"):format(list[i])
  end
  if #parts < 2 then
    return parts[1] or "none"
  end
  local last = table.remove(parts)
  return table.concat(parts, ", ") .. " and " .. last
end

--- The size that a replica's share always has, nil when it may vary: all
--- batches are full and all shares equal.
---@param full boolean  there are no short batches
function M.static_share(G, n, full)
  if not full or G == nil then
    return nil
  end
  local _, most = M.piece(G, G, n, 0)
  local _, least = M.piece(G, G, n, n - 1)
  return most == least and most or nil
end

return M
