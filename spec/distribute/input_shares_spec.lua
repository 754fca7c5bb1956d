-- Who gets how much: cases I, and the rule against a model of its own.
local E = require "spec.support.elements"
local R = require "spec.support.replicas"
local input = require "tfdist.distribute.input"
local leaks = require "spec.support.leaks"
local sharding = require "tfdist.distribute.input_sharding"
local shares = require "tfdist.distribute.input_shares"
local source = require "tfdist.data.source"
local tf = require "tfdist"

local D = tf.data.Dataset
local fails = R.fails

local function policy(ds, name)
  return ds:with_options {
    experimental_distribute = { auto_shard_policy = name },
  }
end

-- What W workers of R replicas get of a data set, step by step: lists of all
-- replicas' shares, worker after worker. Workers that end first give nothing.
local function cluster(make, W, per_worker, most)
  local next_step, out = {}, {}
  for w = 0, W - 1 do
    next_step[w] = input.plain_steps(input.plan_for(
      tf.distribute.get_strategy(), make(w).node, W, w, per_worker))
  end
  while #out < (most or 1000) do
    local step, ended = {}, 0
    for w = 0, W - 1 do
      local packs = next_step[w]()
      if packs == nil then
        ended = ended + 1
      end
      for r = 1, per_worker do
        step[#step + 1] = packs and E.plain(packs[r][1]) or {}
      end
    end
    if ended == W then
      break
    end
    out[#out + 1] = step
  end
  return out
end

describe("shares", function()
  it("I01 even ones", function()
    assert.same({ 2, 2, 2, 2 }, shares.sizes_for_worker(8, 2, 2, 0))
    assert.same({ 2, 2, 2, 2 }, shares.sizes_for_worker(8, 2, 2, 1))
  end)

  it("I02 I16 turned by the worker's number", function()
    assert.same({ 2, 1, 1 }, shares.sizes_for_worker(4, 3, 1, 0))
    assert.same({ 1, 1, 2 }, shares.sizes_for_worker(4, 3, 1, 1))
    assert.same({ 1, 2, 1 }, shares.sizes_for_worker(4, 3, 1, 2))
    assert.same({ 2, 2, 2, 1 }, shares.sizes_for_worker(7, 2, 2, 0))
    assert.same({ 2, 1, 2, 2 }, shares.sizes_for_worker(7, 2, 2, 1))
    assert.same({ 1, 1, 1, 1, 0 }, shares.shares(4, 5))
  end)

  local function pieces(B, G, n)
    local list, at = {}, 0
    for i = 1, n do
      local first, count = shares.piece(B, G, n, i - 1)
      assert.equal(at, first)
      list[i], at = count, at + count
    end
    return list
  end

  it("a short batch fills replicas in order", function()
    assert.same({ 4, 2 }, pieces(6, 8, 2))
    assert.same({ 2, 2, 1, 0 }, pieces(5, 8, 4))
    assert.same({ 0, 0 }, pieces(0, 8, 2))
  end)

  it("I15 even pieces where the batch size is not known", function()
    assert.same({ 2, 2, 0 }, pieces(4, nil, 3))
    assert.same({ 3, 3 }, pieces(6, nil, 2))
    assert.same({ 3, 3 }, pieces(6, 5, 2))
  end)

  it("I14 a share has one size where all are full and equal", function()
    assert.equal(4, shares.static_share(8, 2, true))
    assert.is_nil(shares.static_share(7, 2, true))
    assert.is_nil(shares.static_share(8, 2, false))
    assert.is_nil(shares.static_share(nil, 2, true))
  end)

  it("I16 each step of all workers adds up to the global batch", function()
    for G = 1, 12 do
      for W = 1, 4 do
        for per = 1, 3 do
          local lists = {}
          for w = 0, W - 1 do
            lists[w] = shares.sizes_for_worker(G, W, per, w)
          end
          for step = 0, W - 1 do
            local sum = 0
            for w = 0, W - 1 do
              for r = 1, per do
                sum = sum + lists[w][step * per + r]
              end
            end
            assert.equal(G, sum)
          end
        end
      end
    end
  end)
end)

describe("workers", function()
  leaks(before_each, after_each)

  it("J01 J28 under DATA take pieces of the same batches", function()
    local ds = D.range(14):batch(8)
    assert.same({ { { 0, 1, 2, 3 }, { 4, 5, 6, 7 } },
      { { 8, 9, 10, 11 }, { 12, 13 } } }, cluster(function() return ds end, 2,
      1))
    ds = D.range(9):batch(2)
    assert.same({ { { 0 }, { 1 }, {}, {} }, { { 2 }, { 3 }, {}, {} } },
      cluster(function() return ds end, 2, 2, 2))
  end)

  it("a step has the same elements whatever the number of workers", function()
    local ds = D.range(100):shuffle(100, { seed = 1,
      reshuffle_each_iteration = false }):batch(12)
    local wanted = E.all(ds)
    for _, shape in ipairs { { 1, 4 }, { 2, 2 }, { 4, 1 }, { 3, 1 }, { 5, 2 } }
    do
      local got = cluster(function() return ds end, shape[1], shape[2])
      for i = 1, #got do
        local joined = {}
        for _, part in ipairs(got[i]) do
          for _, x in ipairs(part) do joined[#joined + 1] = x end
        end
        assert.same(wanted[i], joined)
      end
      assert.equal(#wanted, #got)
    end
  end)

  it("J05 J06 AUTO shares batches, OFF gives everything to all", function()
    local ds = D.range(4):batch(2)
    assert.same({ { { 0 }, { 1 } }, { { 2 }, { 3 } } },
      cluster(function() return ds end, 2, 1))
    assert.same({ { { 0 }, { 0 } }, { { 1 }, { 1 } }, { { 2 }, { 2 } },
      { { 3 }, { 3 } } }, cluster(function() return policy(ds, "OFF") end, 2,
      1))
  end)

  it("OFF with uneven shares cuts each worker's stream in turn", function()
    local ds = policy(D.range(14):batch(7), "OFF")
    assert.same({ { { 0, 1 }, { 2, 3 }, { 0, 1 }, { 2 } },
      { { 4, 5 }, { 6 }, { 3, 4 }, { 5, 6 } },
      { { 7, 8 }, { 9, 10 }, { 7, 8 }, { 9 } },
      { { 11, 12 }, { 13 }, { 10, 11 }, { 12, 13 } } },
      cluster(function() return ds end, 2, 2))
  end)

  -- A source of files; file k holds 100 k, 100 k + 1, ...
  local function files(list, size)
    return source.dataset {
      name = "Files", files = list,
      with_files = function(_, own) return files(own, size).node.source end,
      open = function()
        local at, k = 0, 1
        return {
          next = function()
            if at == size then at, k = 0, k + 1 end
            at = at + 1
            return list[k] and list[k] * 100 + at - 1
          end,
        }
      end,
    }
  end

  it("I16 two files of seven", function()
    local ds = policy(files({ 1, 2 }, 7):batch(7), "FILE")
    local wanted = { { { 100, 101 }, { 102, 103 }, { 200, 201 }, { 202 } },
      { { 104, 105 }, { 106 }, { 203, 204 }, { 205, 206 } } }
    assert.same(wanted, cluster(function() return ds end, 2, 2))
    -- AUTO finds the files.
    assert.same(wanted, cluster(function()
      return files({ 1, 2 }, 7):batch(7)
    end, 2, 2))
  end)

  it("workers go on with empty shares until all have ended", function()
    -- Workers in coroutines: `agree` meets the others.
    local workers, out = {}, {}
    for w = 0, 1 do
      -- Worker 0 gets two elements, worker 1 four.
      local both = files({ 1, 2 }, 4):batch(2)
      local node = policy(both:filter(function(x)
        return x[0]:item() ~= 102
      end), "FILE").node
      local plan = input.plan_for(tf.distribute.get_strategy(), node, 2, w, 1)
      plan.agree = function(flag, rows)
        return coroutine.yield(flag), rows
      end
      workers[w] = coroutine.wrap(function()
        for packs in input.plain_steps(plan) do
          coroutine.yield(E.plain(packs[1][1]))
        end
        return nil
      end)
    end
    while true do
      local a, b = workers[0](), workers[1]()
      local any = a or b
      a, b = workers[0](any), workers[1](any)
      if a == nil then
        assert.is_nil(b)
        break
      end
      out[#out + 1] = { a, b }
    end
    assert.same({ { { 100 }, { 200 } }, { { 101 }, { 201 } }, { {}, { 202 } },
      { {}, { 203 } } }, out)
  end)

  it("FILE gives file i to worker i mod W, through interleave too", function()
    local node = sharding.resolve(policy(files({ 1, 2, 3, 4, 5 }, 1), "FILE")
      .node, 2, 1, 1)
    local wrap = require "tfdist.data.dataset".wrap
    assert.same({ 200, 400 }, E.all(wrap(node)))
    local names = D.from_tensor_slices { "1", "2", "3", "4" }
      :shuffle(4, { seed = 1 })
    local ds = policy(names:interleave(function(name)
      return files({ tonumber(name) }, 2)
    end, { cycle_length = 2 }), "FILE")
    local resolved
    resolved = sharding.resolve(ds.node, 2, 0, 1)
    assert.same({ 100, 300, 101, 301 }, E.all(wrap(resolved)))
    local e = fails("InvalidArgument", "at least one file per worker",
      sharding.resolve, policy(files({ 1 }, 2), "FILE").node, 2, 0, 1)
    assert.truthy(e.hint:find("DATA", 1, true))
    fails("InvalidArgument", "4 files for 5 workers", sharding.resolve, ds.node,
      5, 0, 1)
  end)

  it("caches keep what each worker takes, in memory and in files", function()
    local wrap = require "tfdist.data.dataset".wrap
    local function share(ds, w)
      return E.all(wrap((sharding.resolve(ds.node, 2, w, 1))))
    end
    local hint = tf.data.experimental.SHARD_HINT
    local path = os.tmpname()
    os.remove(path)
    for _, place in ipairs { "", path } do
      local by_file = policy(files({ 1, 2 }, 2):cache(place), "FILE")
      local by_hint = policy(D.range(4):cache(place ~= "" and place .. "h" or "")
        :shard(hint, hint):cache(place ~= "" and place .. "s" or ""), "HINT")
      for _ = 1, 2 do
        assert.same({ 200, 201 }, share(by_file, 1))
        assert.same({ 100, 101, 200, 201 }, E.all(by_file))
        assert.same({ 100, 101 }, share(by_file, 0))
        assert.same({ 1, 3 }, share(by_hint, 1))
        assert.same({ 0, 2 }, share(by_hint, 0))
      end
    end
    -- What lies below the shard is the same for all.
    for _, name in ipairs { "", "-00000-of-00002", "-00001-of-00002", "h",
      "s-00000-of-00002", "s-00001-of-00002" } do
      assert(os.remove(path .. name))
    end
    -- Names of files that were kept in a random order before.
    local names = D.from_tensor_slices { "1", "2", "3", "4" }:shuffle(4):cache()
    local ds = policy(names:interleave(function(name)
      return files({ tonumber(name) }, 1)
    end, { cycle_length = 1 }), "FILE")
    E.all(names)
    assert.same({ 100, 300 }, share(ds, 0))
    assert.same({ 200, 400 }, share(ds, 1))
  end)

  it("J31 FILE needs a source of files", function()
    local e = fails("NotFound", "Found an unshardable source dataset",
      sharding.resolve, policy(D.range(20), "FILE").node, 2, 0, 1)
    assert.truthy(e.hint:find("OFF", 1, true))
    local _, chosen = sharding.resolve(D.range(20).node, 2, 0, 1)
    assert.equal("DATA", chosen)
    _, chosen = sharding.resolve(policy(D.range(20), "FILE").node, 1, 0, 1)
    assert.equal("FILE", chosen)
  end)

  it("HINT replaces the placeholders of shard", function()
    local hint = tf.data.experimental.SHARD_HINT
    local ds = policy(D.range(8):shard(hint, hint):batch(2), "HINT")
    assert.same({ { { 0 }, { 1 } }, { { 2 }, { 3 } }, { { 4 }, { 5 } },
      { { 6 }, { 7 } } }, cluster(function() return ds end, 2, 1))
    fails("ValueError", "SHARD_HINT", E.all, D.range(8):shard(hint, hint))
  end)

  it("numbers out of range", function()
    local node = D.range(4):batch(2).node
    fails("InvalidArgument", "num_workers", sharding.resolve, node, 0, 0, 1)
    fails("InvalidArgument", "outside 0..1", sharding.resolve, node, 2, 2, 1)
    fails("InvalidArgument", "num_replicas", sharding.resolve, node, 1, 0, 0)
  end)

  it("a short batch in mid-stream is shared by itself under DATA", function()
    local ds = D.range(6):batch(4):repeat_(2)
    assert.same({ { { 0, 1 }, { 2, 3 } }, { { 4, 5 }, {} },
      { { 0, 1 }, { 2, 3 } }, { { 4, 5 }, {} } },
      cluster(function() return ds end, 1, 2))
    -- and across batches under OFF
    assert.same({ { { 0, 1 }, { 2, 3 } }, { { 4, 5 }, { 0, 1 } },
      { { 2, 3 }, { 4, 5 } } },
      cluster(function() return policy(ds, "OFF") end, 1, 2))
  end)

  it("a map that changes the leading size makes it unknown", function()
    local ds = D.range(8):batch(8)
    assert.same({ { { 0, 1, 2, 3, 4 }, { 5 } } }, cluster(function()
      return D.range(6):batch(10):map(function(x) return x + 0 end)
    end, 1, 2))
    assert.same({ { { 0, 1, 2 }, { 3, 4, 5 } } }, cluster(function()
      return ds:map(function(x) return x[{ { 0, 6 } }] end)
    end, 1, 2))
  end)
end)

describe("every element exactly once", function()
  leaks(before_each, after_each)

  local seed = 20240607
  -- A plain generator, so that cases are the same on every engine.
  local function random(lo, hi)
    seed = (seed * 16807) % 2147483647
    return lo + seed % (hi - lo + 1)
  end

  -- The rule as decided, written down once more: how many elements of a batch
  -- of B replica i of n gets, one element at a time.
  local function model(B, G, n)
    local got = {}
    for i = 1, n do got[i] = 0 end
    local i = 1
    for _ = 1, B do
      while got[i] == math.floor(G / n) + (i <= G % n and 1 or 0) do
        i = i + 1
      end
      got[i] = got[i] + 1
    end
    return got
  end

  it("for any sizes, workers and replicas", function()
    for case = 1, 60 do
      local n, G = random(0, 40), random(1, 13)
      local W, per, drop = random(1, 4), random(1, 4), random(0, 1) == 1
      local name = ("seed case %d: %d elements, G %d, W %d, R %d%s"):format(
        case, n, G, W, per, drop and ", drop" or "")
      local ds = D.range(n):batch(G, drop)
      local got = cluster(function() return ds end, W, per)
      local at, steps = 0, 0
      local kept = drop and n - n % G or n
      for _, step in ipairs(got) do
        steps = steps + 1
        local B = math.min(G, kept - at)
        local sizes = W * per > 1 and model(B, G, W * per) or { B }
        for i = 1, W * per do
          assert.equal(sizes[i], #step[i], name)
          for _, x in ipairs(step[i]) do
            assert.equal(at, x, name)
            at = at + 1
          end
        end
      end
      assert.equal(kept, at, name)
      assert.equal(math.ceil(kept / G), steps, name)
    end
  end)

  it("also when each worker cuts its own stream", function()
    for case = 1, 40 do
      local n, G = random(0, 40), random(1, 13)
      local W, per = random(1, 4), random(1, 4)
      local name = ("seed case %d: %d elements, G %d, W %d, R %d"):format(case,
        n, G, W, per)
      if W * per > 1 then
        local ds = policy(D.range(n):batch(G), "OFF")
        local got = cluster(function() return ds end, W, per)
        for w = 0, W - 1 do
          local at = 0
          for k, step in ipairs(got) do
            for r = 1, per do
              local base = math.floor(G / (W * per))
              local turn = ((k - 1) * per + r - 1 + w * per) % (W * per)
              local size = base + (turn < G % (W * per) and 1 or 0)
              local part = step[w * per + r]
              assert.equal(math.min(size, n - at), #part, name)
              for _, x in ipairs(part) do
                assert.equal(at, x, name)
                at = at + 1
              end
            end
          end
          assert.equal(n, at, name)
        end
      end
    end
  end)
end)
