--- Saves of several workers that fail or are broken off: all hear the same, the
--- newest whole checkpoint is there, with variables and parts of slots that
--- belong together.
local files = require "spec.support.files"
local process = require "spec.support.process"
local seed = require "spec.support.seed"
local workers = require "spec.support.workers"

local HEAD = workers.HEAD .. [[
local fault = require "tfdist.core.raw".test_failpoints
local function make()
  return s:scope(function()
    local m = tf.keras.Sequential { tf.keras.layers.Dense(300, {
      kernel_initializer = "ones", input_shape = { 3 } }) }
    m:compile { loss = "mse",
      optimizer = tf.distribute.experimental.ShardedOptimizer(
        tf.keras.optimizers.SGD { learning_rate = 0.1, momentum = 0.9 }) }
    return m
  end)
end
local function manager_of(m, dir)
  return tf.train.CheckpointManager(tf.train.Checkpoint { model = m,
    optimizer = m.optimizer }, dir, { max_to_keep = 3 })
end
local function step(m)
  m:fit(tf.ones { 4, 3 }, tf.zeros { 4, 300 }, { verbose = 0 })
end
-- Weights and momenta as one line.
local function state(m)
  local words = {}
  for _, list in ipairs { m.variables, m.optimizer.variables } do
    for _, v in ipairs(list) do
      words[#words + 1] = ("%.17g"):format(tf.reduce_sum(tf.cast(v:read_value(),
        "float64")):item())
    end
  end
  return table.concat(words, " ")
end
]]

-- Each argument is a folder: what its newest checkpoint has.
local READER = HEAD .. [[
for _, dir in ipairs(arg) do
  local m = make()
  step(m) -- makes the momenta
  local path = manager_of(m, dir):restore_or_initialize()
  print(path:match "[^/]*$", state(m))
end]]

local function read(folders)
  local outs = workers.outputs { program = READER,
    arguments = function() return folders end }
  assert.equal(outs[1], outs[2])
  return outs[1]
end

describe("saves of several workers #once", function()
  it("that fail are told to all, who go on and save later", function()
    files.in_folder(function(path)
      local rs = workers.run { arguments = function() return path end,
        program = HEAD .. [[
          local m = make()
          local manager = manager_of(m, arg[1])
          step(m)
          local first = manager:save()
          for _, order in ipairs { "ckpt.create=enospc", "ckpt.write=enospc",
              "ckpt.write=edquot", "ckpt.sync=eio", "ckpt.rename=eio",
              -- of the list that names the newest
              "ckpt.create=enospc@2", "ckpt.rename=eio@2" } do
            step(m)
            if w == 0 then fault(order) end
            local ok, e = pcall(manager.save, manager)
            print(ok, e.kind)
            fault ""
            assert(tf.train.latest_checkpoint(arg[1]) == first)
          end
          print((manager:save():match "[^/]*$"), state(m))]] }
      assert.same({ 0, 0 }, { rs[1].code, rs[2].code }, rs[1].err .. rs[2].err)
      local failures, last = rs[2].out:match "^(.*\n)([^\n]+\n)$"
      assert.equal(("false\tAborted\n"):rep(7), failures)
      assert.equal(last, rs[1].out:match "([^\n]+\n)$")
      assert.equal(7, select(2, rs[1].out:gsub("false\t%u%w+\n", "")))
      assert.equal(last, read(path))
    end)
  end)

  it("that went well are restored together, slots made and damage passed over",
    function()
      local program = HEAD .. [[
        local v, optimizer = s:scope(function()
          return tf.Variable { 1.0, 2.0 }, tf.keras.optimizers.SGD {
            learning_rate = 1, momentum = 0.5 }
        end)
        local manager = tf.train.CheckpointManager(tf.train.Checkpoint { v = v,
          optimizer = optimizer }, arg[1], { max_to_keep = 3 })
        local path = manager:restore_or_initialize()
        -- Before anything else has made them.
        local momentum = optimizer:get_slot(v, "momentum")
        print(path and path:match "[^/]*$", show(v:read_value()),
          momentum and show(momentum:read_value()))
        for _ = 1, path and 0 or 2 do
          s:run(function()
            optimizer:apply_gradients({ tf.constant { 1.0, 2.0 } }, { v })
          end)
          manager:save()
        end]]
      files.in_folder(function(path)
        local function both(line, n)
          local outs = workers.outputs { program = program, n = n,
            arguments = function() return path end }
          for i = 1, n do assert.equal(line, outs[i]) end
        end
        both("nil\t1 2\tnil\n", 2)
        -- gradients 2 and 4: momenta -2 -4, then -3 -6
        both("ckpt-2\t-4 -8\t-3 -6\n", 2)
        both("ckpt-2\t-4 -8\t-3 -6\n", 3)
        local file = path .. "/ckpt-2.safetensors"
        local text = files.read(file)
        files.write(file, text:sub(1, -2) .. "?")
        both("ckpt-1\t-1 -2\t-2 -4\n", 2)
      end)
    end)

  it("fail on a disk that is full", function()
    files.in_folder(function(path)
      local mounted = process.run("test $(id -u) = 0 && mount -t tmpfs -o "
        .. "size=64k none " .. path)
      if mounted.code ~= 0 then
        pending "only root mounts a small disk"
        return
      end
      local ok, e = pcall(function()
        local rs = workers.run { arguments = function() return path end,
          program = HEAD .. [[
            local v = s:scope(function()
              return tf.Variable(tf.ones { 9000 })
            end)
            local manager = tf.train.CheckpointManager(tf.train.Checkpoint {
              v = v }, arg[1], { max_to_keep = 3 })
            local first = manager:save()
            local ok, e = pcall(manager.save, manager)
            print(ok, e.kind)
            print(e.message:match "ckpt%-2[^:]*: .*")
            local free = io.popen("stat -f -c '%a %S' " .. arg[1])
            print(free:read("*n") * free:read("*n"))
            assert(tf.train.latest_checkpoint(arg[1]) == first)
            print(s:reduce("SUM", 1.0):item())]] }
        -- As many as the first one has, and what the disk says to others.
        local size = #files.read(path .. "/ckpt-1.safetensors")
        for i, kind in ipairs { "ResourceExhausted", "Aborted" } do
          local needed, free, there = rs[i].out:match("^false\t" .. kind
            .. "\nckpt%-2%.safetensors: (%d+) bytes do not fit on a disk with "
            .. "(%d+) free\n(%d+)[.0]*\n2%.0\n$")
          assert.same({ size, there }, { tonumber(needed), free },
            rs[i].out .. rs[i].err)
        end
      end)
      process.run("umount " .. path)
      if not ok then error(e, 0) end
    end)
  end)

  -- Whether it hears of its peers' ends before they have all heard of it is a
  -- matter of microseconds: here it always does.
  it("end the chief with its own error, whoever ends before", function()
    files.in_folder(function(path)
      local rs = workers.run { arguments = function() return path end,
        program = HEAD .. [[
          local reduce = require "tfdist.distribute.reduce"
          local tell = reduce.chiefs_text
          if w == 0 then
            reduce.chiefs_text = function(...)
              tell(...)
              error("process 1 has ended", 0)
            end
            fault "ckpt.write=enospc"
          end
          manager_of(make(), arg[1]):save()]] }
      assert.same({ 1, 75 }, { rs[1].code, rs[2].code }, rs[1].err)
      assert.matches("ResourceExhausted: [^\n]*: cannot write after byte 0: No "
        .. "space left on device\n", rs[1].err)
      assert.matches("the chief could not: ResourceExhausted: ", rs[2].err)
    end)
  end)

  it("that are broken off leave the newest whole checkpoint", function()
    local CASES = { "0 ckpt.create", "0 ckpt.write", "0 ckpt.after_data",
      "0 ckpt.sync", "0 ckpt.rename", "0 ckpt.after_rename",
      "0 ckpt.sync_folder", "0 net.send", "1 net.send", "1 net.receive" }
    local cases, passes = CASES, 99
    if not os.getenv "TFD_LONG" then
      cases = { CASES[seed % 7 + 1], CASES[8 + seed % 3] }
      passes = 1
    end
    files.in_folder(function(path)
      local folders, allowed = {}, {}
      local function killed(case, pass)
        local rank, place = case:match "(%d) (.*)"
        rank = tonumber(rank)
        local folder = ("%s/%d"):format(path, #folders + 1)
        local rs = workers.run { environment = "TFDIST_TRANSPORT=tcp",
          arguments = function(w)
            return folder .. (w == rank and (" %s=kill@%d"):format(place, pass)
              or "")
          end, program = HEAD .. [[
            local m = make()
            local manager = manager_of(m, arg[1])
            step(m)
            manager:save()
            print("ckpt-1", state(m))
            step(m)
            print("ckpt-2", state(m))
            if arg[2] then fault(arg[2]) end
            manager:save()]] }
        if rs[rank + 1].code == 0 then return false end
        assert.equal(137, rs[rank + 1].code, rs[rank + 1].err)
        local other = rs[2 - rank]
        local is_over = other.code == 0 -- it has heard that all was saved
        if not is_over then
          assert.equal(rank == 0 and 76 or 75, other.code, other.err)
        end
        folders[#folders + 1] = folder
        allowed[#folders] = is_over and other.out:match "ckpt%-2.*" or other.out
        return true
      end
      for _, case in ipairs(cases) do
        local pass = 1
        while pass <= passes and killed(case, pass) do pass = pass + 1 end
        assert.is_true(pass > 1, case .. " is not passed by a save")
      end
      local at = 0
      for line in read(table.concat(folders, " ")):gmatch "[^\n]+\n" do
        at = at + 1
        assert.is_truthy(allowed[at]:find(line, 1, true), allowed[at] .. line)
      end
      assert.equal(#folders, at)
    end)
  end)
end)
