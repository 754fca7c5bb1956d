--- tf.distribute.experimental.CommunicationOptions: how collectives talk.
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"

local M = {}

local IMPLEMENTATIONS = { "AUTO", "RING", "NCCL", "MPI" }

--- Source: tf.distribute.experimental.CommunicationImplementation; MPI is ours.
M.CommunicationImplementation = { AUTO = "AUTO", RING = "RING", NCCL = "NCCL",
  MPI = "MPI" }

local Options = { __name = "CommunicationOptions" }
Options.__index = Options

local function is_options(x)
  return getmetatable(x) == Options
end

M.is_options = is_options

local function new(what, bytes_per_pack, timeout_seconds, implementation)
  options.integer(what, "bytes_per_pack", bytes_per_pack, 0)
  if timeout_seconds ~= nil then
    if type(timeout_seconds) ~= "number" then
      errors.raise("TypeError", ("%s: timeout_seconds must be a number, got %s")
        :format(what, text.describe(timeout_seconds)))
    elseif timeout_seconds < 0 or timeout_seconds ~= timeout_seconds then
      errors.raise("ValueError", ("%s: timeout_seconds must not be negative, "
        .. "got %s"):format(what, text.number(timeout_seconds)))
    end
  end
  if type(implementation) ~= "string" then
    errors.raise("ValueError", ("%s: implementation must be one of %s, got %s")
      :format(what, table.concat(IMPLEMENTATIONS, ", "),
      text.describe(implementation)))
  end
  return setmetatable({
    bytes_per_pack = bytes_per_pack, timeout_seconds = timeout_seconds,
    implementation = options.choice(what, "implementation", implementation,
      IMPLEMENTATIONS),
  }, Options)
end

--- Options of collectives between processes and GPUs: bytes_per_pack (0 = one
--- pack, or of an update's gradients packs of 4 MiB), timeout_seconds (nil or 0 =
--- none of its own) and implementation.
--- Strategies without such collectives ignore them.
--- Errors: ValueError for a negative size or time and an unknown
---   implementation.
--- Source: tf.distribute.experimental.CommunicationOptions
M.CommunicationOptions = options.wrap("CommunicationOptions",
  "bytes_per_pack=0 timeout_seconds=nil implementation='AUTO'",
  function(bytes, seconds, implementation)
    return new("CommunicationOptions", bytes, seconds, implementation)
  end)

--- The older name, without implementation.
--- Source: tf.distribute.experimental.CollectiveHints
M.CollectiveHints = options.wrap("CollectiveHints",
  "bytes_per_pack=0 timeout_seconds=nil", function(bytes, seconds)
    return new("CollectiveHints", bytes, seconds, "AUTO")
  end)

--- These options with those of `other` that are not the defaults.
function Options:merge(other)
  if not is_options(self) then
    options.wrong_self("CommunicationOptions.merge", "options", self,
      { "options" })
  elseif other == nil then
    return self
  end
  other = M.read("CommunicationOptions.merge", other)
  return new("CommunicationOptions",
    other.bytes_per_pack ~= 0 and other.bytes_per_pack or self.bytes_per_pack,
    other.timeout_seconds or self.timeout_seconds,
    other.implementation ~= "AUTO" and other.implementation
      or self.implementation)
end

function Options.__eq(a, b)
  return a.bytes_per_pack == b.bytes_per_pack
    and a.timeout_seconds == b.timeout_seconds
    and a.implementation == b.implementation
end

function Options:__tostring()
  return ("CommunicationOptions (bytes_per_pack %d, timeout_seconds %s, %s)")
    :format(self.bytes_per_pack, tostring(self.timeout_seconds),
    self.implementation)
end

--- What a call got as `options`: an object, a table of its fields, or nil.
--- Errors: TypeError, ValueError.
---@param what string
---@param x any
---@return table|nil
function M.read(what, x)
  if x == nil or is_options(x) then
    return x
  elseif text.is_plain(x) then
    return M.CommunicationOptions(x)
  end
  errors.raise("TypeError", ("%s: options must be CommunicationOptions, got %s")
    :format(what, text.describe(x)))
end

return M
