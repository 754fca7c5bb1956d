--- Two workers whose steps are timed while strangers knock at the chief's port:
--- a product of matrices and a sum over TCP each, some 20 ms as a network's,
--- longer than the strangers pause.
--- usage: strangers.lua KNOCK PORT OTHER    as two workers; KNOCK is the
---                                          strangers' program, PORT the
---                                          chief's, at OTHER nobody listens
--- Requests to the chief: "quiet N", "flood N" and "elsewhere N": the median of N
--- steps, without strangers, with 1,000 bad connections a second, and with as
--- many attempts at the other port: what they cost whoever shares the machine.
local tf = require "tfdist"

local SIZE, SUM = 1024, 1 << 18

local strategy = tf.distribute.MultiWorkerMirroredStrategy()
local index = strategy.extended.worker_index

local a = tf.random.normal { SIZE, SIZE }
local gradients = tf.ones { SUM }

local function step()
  local begin = tf.timestamp():item()
  local product = tf.matmul(a, a)
  strategy:reduce("sum", gradients)
  product:wait()
  return tf.timestamp():item() - begin
end

-- The chief says how many steps there are; 0 = it is over.
local function agree(n)
  return strategy:reduce("sum", tf.constant(index == 0 and n or 0.0)):item()
end

local function steps(n)
  local times = {}
  for i = 1, n do
    times[i] = step()
  end
  table.sort(times)
  return times[math.floor(n / 2) + 1]
end

if index == 1 then
  repeat
    local n = agree()
    if n > 0 then steps(n) end
  until n == 0
  return
end

local stranger = io.popen(arg[1], "w")

local function knock_at(port)
  assert(stranger:write(port, "\n"))
  assert(stranger:flush())
end

local PORTS = { quiet = "0", flood = arg[2], elsewhere = arg[3] }

for line in io.lines() do
  local what, n = line:match "^(%a+) (%d+)$"
  if what == nil then break end -- quit
  knock_at(PORTS[what])
  agree(tonumber(n) // 4)
  steps(tonumber(n) // 4) -- until it has come to it
  agree(tonumber(n))
  io.write(("%.9f\n"):format(steps(tonumber(n))))
  io.flush()
end
agree(0)
stranger:close()
