--- Two workers whose steps are timed while strangers knock at the chief's port:
--- a product of matrices and a sum over TCP each.
--- usage: strangers.lua PORT OTHER    as two workers; PORT is the chief's, at
---                                    OTHER nobody listens
--- Requests to the chief: "quiet N", "flood N" and "elsewhere N": the median of N
--- steps, without strangers, with 1,000 bad connections a second, and with as
--- many attempts at the other port: what they cost whoever shares the machine.
local tf = require "tfdist"

local SIZE, SUM = 256, 65536

-- Sends what is no hello, and keeps a hundred connections open.
local STRANGER = [[use Socket; use Time::HiRes qw(time);
my ($flag) = @ARGV; my (@open, $begin, $n, $port);
for (;;) {
  my $end = ""; vec($end, 0, 1) = 1;
  exit if select($end, undef, undef, 0.001);
  if (!open(my $told, "<", $flag)) { $begin = undef; @open = (); next }
  elsif (!defined $begin) { $begin = time; $n = 0; $port = <$told> }
  while ($n < 1000 * (time - $begin)) {
    socket(my $s, PF_INET, SOCK_STREAM | 2048, 0); # SOCK_NONBLOCK
    connect($s, sockaddr_in($port, INADDR_LOOPBACK));
    send($s, "x" x 64, 16384); # MSG_NOSIGNAL
    $open[$n++ % 100] = $s;
  }
}]]

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

local flag = os.tmpname()
os.remove(flag)
local stranger = io.popen(("perl -e '%s' %s"):format(STRANGER, flag), "w")

-- Knock there; nil = nowhere.
local function set(port)
  os.remove(flag)
  if port ~= nil then
    local file = io.open(flag .. ".new", "w")
    file:write(port)
    file:close()
    os.rename(flag .. ".new", flag)
  end
end

local PORTS = { flood = arg[1], elsewhere = arg[2] }

for line in io.lines() do
  local what, n = line:match "^(%a+) (%d+)$"
  if what == nil then break end -- quit
  set(PORTS[what])
  agree(tonumber(n) // 4)
  steps(tonumber(n) // 4) -- until it has come to it
  agree(tonumber(n))
  io.write(("%.9f\n"):format(steps(tonumber(n))))
  io.flush()
end
set(nil)
agree(0)
stranger:close()
