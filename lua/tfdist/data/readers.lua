--- Data sets of records in files: TFRecord, lines of text, records of one size,
--- CSV. Files are read ahead by threads.
local csv = require "tfdist.data.csv"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local source = require "tfdist.data.source"
local spec = require "tfdist.data.spec"
local text = require "tfdist.base.text"

local M = { experimental = {} }

local COMPRESSION = { "", "NONE", "GZIP", "ZLIB" }

--- What an option compression_type means to the readers.
function M.compression(what, x)
  if x == nil then
    return "none"
  end
  x = options.choice(what, "compression_type", x, COMPRESSION)
  return x == "" and "none" or x:lower()
end

-- One file after the other, or `parallel` at a time, an element from each in
-- turn; a file that ends gives its place to the next one.
local Reader = {}
Reader.__index = Reader

local function open_next(self, slot)
  local file = self.source.files[self.file]
  if file == nil then
    self.slots[slot] = false
    return
  end
  self.file = self.file + 1
  self.names[slot], self.rows[slot] = file, self.source.header and 1 or 0
  self.slots[slot] = raw.reader_open(self.source.kind, file,
    self.source.compression, self.source.sizes or {})
  if self.source.header then
    raw.reader_skip(self.slots[slot], 1)
  end
end

local function open(self)
  local reader = setmetatable({ source = self, file = 1, slots = {}, at = 1,
    names = {}, rows = {},
    width = math.min(self.parallel, #self.files) }, Reader)
  for slot = 1, reader.width do
    open_next(reader, slot)
  end
  return reader
end

local function advance(self)
  self.at = self.at % self.width + 1
end

-- The next record as a string, nil at the end.
local function next_record(self)
  local idle = 0
  while idle < self.width do
    local reader = self.slots[self.at]
    if reader then
      local record = raw.reader_next(reader)
      if record ~= nil then
        self.last, self.rows[self.at] = self.at, self.rows[self.at] + 1
        advance(self)
        return record
      end
      raw.release(reader)
      open_next(self, self.at)
      idle = 0
    else
      idle = idle + 1
      advance(self)
    end
  end
  return nil
end

-- Which record of which file the last one was, counted from 0.
local function place(self)
  return ("row %s of %s"):format(text.number(self.rows[self.last] - 1),
    self.names[self.last])
end

function Reader.next(self)
  local record = next_record(self)
  if record == nil or self.source.decode == nil then
    return record
  end
  return self.source.decode(self, record)
end

function Reader.skip(self, n)
  if self.width > 1 or self.source.may_drop then
    for i = 1, n do
      if self:next() == nil then
        return i - 1
      end
    end
    return n
  end
  local done = 0
  while done < n and self.slots[1] do
    local passed = raw.reader_skip(self.slots[1], n - done)
    self.rows[1] = self.rows[1] + passed
    done = done + passed
    if done < n then
      raw.release(self.slots[1])
      open_next(self, 1)
    end
  end
  return done
end

function Reader.close(self)
  for slot = 1, self.width do
    if self.slots[slot] then
      raw.release(self.slots[slot])
      self.slots[slot] = false
    end
  end
end

local function parallel(what, x)
  if x == nil or x == -1 then
    return 1
  end
  return options.integer(what, "num_parallel_reads", x, 1)
end

local function with_files(base, files)
  local self = {}
  for key, value in pairs(base) do
    self[key] = value
  end
  self.files = files
  self.details = #files == 1 and files[1] or #files .. " files"
  return self
end

--- A data set of records: `base` has name, kind, compression, sizes, decode,
--- header, element_spec.
local function dataset(base, filenames)
  base.open, base.with_files = open, with_files
  base.parallel = base.parallel or 1
  return source.dataset(with_files(base, source.filenames(base.name,
    filenames)))
end

local function check_buffer(what, x)
  if x ~= nil then
    options.integer(what, "buffer_size", x, 0)
  end
end

local COMMON = "filenames:table compression_type=nil buffer_size=nil "
  .. "num_parallel_reads=nil name=nil"

local function of_strings(name, kind)
  return options.wrap(name, COMMON, function(filenames, compression, buffer,
      reads)
    check_buffer(name, buffer)
    return dataset({
      name = name, kind = kind, element_spec = spec.new({}, "string"),
      compression = M.compression(name, compression),
      parallel = parallel(name, reads),
    }, filenames)
  end)
end

--- The records of TFRecord files, as strings.
--- Errors: while reading NotFound, DataLoss naming file, record and offset.
--- Source: tf.data.TFRecordDataset
---@param filenames string|string[]
M.TFRecordDataset = of_strings("TFRecordDataset", "records")

--- The lines of text files without their ends, as strings.
--- Source: tf.data.TextLineDataset
---@param filenames string|string[]
M.TextLineDataset = of_strings("TextLineDataset", "lines")

--- Records of record_bytes each, as strings; header_bytes and footer_bytes of
--- every file are left out.
--- Errors: ValueError; while reading DataLoss when records do not fill a file.
--- Source: tf.data.FixedLengthRecordDataset
M.FixedLengthRecordDataset = options.wrap("FixedLengthRecordDataset",
  "filenames:table record_bytes header_bytes=0 footer_bytes=0 buffer_size=nil "
  .. "compression_type=nil num_parallel_reads=nil name=nil",
  function(filenames, record, header, footer, buffer, compression, reads)
    local name = "FixedLengthRecordDataset"
    check_buffer(name, buffer)
    return dataset({
      name = name, kind = "fixed", element_spec = spec.new({}, "string"),
      compression = M.compression(name, compression),
      parallel = parallel(name, reads),
      sizes = { options.integer(name, "record_bytes", record, 1, 2 ^ 30),
        options.integer(name, "header_bytes", header, 0, 2 ^ 30),
        options.integer(name, "footer_bytes", footer, 0, 2 ^ 30) },
    }, filenames)
  end)

--- The rows of CSV files: one component for each column. record_defaults has
--- for each column a dtype (a value is required) or a value for empty fields.
--- Errors: while reading InvalidArgument naming row, column and text.
--- Source: tf.data.experimental.CsvDataset
M.experimental.CsvDataset = options.wrap("CsvDataset",
  "filenames:table record_defaults:table compression_type=nil buffer_size=nil "
  .. "header=false field_delim=',' use_quote_delim=true na_value='' "
  .. "select_cols:table=nil exclude_cols:table=nil",
  function(filenames, defaults, compression, buffer, header, delim, quotes,
      na, select, exclude)
    local name = "CsvDataset"
    check_buffer(name, buffer)
    if select ~= nil and exclude ~= nil then
      errors.raise("ValueError", name .. ": give one of select_cols and "
        .. "exclude_cols")
    end
    local columns = csv.columns(name, defaults, select, exclude)
    local format = csv.format(name, delim, quotes, na, columns)
    function format.place()
      return place(format.reader)
    end
    local specs = {}
    for i, column in ipairs(columns) do
      specs[i] = spec.new({}, column.dtype)
    end
    return dataset({
      name = name, kind = quotes and "rows" or "lines", header = header,
      compression = M.compression(name, compression),
      element_spec = #specs == 1 and specs[1] or specs,
      decode = function(reader, row)
        format.reader = reader
        return csv.decode(format, row)
      end,
    }, filenames)
  end)

--- The names in the first row of a CSV file.
local function header_of(what, file, format, compression)
  local reader = raw.reader_open("rows", file, compression, {})
  local row = raw.reader_next(reader)
  raw.release(reader)
  if row == nil then
    errors.raise("InvalidArgument", ("%s: %s has no header row"):format(what,
      file))
  end
  function format.place()
    return "row 0 of " .. file
  end
  return (csv.split(format, row))
end

local function check_names(what, names, defaults, file)
  local _, n = options.list(what, "column_defaults", defaults)
  if #names ~= n then
    errors.raise("ValueError", ("%s: %d column_defaults for the %d columns of "
      .. "%s"):format(what, n, #names, file))
  end
  local seen = {}
  for _, name in ipairs(names) do
    if seen[name] then
      errors.raise("ValueError", ("%s: %s has two columns %s"):format(what,
        file, text.quote(name)))
    end
    seen[name] = true
  end
end

local function position_of(what, names, wanted, file)
  for i, name in ipairs(names) do
    if name == wanted then
      return i
    end
  end
  errors.raise("ValueError", ("%s: no column %s in %s"):format(what,
    text.describe(wanted), file),
    text.suggestion(tostring(wanted), names, "column"))
end

--- Batches of rows as tables by column name, with label_name the labels as a
--- second component; column_defaults (dtypes or values) has one entry for each
--- column.
--- Source: tf.data.experimental.make_csv_dataset
M.experimental.make_csv_dataset = options.wrap("make_csv_dataset",
  "file_pattern:table batch_size column_names:table=nil "
  .. "column_defaults:table=nil label_name=nil field_delim=',' "
  .. "use_quote_delim=true na_value='' header=true num_epochs=nil "
  .. "shuffle=true shuffle_buffer_size=10000 shuffle_seed=nil "
  .. "compression_type=nil",
  function(files, batch, names, defaults, label, delim, quotes, na, header,
      epochs, shuffle, buffer, seed, compression)
    local what = "make_csv_dataset"
    files = source.filenames(what, files)
    if names == nil then
      if not header then
        errors.raise("ValueError", what .. ": column_names are needed without "
          .. "a header row")
      end
      names = header_of(what, files[1], csv.format(what, delim, quotes, na, {}),
        M.compression(what, compression))
    end
    if defaults == nil then
      errors.raise("NotImplementedError", what .. ": column_defaults are "
        .. "needed; types are not guessed", "{ \"float32\", \"string\", ... }")
    end
    check_names(what, names, defaults, files[1])
    local at = label ~= nil and position_of(what, names, label, files[1])
      or nil
    local data = M.experimental.CsvDataset(files, defaults, {
      header = header, field_delim = delim, use_quote_delim = quotes,
      na_value = na, compression_type = compression })
    if shuffle then
      data = data:shuffle(buffer, { seed = seed })
    end
    if epochs == nil or epochs ~= 1 then
      data = data:repeat_(epochs)
    end
    return data:batch(batch):map(function(...)
      local values, row = lists.of(...), {}
      for i, name in ipairs(names) do
        if i ~= at then
          row[name] = values[i]
        end
      end
      if at ~= nil then
        return row, values[at]
      end
      return row
    end)
  end)

return M
