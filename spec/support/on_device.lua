--- The devices that specs run on: the processor's, or those of the type
--- TFDIST_SPEC_TYPE. Loaded by the interpreter (-l) it also has all specs run on
--- device 0 of that type where they name none.
local raw = require "tfdist.core.raw"

local M = {}

M.type = os.getenv "TFDIST_SPEC_TYPE" or "CPU"

--- The short name of device i: "/cpu:0".
function M.at(i)
  return ("/%s:%d"):format(M.type:lower(), i)
end

--- The handle of device i.
function M.handle(i)
  return raw.device_at(M.type, i)
end

--- Text written for the processor's devices, for these: short names, "CPU:0".
function M.text(text)
  return (text:gsub("/cpu:", M.at(0):sub(1, -2)):gsub("CPU:", M.type .. ":"))
end

--- Wait for all devices; failures that nobody asked for are raised.
function M.settle()
  for i = 0, raw.device_count "" - 1 do
    raw.device_synchronize(raw.device_at("", i))
  end
end

if os.getenv "TFDIST_SPEC_TYPE" then
  raw.device_push(raw.device_find(M.at(0)))
end

--- Scopes of devices that are open around every spec.
M.depth = raw.device_depth()

return M
