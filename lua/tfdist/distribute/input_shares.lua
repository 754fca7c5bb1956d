--- Who gets how much of a batch: pure arithmetic, for any number of workers.
---
--- Names: G global batch size (nil = unknown), W workers, R replicas of each,
--- n = W * R, w a worker. Worker w has the replicas w * R .. w * R + R - 1.
local M = {}

local floor, min, max = math.floor, math.min, math.max

--- Shares of a full batch: floor(G / n) each, one more for the first G mod n
--- replicas.
---@param G integer
---@param n integer
---@return integer[]  share of replica i at [i + 1]
function M.shares(G, n)
  local base = floor(G / n)
  local more = G - base * n
  local list = {}
  for i = 1, n do
    list[i] = base + (i <= more and 1 or 0)
  end
  return list
end

--- Pieces of a batch of B rows where G is not known: ceil(B / n) each, the last
--- that is not empty shorter, the rest empty.
---@param B integer
---@param n integer
---@return integer[]
function M.even_pieces(B, n)
  local size = math.ceil(B / n)
  local list, left = {}, B
  for i = 1, n do
    list[i] = min(size, left)
    left = left - list[i]
  end
  return list
end

--- Pieces of one batch of B rows. With G known every replica gets its share of
--- a full batch as long as rows are left, so a short batch fills replicas in
--- order. Otherwise (also for a batch larger than G) the pieces are even.
---@param B integer
---@param G integer|nil
---@param n integer
---@return integer[]
function M.pieces(B, G, n)
  if G == nil or B > G then
    return M.even_pieces(B, n)
  end
  local list, left = M.shares(G, n), B
  for i = 1, n do
    list[i] = min(list[i], left)
    left = left - list[i]
  end
  return list
end

--- Rows of the batch before worker w's replicas begin.
---@param pieces integer[]
---@param w integer
---@param R integer
function M.offset(pieces, w, R)
  local sum = 0
  for i = 1, w * R do
    sum = sum + pieces[i]
  end
  return sum
end

--- Sizes that worker w uses in turn to cut its own stream of batches of G: the
--- shares of all replicas, turned left by w * R. In W steps every worker uses
--- up one of its batches, and each step adds up to G.
--- Source: tf.data.experimental.rebatch, batch_sizes_for_worker
---@return integer[]
function M.sizes_for_worker(G, W, R, w)
  local n = W * R
  local base, list = M.shares(G, n), {}
  for i = 1, n do
    list[i] = base[(i - 1 + w * R) % n + 1]
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
  if full and G ~= nil and G % n == 0 then
    return max(0, G / n)
  end
  return nil
end

return M
