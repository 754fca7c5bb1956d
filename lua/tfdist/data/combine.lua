--- Stages that choose among data sets and group elements by key, and sources
--- that are made up: sample_from_datasets, choose_from_datasets,
--- group_by_window, bucket_by_sequence_length, random, list_files.
local batch = require "tfdist.data.batch"
local counts = require "tfdist.data.counts"
local dataset = require "tfdist.data.dataset"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local rows = require "tfdist.data.rows"
local seeds = require "tfdist.data.seeds"
local spec = require "tfdist.data.spec"
local stream = require "tfdist.data.stream"
local strings = require "tfdist.core.strings"
local text = require "tfdist.base.text"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local INFINITE, UNKNOWN = dataset.INFINITE, dataset.UNKNOWN
local method, stage = dataset.method, dataset.stage

local function node_list(what, datasets)
  local list, n = options.list(what, "datasets", datasets, "datasets")
  local nodes = {}
  for i = 1, n do
    nodes[i] = dataset.node_of(what, "datasets", list[i])
  end
  if n == 0 then
    errors.raise("ValueError", what .. ": there are no data sets")
  end
  return nodes
end

-- choose_from_datasets -------------------------------------------------------

local function sum_of_cardinalities(node)
  local total = 0
  for i = 1, #node.inputs do
    local n = dataset.cardinality_of(node.inputs[i])
    if n < 0 then
      return UNKNOWN
    end
    total = total + n
  end
  return node.stop_on_empty and UNKNOWN or total
end

-- Elements of the inputs in the order that pick() says: a position from 0, nil
-- at the end.
local function chosen(node, inputs, pick)
  local ended, left = {}, #inputs
  return {
    next = function()
      while left > 0 do
        local at = pick(ended)
        if at == nil then
          return nil
        elseif not ended[at + 1] then
          local pack = inputs[at + 1]:next()
          if pack ~= nil then
            return pack
          end
          ended[at + 1] = true
          left = node.stop_on_empty and 0 or left - 1
        end
      end
      return nil
    end,
  }
end

local function open_inputs(node, run)
  local inputs = {}
  for i = 1, #node.inputs do
    inputs[i] = dataset.open(node.inputs[i], run)
  end
  return inputs
end

local Choose = stage {}

function Choose.cardinality()
  return UNKNOWN
end

local function choice_of(node, pack, n)
  local x = pack[1]
  local at = type(x) == "userdata" and raw.tensor_size(x) == 1
    and raw.item(x) or x
  if not text.is_whole(at) or at < 0 or at >= n then
    errors.raise("InvalidArgument", ("choose_from_datasets: the choice %s is "
      .. "no position of one of %d data sets"):format(text.describe(at), n))
  end
  return at
end

function Choose.open(node, run)
  local inputs = open_inputs(node, run)
  local choice = table.remove(inputs)
  return chosen(node, inputs, function()
    local pack = choice:next()
    return pack and dataset.call(node, choice_of, node, pack, #inputs)
  end)
end

--- Elements of several data sets in the order that choice_dataset says:
--- positions in the list, from 0. With stop_on_empty_dataset the end of any is
--- the end; otherwise choices of ended ones are passed over.
--- Source: tf.data.Dataset.choose_from_datasets
dataset.static("choose_from_datasets", "datasets choice_dataset "
  .. "stop_on_empty_dataset=true", function(datasets, choice, stop)
    local what = "choose_from_datasets"
    local nodes = node_list(what, datasets)
    nodes[#nodes + 1] = dataset.node_of(what, "choice_dataset", choice)
    return dataset.new(Choose, what, nodes, { stop_on_empty = stop })
  end)

-- sample_from_datasets -------------------------------------------------------

local Sample = stage { cardinality = sum_of_cardinalities }

function Sample.describe(node)
  local parts = {}
  for i = 1, #node.weights do
    parts[i] = text.number(node.weights[i])
  end
  return table.concat(parts, ", ")
end

function Sample.open(node, run)
  local inputs = open_inputs(node, run)
  local draw = seeds.draws(seeds.begin(node, run, node.each_iteration))
  local unit = 2 ^ 32
  return chosen(node, inputs, function(ended)
    local total = 0
    for i = 1, #inputs do
      total = total + (ended[i] and 0 or node.weights[i])
    end
    if total == 0 then
      return nil
    end
    local u = draw(unit) / unit * total
    local last
    for i = 1, #inputs do
      local own = ended[i] and 0 or node.weights[i]
      if own > 0 then
        last = i - 1
        if u < own then
          return last
        end
        u = u - own
      end
    end
    return last
  end)
end

local function weights_of(what, x, n)
  local list = {}
  if x == nil then
    for i = 1, n do
      list[i] = 1 / n
    end
    return list
  end
  local given = type(x) == "userdata" and raw.tensor_to_flat(
    raw.operand_tensor(x)) or options.list(what, "weights", x, "numbers")
  for i = 1, math.max(n, #given) do
    local w = given[i]
    if i > n or type(w) ~= "number" or w < 0 or w ~= w then
      errors.raise("ValueError", ("%s: weights must be %d numbers of at least "
        .. "0"):format(what, n))
    end
    list[i] = w
  end
  return list
end

--- Elements drawn from several data sets at random, by weights (equal ones by
--- default). With stop_on_empty_dataset the end of any is the end; otherwise
--- the others go on. Seeds as in shuffle.
--- Source: tf.data.Dataset.sample_from_datasets
dataset.static("sample_from_datasets", "datasets weights=nil seed=nil "
  .. "stop_on_empty_dataset=false rerandomize_each_iteration=true",
  function(datasets, weights, seed, stop, each_iteration)
    local what = "sample_from_datasets"
    local nodes = node_list(what, datasets)
    return dataset.new(Sample, what, nodes, {
      weights = weights_of(what, weights, #nodes), stop_on_empty = stop,
      each_iteration = each_iteration, stream = seeds.stream(what, seed),
    })
  end)

-- group_by_window ------------------------------------------------------------

local Group = stage { lazy_spec = true }

function Group.describe(node)
  return node.details or dataset.place_of(node.reduce)
end

function Group.batch_size() return nil end

function Group.cardinality(node)
  return dataset.cardinality_of(node.inputs[1]) == INFINITE and INFINITE
    or UNKNOWN
end

function Group.sample(node)
  return dataset.first(node)
end

function Group.spec(node)
  local first = dataset.first(node)
  return first and element.spec_of(first)
end

local function number_of(what, x)
  if type(x) == "userdata" then
    x = raw.item(raw.operand_tensor(x))
  end
  if not text.is_whole(x) then
    errors.raise("TypeError", ("group_by_window: %s must give a whole number, "
      .. "got %s"):format(what, text.describe(x)))
  end
  return x
end

-- The data set that reduce_func makes of a full group.
local function reduced(node, key, packs)
  local made = node.reduce(raw.tensor_from_table(key, "int64"),
    batch.of_packs("group", packs))
  if not dataset.is_dataset(made) then
    errors.raise("TypeError", "group_by_window: reduce_func must return a "
      .. "dataset, got " .. text.describe(made))
  end
  return made.node
end

function Group.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  local groups, current, left = {}, nil, nil
  -- The next group to be reduced: a full one, at the end what is left, by key.
  local function next_group()
    while left == nil do
      local pack = input:next()
      if pack == nil then
        left = lists.sorted_keys(groups)
        break
      end
      local key = number_of("key_func", node.fn(unpack(pack, 1, pack.n)))
      local group = groups[key]
      if group == nil then
        group = { size = number_of("window_size_func", node.size(
          raw.tensor_from_table(key, "int64"))) }
        if group.size < 1 then
          errors.raise("InvalidArgument", ("group_by_window: the window size "
            .. "is %d; it must be at least 1"):format(group.size))
        end
        groups[key] = group
      end
      group[#group + 1] = pack
      if #group == group.size then
        groups[key] = nil
        return key, group
      end
    end
    local key = table.remove(left, 1)
    return key, groups[key]
  end
  return {
    next = function()
      while true do
        local pack = current and current:next()
        if pack ~= nil then
          return pack
        end
        local key, group = dataset.call(node, next_group)
        if key == nil then
          current = nil
          return nil
        end
        current = dataset.open(dataset.call(node, reduced, node, key, group),
          run)
      end
    end,
  }
end

local function group(self, name, key, reduce, size, details)
  return dataset.new(Group, name, { self.node }, {
    fn = key, reduce = reduce, size = size, details = details,
  })
end

--- Elements grouped by key_func(element...) (a whole number): when window_size
--- of a key are there (or at the end, by rising keys) reduce_func(key, dataset
--- of them) makes a data set whose elements come out. window_size_func(key)
--- gives sizes by key.
--- Source: tf.data.Dataset.group_by_window
method("group_by_window", "key_func reduce_func window_size=nil "
  .. "window_size_func=nil name=nil",
  function(self, key, reduce, window_size, size)
    local what = "Dataset.group_by_window"
    dataset.check_function(what, "key_func", key)
    dataset.check_function(what, "reduce_func", reduce)
    if (window_size == nil) == (size == nil) then
      errors.raise("ValueError", what .. ": give either window_size or "
        .. "window_size_func")
    elseif size == nil then
      window_size = counts.whole(what, "window_size", window_size, 1)
      size = function() return window_size end
    end
    return group(self, "group_by_window", key,
      reduce, dataset.check_function(what, "window_size_func", size))
  end)

local function length_of(fn, ...)
  return number_of("element_length_func", fn(...))
end

--- Batches of elements of similar length: element_length_func(element...) says
--- how long one is; bucket i has lengths below bucket_boundaries[i] and batches
--- of bucket_batch_sizes[i] elements (one more size than boundaries). Batches
--- are padded (padded_shapes, padding_values) unless no_padding.
--- Source: tf.data.Dataset.bucket_by_sequence_length
method("bucket_by_sequence_length", "element_length_func bucket_boundaries "
  .. "bucket_batch_sizes padded_shapes:table=nil padding_values:table=nil "
  .. "pad_to_bucket_boundary=false no_padding=false drop_remainder=false "
  .. "name=nil", function(self, length, boundaries, sizes, shapes, pad_values,
    to_boundary, no_padding, drop)
    local what = "Dataset.bucket_by_sequence_length"
    dataset.check_function(what, "element_length_func", length)
    local _, n = options.list(what, "bucket_boundaries", boundaries, "numbers")
    local _, m = options.list(what, "bucket_batch_sizes", sizes, "numbers")
    if m ~= n + 1 then
      errors.raise("ValueError", ("%s: %d boundaries need %d batch sizes, got "
        .. "%d"):format(what, n, n + 1, m))
    elseif to_boundary then
      errors.raise("NotImplementedError", what .. ": pad_to_bucket_boundary; "
        .. "padded_shapes gives fixed sizes")
    end
    local function key(...)
      local own = length_of(length, ...)
      for i = 1, n do
        if own < boundaries[i] then
          return i - 1
        end
      end
      return n
    end
    return group(self, "bucket_by_sequence_length", key, function(k, packs)
      local size = sizes[raw.item(k) + 1]
      if no_padding then
        return packs:batch(size, { drop_remainder = drop })
      end
      return packs:padded_batch(size, {
        padded_shapes = shapes, padding_values = pad_values,
        drop_remainder = drop,
      })
    end, function(k) return sizes[raw.item(k) + 1] end,
      dataset.place_of(length))
  end)

-- random ---------------------------------------------------------------------

local Random = stage {}

function Random.cardinality()
  return INFINITE
end

function Random.spec()
  return { spec.new({}, "int64"), n = 1 }
end

function Random.sample()
  return { (raw.tensor_from_table(0, "int64")), n = 1 }
end

function Random.open(node, run)
  local draw = seeds.draws(seeds.begin(node, run, node.each_iteration))
  return {
    next = function()
      return { (raw.tensor_from_table(draw(2 ^ 32), "int64")), n = 1 }
    end,
  }
end

--- Random int64 numbers in 0..2^32 - 1, without end. Every iteration gives the
--- same ones unless rerandomize_each_iteration.
--- Source: tf.data.Dataset.random
dataset.static("random", "seed=nil rerandomize_each_iteration=false name=nil",
  function(seed, each_iteration)
    return dataset.new(Random, "random", {}, {
      each_iteration = each_iteration, stream = seeds.stream("random", seed),
    })
  end)

-- list_files -----------------------------------------------------------------

local Files = stage {}

function Files.describe(node)
  return #node.files .. " files"
end

function Files.cardinality(node)
  return #node.files
end

function Files.spec()
  return { spec.new({}, "string"), n = 1 }
end

function Files.sample(node)
  return node.files[1] and { node.files[1], n = 1 }
end

function Files.rows(node)
  if node.made_rows == nil then
    node.made_rows = rows.new({ strings.new(node.files), n = 1 }, #node.files)
  end
  return node.made_rows
end

function Files.items(node)
  return stream.sequence(#node.files)
end

local files_dataset

local function with_files(_, list)
  return files_dataset(list)
end

files_dataset = function(list)
  return dataset.new(Files, "list_files", {}, {
    files = list, with_files = with_files,
  })
end

--- Names of the files that match patterns (*, ?, [...]), in random order
--- unless shuffle is false; then sorted.
--- Errors: NotFound when a pattern matches nothing.
--- Source: tf.data.Dataset.list_files
dataset.static("list_files", "file_pattern shuffle=nil seed=nil name=nil",
  function(pattern, shuffle, seed)
    local what = "list_files"
    local patterns = type(pattern) == "string" and { pattern }
      or strings.is(pattern) and pattern:toflat()
      or options.list(what, "file_pattern", pattern, "patterns")
    local names = {}
    for i = 1, #patterns do
      files.piece(what, "file_pattern", patterns[i])
      local found = files.glob(patterns[i])
      if #found == 0 then
        errors.raise("NotFound", ("%s: no files match %s"):format(what,
          text.quote(patterns[i])))
      end
      lists.append(names, found)
    end
    local made = files_dataset(names)
    if shuffle == false then
      return made
    end
    return made:shuffle(#names, { seed = seed })
  end)

-- unique ---------------------------------------------------------------------

local Unique = stage {}

function Unique.cardinality(node)
  local n = dataset.cardinality_of(node.inputs[1])
  return (n == 0 or n == 1) and n or UNKNOWN
end

local function key_of(pack)
  local x = pack[1]
  if pack.n ~= 1 or text.is_plain(x) or dataset.is_dataset(x) then
    errors.raise("TypeError", "unique: elements must have one component, got "
      .. spec.structure_text(element.spec_of(pack)))
  elseif type(x) == "userdata" then
    return x:bytes()
  end
  return type(x) == "string" and x or table.concat(x:toflat(), "\0")
end

function Unique.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  local seen = {}
  return {
    next = function()
      while true do
        local pack = input:next()
        local key = pack and dataset.call(node, key_of, pack)
        if key == nil then
          return nil
        elseif not seen[key] then
          seen[key] = true
          return pack
        end
      end
    end,
  }
end

--- Each value once, where it first comes; elements have one component.
--- Source: tf.data.Dataset.unique
method("unique", "name=nil", function(self)
  return dataset.new(Unique, "unique", { self.node })
end)
