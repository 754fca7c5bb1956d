-- Iterators: their end, their state, what they hold; caches and sources.
local E = require "spec.support.elements"
local R = require "spec.support.replicas"
local files = require "spec.support.files"
local leaks = require "spec.support.leaks"
local live = require "spec.support.live"
local raw = require "tfdist.core.raw"
local source = require "tfdist.data.source"
local spec = require "tfdist.data.spec"
local tf = require "tfdist"

local D = tf.data.Dataset
local all, fails = E.all, R.fails

local function rest(it)
  local out = {}
  for x in it do
    out[#out + 1] = E.plain(x)
  end
  return out
end

describe("iterators", function()
  leaks(before_each, after_each)

  it("loops end quietly, get_next says OutOfRange every time", function()
    local it = D.range(2):iter()
    assert.equal(0, it:get_next():item())
    assert.equal(1, it:next():item())
    for _ = 1, 3 do
      local e = fails("OutOfRange", "after 2 elements", it.get_next, it)
      assert.truthy(e.hint:find("for loop", 1, true))
    end
    assert.is_nil(it())
    assert.same({}, rest(it))
    assert.is_false(it:get_next_as_optional():has_value())
  end)

  it("an Optional has a value or none", function()
    local it = D.from_tensor_slices { tf.constant { 1 }, tf.constant { 2 } }
      :iter()
    local o = it:get_next_as_optional()
    assert.is_true(o:has_value())
    local a, b = o:get_value()
    assert.same({ 1, 2 }, { a:item(), b:item() })
    assert.equal(2, #o.element_spec)
    o = it:get_next_as_optional()
    assert.is_false(o:has_value())
    fails("InvalidArgument", "no value", o.get_value, o)
  end)

  it("two at once do not disturb each other", function()
    local ds = D.range(6):shuffle(6, { seed = 1,
      reshuffle_each_iteration = false }):batch(2)
    local a, b, one, two = ds:iter(), ds:iter(), {}, {}
    for _ = 1, 3 do
      one[#one + 1] = a:get_next():totable()
      two[#two + 1] = b:get_next():totable()
    end
    assert.same(one, two)
    local n = 0
    for _ in ds:iter() do
      for _ in ds:iter() do n = n + 1 end
    end
    assert.equal(9, n)
  end)

  it("a closed one gives nothing more", function()
    local it = D.range(5):batch(2):prefetch(1):iter()
    it:get_next()
    it:close()
    it:close()
    fails("FailedPrecondition", "closed", it.get_next, it)
    fails("TypeError", "iterator itself", it.get_next, nil)
  end)

  it("elements outlive a tf.tidy that prefetched them", function()
    local it = D.range(6):map(function(x) return x + 1 end):prefetch(3):iter()
    local first
    tf.tidy(function()
      first = it:get_next()
    end)
    assert.same({ 2, 3, 4, 5, 6 }, rest(it))
    assert.equal(1, first:item())
    -- nor does it release what a pipeline holds or a function returned
    local held = tf.constant(7)
    for _, ds in ipairs { D.from_tensors(held), D.from_tensor_slices {
      tf.constant { 7 } }:batch(1), D.range(1):map(function()
        return held
      end):cache() } do
      for _ = 1, 2 do
        local x = tf.tidy(function() return ds:iter():get_next() end)
        assert.equal(7, x:numel() * x:sum():item())
      end
    end
    assert.equal(7, held:item())
    local shuffled = D.range(20):map(function(x) return x + 0 end)
      :shuffle(20, { seed = 1 }):iter()
    local seen = 0
    tf.tidy(function() seen = seen + shuffled:get_next():item() end)
    for _, x in ipairs(rest(shuffled)) do seen = seen + x end
    assert.equal(190, seen)
  end)

  it("elements may be released, the data set keeps its own", function()
    local x = tf.constant { 1, 2 }
    for _, ds in ipairs { D.from_tensors(x), D.from_tensor_slices(x):batch(2),
      D.range(2):map(function() return tf.zeros {} end):batch(2):cache() } do
      for _ = 1, 3 do
        for y in ds:iter() do y:release() end
      end
    end
    local ds = D.from_tensor_slices(x)
    x:release()
    assert.same({ 1, 2 }, all(ds))
  end)

  it("work on the host whatever device surrounds them", function()
    local it = D.range(2):batch(2):map(function(x) return x + 1 end):iter()
    local last = raw.device_at("", raw.device_count "" - 1)
    local x = tf.device(raw.device_name(last), function()
      return it:get_next()
    end)
    assert.equal(raw.device_name(raw.device_at("CPU", 0)), x.device)
  end)

  it("an empty loop body costs no memory", function()
    for x in D.range(300):repeat_(3):batch(7):iter() do
      assert.is_true(#x <= 7)
    end
  end)

  local function pipelines()
    local function one_by_one(x) return x end
    return {
      D.range(40), D.range(40):shuffle(7, { seed = 2 }):batch(3):repeat_(3),
      D.range(40):map(one_by_one):shuffle(9, { seed = 3 }):batch(2),
      D.range(40):shuffle(40):batch(4):prefetch(2):repeat_(2),
      D.range(12):filter(function(x) return x:item() % 3 > 0 end):repeat_(4),
      D.range(6):flat_map(function(x) return D.range(x:item()) end):batch(2),
      D.range(8):interleave(function(x)
        return D.from_tensors(x):repeat_(3)
      end, { cycle_length = 3 }),
      D.zip { D.range(20), D.range(30):shuffle(5) },
      D.range(9):concatenate(D.range(9)):skip(2):take(13),
      D.range(30):batch(4):unbatch():shard(2, 1):batch(2, true),
      D.range(30):window(4, 2):flat_map(function(w) return w:batch(4) end),
      D.sample_from_datasets { D.range(9), D.range(20, 29) },
      D.range(23):batch(4):rebatch { 2, 0, 3 },
      D.range(9):map(one_by_one):cache():repeat_(3),
    }
  end

  -- Their numbers are the program's next until they have drawn.
  local function drawing()
    local function noisy(x)
      return tf.random.uniform({}, 0, 1000, "int64") * 100 + x
    end
    local function seeded(x)
      return tf.random.uniform({}, 0, 1000, "int64", 5) * 100000 + x
    end
    return {
      D.range(20):map(noisy):batch(3), D.range(20):map(seeded):prefetch(3),
      D.range(12):map(noisy):shuffle(5):map(seeded):repeat_(2):batch(4),
    }
  end

  local function check_restore(list, first)
    for number, ds in ipairs(list) do
      local whole = #all(ds)
      for _, taken in ipairs { first, math.floor(whole / 2), whole } do
        local it = ds:iter()
        for _ = 1, taken do it() end
        local saved = it:state()
        local wanted = rest(it)
        local other = ds:iter()
        other()
        assert.same(wanted, rest(other:restore(saved)),
          "pipeline " .. number .. " after " .. taken)
        assert.same(saved, ds:iter():restore(saved):state())
      end
    end
  end

  it("go where another one was by its state", function()
    check_restore(pipelines(), 0)
    check_restore(pipelines(), 1)
    check_restore(drawing(), 1)
  end)

  it("give what their functions draw, whatever is drawn in between", function()
    local function run(between)
      tf.random.set_seed(7)
      local list = {}
      for x in D.range(6):map(function(x)
        return x + tf.random.uniform({}, 0, 2 ^ 20, "int64")
      end):shuffle(3):iter() do
        list[#list + 1] = x:item()
        between()
      end
      return list
    end
    assert.same(run(function() end), run(function()
      tf.random.normal { 2 }
    end))
  end)

  it("draw nothing of the program's when they look at an example", function()
    local ds = D.range(4):map(function(x)
      return x + tf.random.uniform({}, 0, 9, "int64")
    end)
    tf.random.set_seed(7)
    local want = tf.random.uniform({ 4 }):totable()
    tf.random.set_seed(7)
    assert.equal("int64", ds.element_spec.dtype)
    assert.same(want, tf.random.uniform({ 4 }):totable())
  end)

  it("refuse states of other data sets", function()
    local it = D.range(3):iter()
    fails("ValueError", "no state", it.restore, it, {})
    fails("ValueError", "no state", it.restore, it, 3)
    it = D.range(3):shuffle(3):iter()
    for _, seeds in ipairs { { 3 }, { {} }, { { seed = 1, epoch = {} } },
      { { seed = "x", epoch = 1 } } } do
      fails("ValueError", "no state", it.restore, it, { version = 1, count = 1,
        seeds = seeds })
    end
    local saved = it:state()
    it = D.range(3):iter()
    fails("ValueError", "1 random stages, this one has 0", it.restore, it,
      saved)
  end)

  it("pass over elements without making them", function()
    local made = 0
    local ds = D.range(1000):batch(2):map(function(x)
      made = made + 1
      return x
    end)
    local it = ds:iter()
    for _ = 1, 100 do it() end
    local saved = it:state()
    made = 0
    assert.same({ 200, 201 }, ds:iter():restore(saved):get_next():totable())
    assert.equal(1, made)
  end)
end)

describe("cache", function()
  leaks(before_each, after_each)

  local function counted(calls)
    return D.range(4):map(function(x)
      calls.n = calls.n + 1
      return { x = x * 2, s = { "a", "b" } }, "text", tf.zeros { 2, 0 }
    end)
  end

  local wanted = {}
  for i = 0, 3 do
    wanted[i + 1] = { { x = i * 2, s = { "a", "b" } }, "text", { {}, {} } }
  end

  it("in memory: functions run once", function()
    local calls = { n = 0 }
    local ds = counted(calls):cache()
    ds:iter():get_next() -- given up: nothing is kept
    assert.same(wanted, all(ds))
    assert.same(wanted, all(ds))
    assert.equal(5, calls.n)
    local frozen = D.range(20):shuffle(20, { seed = 1 }):cache()
    assert.same(all(frozen), all(frozen))
    fails("ResourceExhausted", "without end", all,
      D.range(2):map(function(x) return x end):repeat_():cache())
  end)

  it("in a file: also for another program", function()
    local path = os.tmpname()
    os.remove(path)
    local calls = { n = 0 }
    counted(calls):cache(path):iter():get_next()
    assert.is_nil(io.open(path))
    assert.same(wanted, all(counted(calls):cache(path)))
    assert.equal(5, calls.n)
    assert.same(wanted, all(counted(calls):cache(path)))
    assert.equal(5, calls.n)
    local file = io.open(path, "rb")
    local bytes = file:read "*a"
    file:close()
    for _, cut in ipairs { 3, 20, 60, #bytes - 3 } do
      file = io.open(path, "wb")
      file:write(bytes:sub(1, cut))
      file:close()
      fails("DataLoss", path, all, counted(calls):cache(path))
    end
    os.remove(path)
    fails("Unavailable", "cannot write", all,
      counted(calls):cache "/nowhere/at/all")
    -- What was given up leaves no parts behind.
    local names
    for _ = 1, 8 do
      live {} -- what one collection finalises may be what holds another
      local left = io.popen("ls " .. path .. "* 2>/dev/null")
      names = left:read "*a"
      left:close()
      if names == "" then break end
    end
    assert.equal("", names)
  end)
end)

describe("cache files", function()
  it("are not taken from others that write other elements meanwhile", function()
    local path = os.tmpname()
    os.remove(path)
    local function pass(from)
      return D.range(from, from + 3):cache(path):iter()
    end
    local a, b, c = pass(0), pass(5), pass(0)
    for _ = 1, 3 do a:get_next() end
    assert.same({ 5, 6, 7 }, { b:get_next():item(), b:get_next():item(),
      b:get_next():item() })
    assert.is_nil(a())
    fails("AlreadyExists", ("%q was written meanwhile, with other elements")
      :format(path), b)
    for _ = 1, 3 do c:get_next() end
    assert.is_nil(c()) -- the same elements
    assert.same({ 0, 1, 2 }, all(D.range(9):cache(path)))
    local pipe = io.popen("ls " .. path .. "*")
    assert.equal(path .. "\n", pipe:read "*a")
    pipe:close()
    os.remove(path)
  end)

  leaks(before_each, after_each)

  local path

  before_each(function() path = files.place() end)
  after_each(function() os.remove(path) end)

  local function left()
    local folder, name = path:match "^(.*)/([^/]*)$"
    local n = 0
    for _, each in ipairs(files.names(folder)) do
      n = n + (each:sub(1, #name) == name and 1 or 0)
    end
    return n
  end

  -- The keys of a table and of the tables in it, with their types.
  local function keys_of(t)
    local out = {}
    for key, value in pairs(t) do
      out[#out + 1] = ("%s %s"):format(type(key), tostring(key))
        .. (type(value) == "table" and "{" .. keys_of(value) .. "}" or "")
    end
    table.sort(out)
    return table.concat(out, ", ")
  end

  it("keep the keys of tables", function()
    for _, make in ipairs {
      function(i) return { ["12"] = i, a = i } end,
      function(i) return { [12] = i, ["12"] = i, ["-0"] = i, ["007"] = i } end,
      function(i) return { [-3] = i, [0] = i, [1.5] = i, [2 ^ 60] = i } end,
      function(i) return { [true] = i, [false] = i, ["true"] = i } end,
      function(i) return { i, { i, i }, a = { i, b = i } } end,
      function(i) return { n = i, a = i } end,
      function(i) return { i, i, n = 2 } end,
      function(i) return { [""] = i, ["a b\nc"] = i, ["1e3"] = i } end,
    } do
      local ds = D.range(2):map(make):cache(path)
      local made = ds:iter():get_next()
      local whole = all(ds)
      assert.equal(keys_of(made), keys_of(ds:iter():get_next()))
      assert.same(whole, all(ds))
      os.remove(path)
    end
    fails("TypeError", "the key a function", all, D.range(1):map(function(i)
      return { [print] = i }
    end):cache(path))
  end)

  it("of whole-number keys written as strings are read", function()
    local one = "t int64 \n" .. files.little(7, 8)
    files.write(path, "tfdist cache 1\ne\nl 1 0\nl 0 2\ns 2\n12" .. one
      .. "s 1\na" .. one .. "e\nl 1 0\nl 2 0\n" .. one .. one .. "end 2\n")
    local it = D.range(2):cache(path):iter()
    local first, second = it:get_next(), it:get_next()
    assert.equal("number 12, string a", keys_of(first))
    assert.equal(7, first[12]:item())
    assert.equal("number 1, number 2", keys_of(second))
    assert.is_nil(it())
    for _, key in ipairs { "n x", "n nan", "b 1", "t int64 ", "q 1" } do
      files.write(path, "tfdist cache 1\ne\nl 1 0\nl 0 1\n" .. key .. "\n"
        .. one .. "end 1\n")
      fails("DataLoss", "damaged", all, D.range(1):cache(path))
    end
  end)

  it("of passes that fail or are closed are removed at once", function()
    collectgarbage "stop" -- what it would remove is to be gone before
    finally(function() collectgarbage "restart" end)
    local calls = 0
    local ds = D.range(4):map(function(i)
      calls = calls + 1
      if calls == 3 then error "boom" end
      return i
    end):cache(path)
    local it = ds:iter()
    it:get_next()
    assert.equal(1, left())
    it:get_next()
    fails("RuntimeError", "boom", it.get_next, it)
    assert.equal(0, left())
    -- The pass goes on without the element, the cache is made by another.
    assert.equal(3, it:get_next():item())
    assert.is_nil(it())
    assert.equal(0, left())
    it = ds:iter()
    it:get_next()
    it:close()
    assert.equal(0, left())
    fails("TypeError", "cannot hold", all, D.range(1):map(function(i)
      return { [print] = i }
    end):cache(path))
    assert.equal(0, left())
    assert.same({ 0, 1, 2, 3 }, all(ds))
    assert.equal(1, left())
  end)

  it("are removed when the disk is full", function()
    local open, writes = io.open, 0
    finally(function() rawset(io, "open", open) end)
    rawset(io, "open", function(name, mode)
      local file, why, code = open(name, mode)
      if mode ~= "wb" then return file, why, code end
      return {
        write = function()
          writes = writes + 1
          if writes == 8 then return nil, "No space left on device", 28 end
          return true
        end,
        close = function() return file:close() end,
      }
    end)
    local it = D.range(9):cache(path):iter()
    local e
    repeat
      local ok
      ok, e = pcall(it)
    until not ok
    assert.equal("ResourceExhausted", e.kind)
    assert.equal(0, left())
  end)
end)

describe("sources", function()
  leaks(before_each, after_each)

  local closed, skipped

  local function numbers(n, fail_at)
    return {
      name = "Numbers", details = n .. " of them",
      cardinality = function() return n end,
      element_spec = { spec.new({}, "float32"), spec.new({}, "string") },
      open = function()
        local at = 0
        return {
          next = function()
            at = at + 1
            if at == fail_at then
              tf.errors.raise("DataLoss", "numbers: damaged at " .. at)
            elseif at <= n then
              return at, "s" .. at
            end
          end,
          skip = function(_, k)
            skipped = skipped + k
            local own = math.min(k, n - at)
            at = at + own
            return own
          end,
          close = function() closed = closed + 1 end,
        }
      end,
    }
  end

  before_each(function() closed, skipped = 0, 0 end)

  it("give elements, specs and printing", function()
    local ds = source.dataset(numbers(3))
    assert.same({ { 1, "s1" }, { 2, "s2" }, { 3, "s3" } }, all(ds))
    assert.equal(3, ds:cardinality())
    assert.equal("string", ds.element_spec[2].dtype)
    assert.truthy(tostring(ds):find("Numbers(3 of them)", 1, true))
    assert.equal(1, closed)
    assert.same({ { 3, "s3" } }, all(ds:skip(2)))
    assert.equal(2, skipped)
  end)

  it("are closed early, at the end and on errors", function()
    local it = source.dataset(numbers(9)):batch(2):repeat_():iter()
    it:get_next()
    it:close()
    assert.equal(1, closed)
    it = source.dataset(numbers(9, 2)):iter()
    it:get_next()
    local e = fails("DataLoss", "damaged at 2", it.get_next, it)
    assert.truthy(tostring(e):find("in dataset stage Numbers", 1, true))
    assert.equal(2, closed)
    assert.is_nil(it())
    assert.same(4, #all(source.dataset(numbers(2)):repeat_(2)))
    assert.equal(4, closed)
  end)

  it("file names come in many forms", function()
    assert.same({ "a" }, source.filenames("f", "a"))
    assert.same({ "a", "b" }, source.filenames("f", { "a", "b" }))
    assert.same({ "a", "b" }, source.filenames("f",
      D.from_tensor_slices { "a", "b" }))
    fails("TypeError", "file name 2", source.filenames, "f", { "a", 3 })
    fails("ValueError", "no file names", source.filenames, "f", {})
    fails("TypeError", "list of names", source.filenames, "f", 3)
  end)
end)
