--- Which part of a pipeline a worker runs: the auto-shard policies.
local basic = require "tfdist.data.basic"
local dataset = require "tfdist.data.dataset"
local errors = require "tfdist.base.errors"
local pipeline_options = require "tfdist.data.pipeline_options"
local text = require "tfdist.base.text"
local transform = require "tfdist.data.transform"

local M = {}

local function too_few(files, W)
  errors.raise("InvalidArgument", ("experimental_distribute_dataset: FILE "
    .. "sharding needs at least one file per worker; there are %d file%s for "
    .. "%d workers"):format(files, files == 1 and "" or "s", W),
    "auto_shard_policy = \"DATA\" shares elements instead, \"OFF\" shares "
    .. "nothing")
end

local function unshardable(node)
  errors.raise("NotFound", ("experimental_distribute_dataset: Found an "
    .. "unshardable source dataset: %s reads no files"):format(node.name),
    "use auto_shard_policy = \"DATA\" or \"OFF\"")
end

local function every(list, W, w)
  local own = {}
  for i = w + 1, #list, W do
    own[#own + 1] = list[i]
  end
  return own
end

-- The stage over what worker w of W takes. What the stage keeps of its elements
-- is not that of others: stages that do have a method for_worker.
local function over(node, inputs, W, w)
  local same = true
  for i = 1, #inputs do
    same = same and inputs[i] == node.inputs[i]
  end
  if same then
    return node
  end
  local own = dataset.rebuild(node, inputs)
  return own.for_worker and own:for_worker(W, w) or own
end

-- The shuffles of file names above a source would differ between workers.
local function without_shuffles(node, W, w)
  if node.name == "shuffle" then
    return without_shuffles(node.inputs[1], W, w)
  elseif #node.inputs == 1 and node.files == nil then
    return over(node, { without_shuffles(node.inputs[1], W, w) }, W, w)
  end
  return node
end

local function reads_files(node)
  local found = false
  dataset.walk(node, function(each)
    found = found or each.files ~= nil
  end)
  return found
end

local by_file

-- A flat_map or interleave whose function makes readers: its input is the list
-- of files.
local function by_input(node, W, w)
  local names = without_shuffles(node.inputs[1], W, w)
  local n = dataset.cardinality_of(names)
  if n >= 0 and n < W then
    too_few(n, W)
  end
  return dataset.rebuild(node, { dataset.wrap(names):shard(W, w).node })
end

by_file = function(node, W, w)
  if node.files ~= nil then
    if #node.files < W then
      too_few(#node.files, W)
    end
    return node:with_files(every(node.files, W, w)).node
  elseif #node.inputs == 0 then
    return unshardable(node)
  elseif node.fn ~= nil and (node.name == "flat_map"
    or node.name == "interleave") and not reads_files(node) then
    local inner = transform.example_inner(node)
    if inner ~= nil and reads_files(inner) then
      return by_input(node, W, w)
    end
  end
  local inputs = {}
  for i = 1, #node.inputs do
    inputs[i] = by_file(node.inputs[i], W, w)
  end
  return over(node, inputs, W, w)
end

local function by_hint(node, W, w)
  local inputs = {}
  for i = 1, #node.inputs do
    inputs[i] = by_hint(node.inputs[i], W, w)
  end
  if node.num_shards == basic.SHARD_HINT then
    return dataset.wrap(inputs[1]):shard(W, w).node
  end
  return over(node, inputs, W, w)
end

local function check(W, w, R)
  local what = "experimental_distribute_dataset: "
  if W < 1 or R < 1 then
    errors.raise("InvalidArgument", ("%snum_workers %s and num_replicas %s "
      .. "must be at least 1"):format(what, text.number(W), text.number(R)))
  elseif w < 0 or w >= W then
    errors.raise("InvalidArgument", ("%sworker %s is outside 0..%s"):format(
      what, text.number(w), text.number(W - 1)))
  end
end

--- The pipeline for worker w of W, and how it is divided.
---   DATA   all workers run the same pipeline and take their replicas' pieces
---          of each batch
---   FILE, OFF, HINT    a stream of the worker's own: of its files, of
---          everything, of what shard(SHARD_HINT, SHARD_HINT) leaves
--- AUTO is FILE where the source reads files, else DATA; with one worker there
--- is nothing to divide and it is DATA.
--- Errors: NotFound for FILE without a source of files, InvalidArgument for
---   fewer files than workers and for numbers out of range.
---@param node table
---@param W integer
---@param w integer
---@param R integer   replicas per worker
---@return table node, string policy, string reason
function M.resolve(node, W, w, R)
  check(W, w, R)
  local policy = pipeline_options.of(node).experimental_distribute
    .auto_shard_policy
  if policy == "FILE" then
    return W > 1 and by_file(node, W, w) or node, "FILE", "asked for"
  elseif policy == "HINT" then
    return by_hint(node, W, w), "HINT", "asked for"
  elseif policy ~= "AUTO" then
    return node, policy, "asked for"
  elseif W == 1 then
    return node, "DATA", "one worker"
  end
  local ok, found = pcall(by_file, node, W, w)
  if ok then
    return found, "FILE", "AUTO: the source reads files"
  elseif errors.kind(found) ~= "NotFound" then
    error(found, 0)
  end
  return node, "DATA", "AUTO: the source reads no files"
end

return M
