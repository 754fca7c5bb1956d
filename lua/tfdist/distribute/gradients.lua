--- Gradients with respect to mirrored variables, outside replicas.
---
--- A read means one copy: the replica's, or in cross-replica context the one on
--- the current device. Inside a replica a gradient means that copy too. Outside
--- it means the variable, whichever of its copies were read.
local gradient_tape = require "tfdist.core.gradient_tape"
local raw = require "tfdist.core.raw"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"

-- How many copies stand for a mirrored variable, nil for other variables.
local function copies_of(x)
  local n = raw.mirrored_kind_of(x) == "mirrored" and raw.mirrored_count(x) or 1
  return n > 1 and n or nil
end

-- Sources with the copies in the place of such variables, a list with n, and
-- how many stand for each source; nothing if there are none.
local function spread(sources, n)
  local counts
  for i = 1, n do
    local x = sources[i]
    if values.is_mirrored(x) then
      if raw.mirrored_index(x) >= 0 then
        return nil -- in a replica
      end
      counts = counts or {}
      counts[i] = copies_of(x)
    end
  end
  if counts == nil or next(counts) == nil then
    return nil
  end
  local all = { n = 0 }
  for i = 1, n do
    local copies = counts[i] and values.copies(sources[i]) or { sources[i] }
    for k = 1, counts[i] or 1 do
      all.n = all.n + 1
      all[all.n] = copies[k]
    end
  end
  return all, counts
end

-- The sum of those gradients from `first` to `last` that there are.
local function total(grads, first, last)
  local parts = {}
  for i = first, last do
    parts[#parts + 1] = grads[i]
  end
  if #parts < 2 then
    return parts[1]
  end
  for i = 1, #parts do
    parts[i] = tf.convert_to_tensor(parts[i])
  end
  return tf.add_n(parts)
end

-- Let tapes ask for gradients of whole variables, once there are some.
function values.hooks.on_copies()
  gradient_tape.hooks.spread = spread
end
function gradient_tape.hooks.fold(grads, n, counts)
  local out, at = { n = n }, 1
  for i = 1, n do
    local count = counts[i] or 1
    out[i] = total(grads, at, at + count - 1)
    at = at + count
  end
  return out
end
