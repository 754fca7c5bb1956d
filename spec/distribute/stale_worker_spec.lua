-- A worker that is stopped, and wakes when a new run is under way at the same
-- addresses: another machine has taken its own's place (netns.sh). As root. #once
local files = require "spec.support.files"
local machines = require "spec.support.machines"
local process = require "spec.support.process"
local workers = require "spec.support.workers"

-- WHO is there: old-0, old-1, new-0, new-1, or nobody else, who does what both
-- do. Two numbers have one sum, whoever is first.
local TRAIN = [[
local tf = require "tfdist"
local FOLDER, WHO = os.getenv "FOLDER", os.getenv "WHO"
]] .. workers.TALK .. [[
put(WHO, pid())
local s = WHO ~= "alone" and tf.distribute.MultiWorkerMirroredStrategy()
local w = s and s.extended.worker_index
local function gradient(v, index, k)
  return tf.sin(v * (index + 1) + k)
end
local function is_there(name)
  local f = io.open(FOLDER .. "/" .. name)
  return f ~= nil and f:close()
end
local v = tf.range(1000, { dtype = "float32" }) / 1000
for k = 1, 40 do
  local sum
  if s then
    sum = s:reduce("sum", gradient(v, w, k))
  else
    sum = gradient(v, 0, k) + gradient(v, 1, k)
  end
  v = v - sum * 0.125
  if WHO == "old-1" and k == 5 then os.execute("kill -STOP " .. pid()) end
  if k == 10 and WHO:find "new" then -- steps of the same kind until then
    put("under-way-" .. w)
    repeat
      local over = s:reduce("sum", tf.fill({ 1000 }, is_there "over" and 1.0
        or 0.0))
    until tf.reduce_sum(over):item() > 0
  end
end
for _, x in ipairs(v:totable()) do
  io.write(("%.9g\n"):format(x))
end
]]

local CONFIG = [[{"cluster": {"worker": ["10.99.0.1:2222", "10.99.0.2:2222"]},
  "task": {"type": "worker", "index": %d}}]]

-- In which the old run ends, but for its second worker.
local COURSE = [[
worker() {
  name=$1 config=$2
  shift 2
  FOLDER=FOLDER_ WHO=$name TF_CONFIG=$config "$@" env OMP_NUM_THREADS=1 \
    TFDIST_CPU_DEVICES=1 TFDIST_SECRET=between-us timeout -k 5 60 HOST_ SCRIPT_ \
    >FOLDER_/$name.out 2>FOLDER_/$name.err &
}
export TFDIST_HEARTBEAT_TIMEOUT=2
worker old-0 'CONFIG_0' $ONE
old=$!
export TFDIST_FAILPOINTS='FAULT_'
worker old-1 'CONFIG_1' $TWO
stale=$!
export TFDIST_FAILPOINTS=
until [ -e FOLDER_/old-1 ] &&
  grep -q '^State:.T' /proc/$(cat FOLDER_/old-1)/status
do
  kill -0 $stale || break
  sleep 0.05
done
END_
wait $old
s=$?
$REPLACE
worker new-0 'CONFIG_0' $ONE
first=$!
worker new-1 'CONFIG_1' $THREE
second=$!
until [ -e FOLDER_/under-way-0 ] && [ -e FOLDER_/under-way-1 ]; do
  kill -0 $first && kill -0 $second || break
  sleep 0.05
done
$RETURN
kill -CONT $(cat FOLDER_/old-1)
wait $stale
s="$s $?"
>FOLDER_/over
for p in $first $second; do
  wait $p
  s="$s $?"
done
echo $s
]]

describe("a worker that wakes in a run of others #once", function()
  local why = machines.no_namespaces()
  local folder

  if why then
    pending(why)
    return
  end

  before_each(function()
    folder = files.folder()
  end)

  after_each(function()
    os.execute("rm -r " .. process.quote(folder))
  end)

  -- Shell that ends the old run's first worker, and what the second one meets.
  local function run(ends, fault)
    local path = process.file(TRAIN, ".lua")
    local r = process.run("SPARE=1 spec/support/netns.sh " .. process.quote(
      (COURSE:gsub("(%u+)_(%d?)", function(name, index)
        if name == "CONFIG" then return CONFIG:format(index) end
        return ({ FOLDER = folder, HOST = process.hosts[1].path, SCRIPT = path,
          END = ends, FAULT = fault })[name]
      end))), nil, 240)
    local alone = process.run(("FOLDER=%s WHO=alone TFDIST_CPU_DEVICES=1 "
      .. "TFDIST_AUTO_CLUSTER=0 %s %s"):format(folder, process.hosts[1].path,
      path))
    local got = { codes = r.out }
    for name in ("old-0 old-1 new-0 new-1"):gmatch "%S+" do
      got[name] = { out = files.read(folder .. "/" .. name .. ".out"),
        err = files.read(folder .. "/" .. name .. ".err") }
    end
    os.remove(path)
    assert.equal(0, alone.code, alone.err)
    got.all = ""
    for name, text in pairs(got) do
      if type(text) == "table" then
        got.all = got.all .. name .. ": " .. text.err
      end
    end
    for i = 0, 1 do
      assert.equal(alone.out, got["new-" .. i].out, got.codes .. got.all)
      assert.is_nil(got["new-" .. i].err:find("process ", 1, true), got.all)
    end
    return got
  end

  it("is told why its own has ended, and ends with 75", function()
    local got = run("", "")
    assert.equal("75 75 0 0\n", got.codes, got.all)
    assert.matches("process 1 of 2 has not been heard of for ",
      got["old-0"].err, 1, true)
    assert.matches("stopped because of process 0: process 1 of 2 has not been "
      .. "heard of for ", got["old-1"].err, 1, true)
  end)

  it("is refused where it had not met the others", function()
    local got = run("kill $old", "net.connect=stop@1")
    assert.matches("^%d+ 75 0 0\n$", got.codes, nil, got.all)
    assert.matches("process 1 does not agree with process 0 (10.99.0.1:2222): "
      .. "the job is under way with that task in it", got["old-1"].err, 1, true)
  end)
end)
