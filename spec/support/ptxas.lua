--- What nvcc said about the plug-in's kernels when it built them.
--- lua5.4 spec/support/ptxas.lua > spec/support/cuda/registers.txt records it.
local M = {}

M.ARCHS = { "sm_75", "sm_80", "sm_90", "sm_100" }

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  return text
end

local function lines(command)
  local pipe = assert(io.popen(command))
  local list = {}
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
end

function M.version()
  return lines("PATH=build/cuda-toolkit/bin:/usr/local/cuda/bin:$PATH "
    .. "nvcc --version")[4] or "none"
end

--- Kernel to architecture to { registers, stack, spills }; spills and stack in
--- bytes.
function M.kernels()
  local kernels = {}
  for _, path in ipairs(lines "ls build/cuda/*.log") do
    for name, arch, stack, stores, loads, registers in read(path):gmatch(
      "entry function '([%w_]+)' for '(sm_%d+)'[^\n]*\n[^\n]*\n%s*(%d+) bytes "
      .. "stack frame, (%d+) bytes spill stores, (%d+) bytes spill loads\n"
      .. "[^\n]-Used (%d+) registers") do
      kernels[name] = kernels[name] or {}
      kernels[name][arch] = { registers = tonumber(registers),
        stack = tonumber(stack), spills = stores + loads }
    end
  end
  return kernels
end

--- Kernel to { threads, bytes }: its launch bound and bytes of argument in PTX.
function M.arguments()
  local kernels = {}
  for _, path in ipairs(lines "ls build/cuda/*.ptx") do
    for name, bytes, threads in read(path):gmatch(
      "%.entry ([%w_]+)%(%s*%.param[^%[]*%[(%d+)%]%s*%)%s*%.maxntid (%d+)") do
      kernels[name] = { threads = tonumber(threads), bytes = tonumber(bytes) }
    end
  end
  return kernels
end

--- The recorded table: its version, and a line for each kernel.
function M.recorded()
  local rows, version = {}, nil
  for line in read "spec/support/cuda/registers.txt":gmatch "[^\n]+" do
    version = version or line:match "^# (.*)"
    local name, rest = line:match "^([%w_]+)%s+(.*)"
    if name then rows[name] = rest end
  end
  return version, rows
end

function M.row(kernel)
  local list = {}
  for i, arch in ipairs(M.ARCHS) do
    local k = kernel[arch]
    list[i] = k and ("%d+%d"):format(k.registers, k.stack) or "none"
  end
  return table.concat(list, " ")
end

if arg and (arg[0] or ""):match "ptxas%.lua$" then
  local names = {}
  for name, kernel in pairs(M.kernels()) do
    names[#names + 1] = ("%-24s %s"):format(name, M.row(kernel))
  end
  table.sort(names)
  print("# " .. M.version())
  print("# kernel, registers+bytes of stack on " .. table.concat(M.ARCHS, " "))
  print(table.concat(names, "\n"))
end

return M
