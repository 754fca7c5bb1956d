--- tf.summary: values for TensorBoard.
---
---   local writer = tf.summary.create_file_writer "logs/run1"
---   writer:as_default(function()
---     tf.summary.scalar("loss", loss, { step = step })
---   end)
---
--- Written are the values of replica 0 on the chief; elsewhere the functions
--- return false. A value needs a step: the argument's, or that of
--- experimental.set_step.
local contexts = require "tfdist.distribute.contexts"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local events = require "tfdist.io.events"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local strings = require "tfdist.core.strings"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"

-- Puts the default context in place.
require "tfdist.distribute"

local M = { experimental = {} }

-- The default writer, step and condition; replicas share them.
local current = { writer = nil, step = nil, condition = true }

-- Writers --------------------------------------------------------------------

local Writer = { __name = "SummaryWriter" }
Writer.__index = Writer
text.watch_methods("SummaryWriter", Writer)

local function is_writer(x)
  return type(x) == "table" and getmetatable(x) == Writer
end

local function method(name, signature, fn)
  Writer[name] = options.method("SummaryWriter." .. name, signature, fn,
    is_writer, "writer")
end

local function first_line(path)
  local f = io.open(path, "rb")
  local line = f and f:read "*l"
  if f then
    f:close()
  end
  return line or ""
end

local serial = 0

-- "events.out.tfevents.1700000000.host.1234.0.v2"
local function file_name(suffix)
  local host = first_line "/proc/sys/kernel/hostname":match "^[%w%.%-]+"
  local pid = first_line "/proc/self/stat":match "^%d+"
  local name = ("events.out.tfevents.%010d.%s.%s.%d%s"):format(os.time(),
    host or "localhost", pid or "0", serial, suffix)
  serial = serial + 1
  return name
end

local function should_save()
  local extended = contexts.get_strategy().extended
  return extended == nil or extended.should_save_summary ~= false
end

--- Writes to a new event file in logdir, which is made. At most max_queue values
--- (10) wait before they are written, for at most flush_millis (120000).
--- Errors: FailedPrecondition, ResourceExhausted.
--- Source: tf.summary.create_file_writer
M.create_file_writer = options.wrap("create_file_writer",
  "logdir max_queue=10 flush_millis=120000 filename_suffix='.v2' name=nil "
  .. "experimental_trackable=false", function(logdir, queue, millis, suffix)
    files.path("create_file_writer", "logdir", logdir)
    options.integer("create_file_writer", "max_queue", queue, 0)
    options.integer("create_file_writer", "flush_millis", millis, 0)
    files.piece("create_file_writer", "filename_suffix", suffix)
    local self = setmetatable({ logdir = logdir, max_queue = queue,
      seconds = millis / 1000, waiting = 0, flushed = os.time() }, Writer)
    if should_save() then
      raw.folder_make(logdir)
      self.path = logdir .. "/" .. file_name(suffix)
      self.handle = raw.writer_open(self.path, "none")
      raw.writer_record(self.handle, events.version(os.time()))
      raw.writer_flush(self.handle)
    end
    return self
  end)

--- A writer that writes nothing. Source: tf.summary.create_noop_writer
function M.create_noop_writer()
  return setmetatable({ max_queue = 0, waiting = 0 }, Writer)
end

local function set_default(writer, step)
  local before = { writer = current.writer, step = current.step }
  current.writer = writer
  if step ~= nil then
    current.step = step
  end
  return function()
    current.writer, current.step = before.writer, before.step
  end
end

--- Make it the default: while fn runs, or until the result's close().
--- Source: tf.summary.SummaryWriter.as_default
method("as_default", "fn:body=nil step=nil", function(self, fn, step)
  if fn ~= nil then
    text.check_callable("SummaryWriter.as_default", "fn", fn,
      "{ step = ... } gives a step")
  end
  local undo = set_default(self, step)
  if fn == nil then
    return state.closer("SummaryWriter.as_default", undo)
  end
  return state.protect(undo, fn, self)
end)

--- Make it the default from now on.
method("set_as_default", "step=nil", function(self, step)
  set_default(self, step)
end)

--- Let readers see everything written so far.
method("flush", "", function(self)
  if self.handle ~= nil and not self.closed then
    raw.writer_flush(self.handle)
    self.waiting, self.flushed = 0, os.time()
  end
end)

--- Complete the file. (It is also completed when the writer is collected.)
method("close", "", function(self)
  if self.handle ~= nil and not self.closed then
    self.closed = true
    raw.writer_close(self.handle)
  end
end)

method("init", "", function() end)

Writer.__close = function(self)
  self:close()
end

function Writer.__tostring(self)
  return "SummaryWriter " .. (self.path or "(writes nothing)")
end

-- Recording ------------------------------------------------------------------

local function truth(x)
  if text.is_callable(x) then
    x = x()
  end
  if type(x) == "userdata" then
    x = raw.item(raw.operand_tensor(x))
  end
  return x ~= false and x ~= nil and x ~= 0
end

--- Would a value be written now? False without a default writer.
--- Source: tf.summary.should_record_summaries
function M.should_record_summaries()
  return current.writer ~= nil and truth(current.condition)
end

--- Write values only when condition (a boolean, a tensor or a function) says
--- so: while fn runs, or until the result's close().
--- Source: tf.summary.record_if
M.record_if = options.wrap("record_if", "condition fn:body=nil",
  function(condition, fn)
    if fn ~= nil then text.check_callable("record_if", "fn", fn) end
    local before = current.condition
    current.condition = condition
    local function undo()
      current.condition = before
    end
    if fn == nil then
      return state.closer("record_if", undo)
    end
    return state.protect(undo, fn)
  end)

--- The step that values get by default: a number or a variable.
--- Source: tf.summary.experimental.set_step
function M.experimental.set_step(step)
  current.step = step
end

function M.experimental.get_step()
  return current.step
end

-- What is written is read by Lua, which a graph does not call.
local function need_values(what, name, x)
  tracing.need_numbers(what, name, x, "summaries", "return it and write it "
    .. "outside of the function; or writer:as_default(...) in a function that "
    .. "tf.py_function calls")
end

local function step_of(what, step)
  step = step == nil and current.step or step
  need_values(what, "step", step)
  if step == nil then
    errors.raise("ValueError", what .. ": No step set", "give step, or call "
      .. "tf.summary.experimental.set_step(step)")
  elseif type(step) == "userdata" then
    step = raw.item(raw.operand_tensor(step))
  end
  return options.integer(what, "step", step)
end

local function is_recorded()
  local context = contexts.get_replica_context()
  if context ~= nil and context.replica_id_in_sync_group ~= 0 then
    return false
  end
  local writer = current.writer
  return writer.handle ~= nil and M.should_record_summaries()
end

-- Write what make() gives of data: plugin name, TensorProto. make is called only
-- when something is written.
local function record(what, name, data, step, description, make)
  if type(name) ~= "string" then
    errors.raise("TypeError", ("%s: name must be a string, got %s"):format(what,
      text.describe(name)))
  elseif current.writer == nil or not truth(current.condition) then
    return false
  end
  step = step_of(what, step)
  if not is_recorded() then
    return false
  end
  local writer = current.writer
  if writer.closed then
    errors.raise("FailedPrecondition", ("%s: the writer of %s is closed"):format(
      what, writer.path))
  end
  need_values(what, "data", data)
  raw.tape_pause_all(true)
  local plugin, tensor = state.protect(function()
    raw.tape_pause_all(false)
  end, make)
  local now = os.time()
  raw.writer_record(writer.handle, events.summary(now, step,
    state.current.name_scope .. name, plugin, tensor, description))
  writer.waiting = writer.waiting + 1
  if writer.waiting > writer.max_queue or now - writer.flushed
    >= writer.seconds then
    writer:flush()
  end
  return true
end

local function numbers_of(what, data)
  local t = convert.tensor(data, nil, what, "data")
  return t, raw.tensor_rank(t) == 0 and { raw.item(t) } or raw.tensor_to_flat(t)
end

--- A number over time. Returns whether it was written.
--- Errors: ValueError without a step or for data that is no scalar.
--- Source: tf.summary.scalar
M.scalar = options.wrap("summary.scalar", "name data step=nil description=nil",
  function(name, data, step, description)
    return record("summary.scalar", name, data, step, description, function()
      local t = convert.tensor(data, nil, "summary.scalar", "data")
      if raw.tensor_rank(t) ~= 0 then
        errors.raise("ValueError", "summary.scalar: data must be a scalar, got "
          .. "shape " .. text.shape(t.shape))
      end
      local x = raw.item(t)
      x = x == true and 1 or x == false and 0 or x
      return "scalars", events.numbers("float32", { x }, {})
    end)
  end)

-- Rows left, right, count of equally wide buckets.
local function histogram_rows(list, n)
  local low, high = math.huge, -math.huge
  for i = 1, #list do
    local x = list[i]
    if x < low then low = x end
    if x > high then high = x end
  end
  if #list == 0 or low > high then
    return {}, 0
  elseif low == high then
    return { low - 0.5, low + 0.5, #list }, 1
  end
  local counts, width = {}, (high - low) / n
  for i = 1, n do
    counts[i] = 0
  end
  for i = 1, #list do
    local x = list[i]
    if x == x then
      local k = math.min(math.floor((x - low) / width), n - 1) + 1
      counts[k] = counts[k] + 1
    end
  end
  local rows = {}
  for i = 1, n do
    rows[#rows + 1] = low + (i - 1) * width
    rows[#rows + 1] = i == n and high or low + i * width
    rows[#rows + 1] = counts[i]
  end
  return rows, n
end

local function check_finite(what, name, list)
  for i = 1, #list do
    local x = list[i]
    if type(x) == "boolean" then
      list[i] = x and 1 or 0
    elseif x == math.huge or x == -math.huge then
      errors.raise("InvalidArgument", ("%s: %s has infinite values"):format(what,
        text.quote(name)))
    end
  end
  return list
end

--- How values are spread: counts in `buckets` (30) of equal width.
--- Errors: ValueError without a step; InvalidArgument for infinite values.
--- Source: tf.summary.histogram
M.histogram = options.wrap("summary.histogram",
  "name data step=nil buckets=30 description=nil",
  function(name, data, step, buckets, description)
    options.integer("summary.histogram", "buckets", buckets, 1)
    return record("summary.histogram", name, data, step, description, function()
      local _, list = numbers_of("summary.histogram", data)
      local rows, n = histogram_rows(check_finite("summary.histogram", name,
        list), buckets)
      return "histograms", events.numbers("float64", rows, { n, 3 })
    end)
  end)

-- Image i (from 0) of a batch.
local function png_of(t, i)
  local image = tf.gather(t, i)
  if image.dtype ~= "uint8" then
    local scaled = tf.cast(image, "float32") * 255.999
    image = tf.cast(tf.floor(tf.clip_by_value(scaled, 0, 255)), "uint8")
  end
  return raw.png_encode(image)
end

--- Up to max_outputs images, uint8 or numbers of 0..1.
--- Shapes: data [n, height, width, channels], channels 1 to 4.
--- Errors: ValueError without a step; InvalidArgument for another shape.
--- Source: tf.summary.image
M.image = options.wrap("summary.image",
  "name data step=nil max_outputs=3 description=nil",
  function(name, data, step, max, description)
    options.integer("summary.image", "max_outputs", max, 1)
    return record("summary.image", name, data, step, description, function()
      local t = convert.tensor(data, nil, "summary.image", "data")
      local dims = t.shape
      if #dims ~= 4 or dims[4] < 1 or dims[4] > 4 then
        errors.raise("InvalidArgument", "summary.image: data must be {n, "
          .. "height, width, 1 to 4 channels}, got " .. text.shape(dims))
      end
      local list = { text.number(dims[3]), text.number(dims[2]) }
      for i = 0, math.min(max, dims[1]) - 1 do
        list[#list + 1] = png_of(t, i)
      end
      return "images", events.texts(list, { #list })
    end)
  end)

--- A text, or a tensor of texts.
--- Errors: ValueError without a step; TypeError.
--- Source: tf.summary.text
M.text = options.wrap("summary.text",
  "name data:table step=nil description=nil",
  function(name, data, step, description)
    return record("summary.text", name, data, step, description, function()
      if type(data) == "string" then
        return "text", events.texts({ data }, {})
      end
      local t = strings.is(data) and data
        or text.is_plain(data) and strings.from_table(data, "summary.text")
        or errors.raise("TypeError", "summary.text: data must be a string or "
          .. "strings, got " .. text.describe(data))
      return "text", events.texts(t:toflat(), t.shape)
    end)
  end)

--- Let readers see what was written to `writer` (the default one).
--- Source: tf.summary.flush
M.flush = options.wrap("summary.flush", "writer=nil name=nil", function(writer)
  if writer ~= nil and not is_writer(writer) then
    errors.raise("TypeError", "summary.flush: writer must be a SummaryWriter, "
      .. "got " .. text.describe(writer))
  end
  writer = writer or current.writer
  if writer ~= nil then
    writer:flush()
  end
end)

options.functions(M, "summary.", { create_noop_writer = "",
  should_record_summaries = "" })
options.functions(M.experimental, "summary.experimental.", { set_step = "step=nil",
  get_step = "" })

text.watch("tf.summary.experimental", M.experimental)

for _, name in ipairs { "audio", "trace_on", "trace_off", "trace_export",
  "graph", "import_event", "write" } do
  M[name] = function()
    errors.raise("NotImplementedError", ("tf.summary.%s is not there"):format(
      name))
  end
end

return M
