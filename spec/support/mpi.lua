--- Run one Lua program under mpirun, of every MPI whose plug-in was built.
local process = require "spec.support.process"

local M = {}

-- Root may start programs here, and more than there are cores.
local STARTERS = {
  openmpi = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    .. "mpirun.openmpi --oversubscribe",
  mpich = "mpirun.mpich",
}

--- The command that starts processes, by the name of its MPI.
M.starters = STARTERS

--- Those that can be used here: a list of names.
M.all = {}
for _, name in ipairs { "openmpi", "mpich" } do
  local there = process.run(("command -v mpirun.%s && test -e "
    .. "build/plugins/tfdist_mpi_%s.so"):format(name, name))
  if there.code == 0 then
    M.all[#M.all + 1] = name
  end
end

--- What keeps the others from being used, for pending().
M.why = "no MPI: apt-get install openmpi-bin libopenmpi-dev mpich libmpich-dev"

--- Returns { out, err, code } of mpirun; all processes have ended then.
---   mpi          "openmpi", "mpich"
---   program      its text
---   n            processes (default 2)
---   host         which host runs it (default the Lua 5.4 one)
---   arguments    of the program, as shell words
---   environment  "NAME=value ..." of each process
---   seconds      after which all are ended (default 120)
---   leave        a file: once it is there mpirun is ended; it is there when this
---                returns, and processes may end later
function M.run(given)
  local script = process.file(given.program, ".lua")
  local command = ("OMP_NUM_THREADS=1 TFDIST_CPU_DEVICES=1 %s -n %d env "
    .. "%s %s %s %s"):format(STARTERS[given.mpi], given.n or 2,
    given.environment or "", given.host or process.hosts[1].path, script,
    given.arguments or "")
  if given.leave then
    command = ("timeout -k 5 100 env %s & until test -e %s || ! kill -0 $!; do "
      .. "sleep 0.05; done; kill -TERM $!; wait $!; : >>%s"):format(command,
      given.leave, given.leave)
  end
  local r = process.run(command, nil, given.seconds or 120)
  os.remove(script)
  return r
end

return M
