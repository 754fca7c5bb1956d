--- tf.train.Example and its parts, and parsing by feature specifications.
---
---   local e = tf.train.Example { features = tf.train.Features { feature = {
---     image = tf.train.Feature { bytes_list = tf.train.BytesList {
---       value = { png } } },
---     label = tf.train.Feature { int64_list = tf.train.Int64List {
---       value = { 3 } } } } } }
---   writer:write(e:SerializeToString())
---   tf.io.parse_single_example(record, {
---     label = tf.io.FixedLenFeature({}, "int64") })
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local strings = require "tfdist.core.strings"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = { train = {}, io = {} }

-- Lists ----------------------------------------------------------------------

local DTYPES = { float = "float32", int64 = "int64" }
local CLASSES = { bytes = "BytesList", float = "FloatList",
  int64 = "Int64List" }

local function class_of(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  return type(meta) == "table" and meta.is_example_part and meta.__name or nil
end

local function plain_class(name)
  local meta = { __name = name, is_example_part = true }
  meta.__index = meta
  return text.watch_methods(name, meta)
end

local function check_bytes(what, list)
  for i = 1, options.length(what, "value", list) do
    if type(list[i]) ~= "string" then
      errors.raise("TypeError", ("%s: value %d must be a string, got %s"):format(
        what, i, text.describe(list[i])))
    end
  end
end

-- Values as a Lua list, and for numbers as a tensor.
local function list_class(kind)
  local name = CLASSES[kind]
  local meta = plain_class(name)
  M.train[name] = options.wrap(name, "value:table=nil", function(value)
    if strings.is(value) then
      value = value:toflat()
    end
    local self = setmetatable({ value = value or {}, kind = kind }, meta)
    if kind == "bytes" then
      if not text.is_plain(self.value) then
        errors.raise("TypeError", name .. ": value must be a list of strings, "
          .. "got " .. text.describe(value))
      end
      check_bytes(name, self.value)
    elseif text.is_plain(self.value) and (self.value.n or #self.value) == 0 then
      self.tensor = tf.zeros({ 0 }, DTYPES[kind])
    else
      local t = convert.tensor(self.value, DTYPES[kind], name, "value")
      if raw.tensor_rank(t) ~= 1 then
        errors.raise("InvalidArgument", ("%s: value must be a list, got shape "
          .. "%s"):format(name, text.shape(tensor.shape_of(t))))
      end
      self.tensor = tf.cast(t, DTYPES[kind])
      self.value = text.is_plain(value) and value or t:totable()
    end
    return self
  end)
end

list_class "bytes"
list_class "float"
list_class "int64"

-- Feature, Features, Example ---------------------------------------------------

local Feature, Features = plain_class "Feature", plain_class "Features"

--- One feature: the one of bytes_list, float_list, int64_list that is given.
--- Source: tf.train.Feature
M.train.Feature = options.wrap("Feature",
  "bytes_list:table=nil float_list:table=nil int64_list:table=nil",
  function(bytes, float, int64)
    local self, n = { bytes_list = bytes, float_list = float,
      int64_list = int64 }, 0
    for kind, class in pairs(CLASSES) do
      local list = self[kind .. "_list"]
      if list ~= nil then
        n = n + 1
        if class_of(list) ~= class then
          errors.raise("TypeError", ("Feature: %s_list must be a tf.train.%s, "
            .. "got %s"):format(kind, class, text.describe(list)))
        end
      end
    end
    if n > 1 then
      errors.raise("ValueError", "Feature: give one of bytes_list, float_list "
        .. "and int64_list")
    end
    return setmetatable(self, Feature)
  end)

--- Features by name: Features { feature = { name = Feature } }.
--- Source: tf.train.Features
M.train.Features = options.wrap("Features", "feature:dict=nil",
  function(feature)
    for name, value in pairs(feature or {}) do
      if type(name) ~= "string" or class_of(value) ~= "Feature" then
        errors.raise("TypeError", ("Features: feature must be a table of "
          .. "tf.train.Feature by name, got %s = %s"):format(tostring(name),
          text.describe(value)))
      end
    end
    return setmetatable({ feature = feature or {} }, Features)
  end)

local Example = plain_class "Example"

function Example.__tostring(self)
  return "Example { " .. table.concat(text.names(self.features.feature), ", ")
    .. " }"
end

--- The record's bytes; features are sorted by name.
function Example.SerializeToString(self)
  if class_of(self) ~= "Example" then
    options.wrong_self("Example.SerializeToString", "example", self)
  end
  local e = raw.example_new()
  for name, feature in pairs(self.features.feature) do
    local list = feature.bytes_list or feature.float_list or feature.int64_list
    raw.example_add(e, name, list and list.kind or "none")
    if list ~= nil and list.tensor ~= nil then
      raw.example_put_tensor(e, list.tensor)
    else
      for i = 1, list and #list.value or 0 do
        raw.example_put_text(e, list.value[i])
      end
    end
  end
  local data = raw.example_serialize(e)
  raw.release(e)
  return data
end

Example.serialize = Example.SerializeToString

local function new_example(features)
  if features == nil then
    features = M.train.Features()
  elseif class_of(features) ~= "Features" then
    errors.raise("TypeError", "Example: features must be a tf.train.Features, "
      .. "got " .. text.describe(features))
  end
  return setmetatable({ features = features }, Example)
end

local make_example = options.wrap("Example", "features:table=nil", new_example)

local function texts_of(e, i, n)
  local list = {}
  for k = 0, n - 1 do
    list[k + 1] = raw.example_text(e, i, k)
  end
  return list
end

--- The Example that bytes hold. Errors: DataLoss.
--- Source: tf.train.Example.FromString
local function from_string(data)
  local e = raw.example_parse(data)
  local feature = {}
  for i = 0, raw.example_count(e) - 1 do
    local name, kind, n = raw.example_feature(e, i)
    local value
    if kind == "bytes" then
      value = texts_of(e, i, n)
    elseif kind ~= "none" then
      value = raw.example_tensor(e, i)
    end
    feature[name] = M.train.Feature(kind ~= "none" and {
      [kind .. "_list"] = M.train[CLASSES[kind]] { value = value } } or {})
  end
  raw.release(e)
  return new_example(M.train.Features { feature = feature })
end

--- A record of features by name. `tf.train.Example.FromString(bytes)` reads one.
--- Source: tf.train.Example
M.train.Example = setmetatable({
  FromString = options.wrap("Example.FromString", "serialized:string",
    from_string),
}, {
  __call = function(_, ...)
    return make_example(...)
  end,
})

-- Specifications -------------------------------------------------------------

local Fixed, Var = plain_class "FixedLenFeature", plain_class "VarLenFeature"
local KINDS = { float32 = "float", int64 = "int64", string = "bytes" }

local function check_dtype(what, dtype)
  if KINDS[dtype] == nil then
    errors.raise("ValueError", ("%s: dtype must be float32, int64 or string, "
      .. "got %s"):format(what, text.describe(dtype)))
  end
  return dtype
end

--- A feature of this shape in every Example; default_value where it lacks.
--- Source: tf.io.FixedLenFeature
M.io.FixedLenFeature = options.wrap("FixedLenFeature",
  "shape:table dtype default_value:table=nil", function(shape, dtype, default)
    check_dtype("FixedLenFeature", dtype)
    local dims = convert.integers(shape, "FixedLenFeature", "shape")
    return setmetatable({ shape = dims, dtype = dtype,
      size = lists.product(dims),
      default_value = default }, Fixed)
  end)

--- A feature with any number of values: a tensor of rank 1 (a list of strings
--- for dtype "string"); parse_example pads it to the longest of the batch.
--- Source: tf.io.VarLenFeature
M.io.VarLenFeature = options.wrap("VarLenFeature", "dtype", function(dtype)
  return setmetatable({ dtype = check_dtype("VarLenFeature", dtype) }, Var)
end)

local function default_of(what, name, spec)
  local x = spec.default_value
  if x == nil then
    errors.raise("InvalidArgument", ("%s: feature %s (%s) is required but the "
      .. "Example lacks it"):format(what, text.quote(name), spec.dtype),
      "give the feature a default_value")
  elseif spec.dtype == "string" then
    if type(x) == "string" then
      if #spec.shape == 0 then
        return x
      end
      local list = {}
      for i = 1, spec.size do
        list[i] = x
      end
      return strings.new(list, spec.shape)
    end
    return strings.is(x) and x or strings.from_table(x, what)
  end
  local t = convert.tensor(x, spec.dtype, what, "default_value")
  return tf.broadcast_to(tf.cast(t, spec.dtype), spec.shape)
end

local function wrong_size(what, name, spec, n)
  errors.raise("InvalidArgument", ("%s: feature %s has %s values, shape %s needs "
    .. "%d"):format(what, text.quote(name), text.number(n),
    text.shape(spec.shape), spec.size))
end

-- Feature i (or -1) of example e as the specification wants it.
local function parse_feature(what, e, i, name, spec)
  local fixed = getmetatable(spec) == Fixed
  local _, kind, n
  if i >= 0 then
    _, kind, n = raw.example_feature(e, i)
  end
  if i < 0 or kind == "none" then
    if fixed then
      return default_of(what, name, spec)
    end
    return spec.dtype == "string" and strings.new({}, { 0 })
      or tf.zeros({ 0 }, spec.dtype)
  elseif kind ~= KINDS[spec.dtype] then
    errors.raise("InvalidArgument", ("%s: feature %s holds %s, dtype is %s")
      :format(what, text.quote(name), kind, spec.dtype))
  elseif fixed and n ~= spec.size then
    wrong_size(what, name, spec, n)
  elseif kind == "bytes" then
    local list = texts_of(e, i, n)
    if fixed and #spec.shape == 0 then
      return list[1]
    end
    return strings.new(list, fixed and spec.shape or { n })
  end
  local t = raw.example_tensor(e, i)
  return fixed and tf.reshape(t, spec.shape) or t
end

local function check_specs(what, features)
  if not text.is_plain(features) then
    errors.raise("TypeError", what .. ": features must be a table by name, got "
      .. text.describe(features))
  end
  for name, spec in pairs(features) do
    local meta = getmetatable(spec)
    if type(name) ~= "string" or (meta ~= Fixed and meta ~= Var) then
      errors.raise("TypeError", ("%s: feature %s must be a FixedLenFeature or "
        .. "VarLenFeature, got %s"):format(what, tostring(name),
        text.describe(spec)))
    end
  end
end

local function parse(what, data, features)
  if type(data) ~= "string" then
    errors.raise("TypeError", what .. ": serialized must be a string, got "
      .. text.describe(data))
  end
  local e = raw.example_parse(data)
  local out = {}
  for name, spec in pairs(features) do
    out[name] = parse_feature(what, e, raw.example_find(e, name), name, spec)
  end
  raw.release(e)
  return out
end

--- The features of one serialized Example, as tensors (strings as Lua strings)
--- by name.
--- Errors: DataLoss for bytes that are no Example; InvalidArgument for a missing
---   feature without default, another kind or number of values.
--- Source: tf.io.parse_single_example
M.io.parse_single_example = options.wrap("parse_single_example",
  "serialized features:table example_names=nil name=nil",
  function(data, features)
    check_specs("parse_single_example", features)
    return parse("parse_single_example", data, features)
  end)

-- Lists of different lengths as rows, padded with zeros or "".
local function pad(parts, n, dtype)
  local longest = 0
  for i = 1, n do
    longest = math.max(longest, #parts[i])
  end
  for i = 1, n do
    local missing = longest - #parts[i]
    if dtype == "string" then
      local list = parts[i]:toflat()
      for k = #list + 1, longest do
        list[k] = ""
      end
      parts[i] = strings.new(list, { longest })
    elseif missing > 0 then
      parts[i] = tf.concat({ parts[i], tf.zeros({ missing }, dtype) }, 0)
    end
  end
end

--- The same for a list of serialized Examples; every feature has a new axis 0.
--- Source: tf.io.parse_example
M.io.parse_example = options.wrap("parse_example",
  "serialized:table features:table example_names=nil name=nil",
  function(list, features)
    local what = "parse_example"
    check_specs(what, features)
    if strings.is(list) then
      list = list:toflat()
    end
    local n
    list, n = options.list(what, "serialized", list, "strings")
    local columns, out = {}, {}
    for name in pairs(features) do
      columns[name] = {}
    end
    for i = 1, n do
      for name, value in pairs(parse(what, list[i], features)) do
        columns[name][i] = value
      end
    end
    for name, spec in pairs(features) do
      local parts = columns[name]
      if getmetatable(spec) == Var then
        pad(parts, n, spec.dtype)
      end
      out[name] = spec.dtype == "string" and strings.stack(parts, n, what)
        or tf.stack(parts)
    end
    return out
  end)

return M
