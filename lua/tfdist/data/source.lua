--- How a reader becomes a data set: the contract between what reads records
--- and tf.data.
---
--- A source is a table with these fields and functions:
---
---   name           what printing shows, "TFRecordDataset"
---   details        optional text behind the name, "2 files"
---   element_spec   optional: a TensorSpec, a list of them (several components)
---                  or a table by keys; nil = found out from the first element
---   open(source)   a new reader that begins at the first element; may raise
---                  NotFound and the like. Any number of readers may be open.
---   cardinality(source)    optional: how many elements there are;
---                  M.UNKNOWN (the default) or M.INFINITE
---   files          optional list of file names: the source can be sharded by
---                  file. Then also
---   with_files(source, files)    the same source reading only these
---
--- A reader is a table with
---
---   next(reader)      the components of the next element: one value, or
---                  several (a tuple); nothing (or nil) at the end, and again
---                  on every later call
---   skip(reader, n)   optional: pass over up to n elements without making
---                  them; returns how many there were (less than n at the
---                  end). Without it, next is called n times. The position of
---                  an iterator is saved as a count and restored by skip, so a
---                  reader keeps no other state; restoring is as fast as skip.
---   close(reader)     optional: give files back. Called once, at the end, on
---                  errors, and when the iterator is closed.
---
--- A component is a tensor on a CPU device, a Lua string (a scalar of dtype
--- "string"), a tensor of strings (strings.new(list, dims) of
--- tfdist.core.strings), or a plain table of components. Numbers become float32
--- scalars, booleans bool scalars: make tensors where another dtype is meant.
--- Errors are raised as usual; where the data ends early or is damaged, as
--- DataLoss naming file and offset. tf.data adds which data set it was.
---
--- What is in memory as a whole (npy, idx) needs no source: read the tensors
--- and call Dataset.from_tensor_slices, which is faster (batches are gathered
--- in one step).
---
--- Example:
---
---   local source = require "tfdist.data.source"
---
---   local Lines = {}
---   Lines.__index = Lines
---
---   function Lines.next(reader)
---     local line = reader.file and reader.file:read "*l"
---     if line == nil then
---       return nil -- the next file, in a real one
---     end
---     return line
---   end
---
---   function Lines.close(reader)
---     reader.file:close()
---   end
---
---   local function open(self)
---     return setmetatable({ file = assert(io.open(self.files[1])) }, Lines)
---   end
---
---   local function with_files(self, files)
---     return {
---       name = self.name, details = #files .. " files", files = files,
---       element_spec = spec.new({}, "string"), open = open,
---       with_files = with_files,
---     }
---   end
---
---   M.TextLineDataset = options.wrap("TextLineDataset", "filenames",
---     function(filenames)
---       return source.dataset(with_files({ name = "TextLineDataset" },
---         source.filenames("TextLineDataset", filenames)))
---     end)
---
--- Constructors stand in tfdist/data/readers.lua, a module that returns a table
--- of public name -> function: all its names appear under tf.data.
local dataset = require "tfdist.data.dataset"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local strings = require "tfdist.core.strings"
local text = require "tfdist.base.text"

local M = {}

M.UNKNOWN, M.INFINITE = dataset.UNKNOWN, dataset.INFINITE

local Stage = dataset.stage {}

function Stage.describe(node)
  return node.source.details
end

function Stage.cardinality(node)
  local source = node.source
  return source.cardinality and source.cardinality(source) or M.UNKNOWN
end

function Stage.spec(node)
  return node.source.element_spec
end

local Iterator = {}
Iterator.__index = Iterator

local function close(self)
  local reader = self.reader
  self.reader = nil
  if reader ~= nil and reader.close ~= nil then
    reader:close()
  end
end

Iterator.close = close

-- The reader's answer; without one, or with an error, it is done with.
local function settle(self, ok, ...)
  if not ok then
    close(self)
    error((...), 0)
  end
  local pack = element.pack(self.node.name, ...)
  if pack == nil then
    close(self)
  end
  return pack
end

local function next_pack(self)
  return settle(self, pcall(self.reader.next, self.reader))
end

function Iterator.next(self)
  if self.reader == nil then
    return nil
  end
  return dataset.call(self.node, next_pack, self)
end

local function skip(self, n)
  local reader = self.reader
  if reader.skip ~= nil then
    return reader:skip(n)
  end
  for i = 1, n do
    if reader:next() == nil then
      return i - 1
    end
  end
  return n
end

function Iterator.skip(self, n)
  if self.reader == nil or n == 0 then
    return 0
  end
  return dataset.call(self.node, skip, self, n)
end

function Stage.open(node)
  return setmetatable({
    reader = dataset.call(node, node.source.open, node.source), node = node,
  }, Iterator)
end

--- A data set that reads from a source.
---@param source table  see above
---@return tfdist.Dataset
function M.dataset(source)
  return dataset.new(Stage, source.name, {}, {
    source = source, files = source.files,
    lazy_spec = source.element_spec == nil,
    with_files = source.with_files and function(node, list)
      return M.dataset(node.source:with_files(list))
    end,
  })
end

--- File names as users give them: a string, a list of strings, a tensor of
--- strings or a data set of strings (read here, to the end).
--- Errors: TypeError, ValueError when there are none.
---@return string[]
function M.filenames(what, x)
  local list = {}
  if type(x) == "string" then
    list[1] = x
  elseif strings.is(x) then
    list = x:toflat()
  elseif dataset.is_dataset(x) then
    for name in x:iter() do
      list[#list + 1] = name
    end
  elseif text.is_plain(x) then
    for i = 1, x.n or #x do
      list[i] = x[i]
    end
  else
    errors.raise("TypeError", ("%s: filenames must be a name or a list of "
      .. "names, got %s"):format(what, text.describe(x)))
  end
  for i = 1, #list do
    files.path(what, "file name " .. i, list[i])
  end
  if #list == 0 then
    errors.raise("ValueError", what .. ": no file names given")
  end
  return list
end

return M
