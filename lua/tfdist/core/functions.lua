--- What the core has under tf, for the rest of the library; `require "tfdist"`
--- hands it on. The table fills itself: op families and classes are loaded when
--- one of their names is first used. A name that is not there is nil.
local loading = require "tfdist.base.loading"
local pairs = require "tfdist.base.pairs"

-- name = module, of the field of that name
local FIELDS = { Module = "tfdist.core.module" }
for name in ("device tidy keep print group no_op sync_devices"):gmatch "%S+" do
  FIELDS[name] = "tfdist.core.device"
end

-- Modules with an install(functions, def), loaded with the first op.
local PARTS = { "variable", "slices", "debugging", "control", "rows",
  "tensor_array", "host_function", "tape" }

local functions = {}

-- True also while they register their names.
local loaded = false

local function install()
  local ops = loading.load "tfdist.core.ops"
  ops.install(functions)
  for _, name in ipairs(PARTS) do
    loading.load("tfdist.core." .. name).install(functions, ops.def)
  end
end

local function load_all()
  loaded = true
  local ok, e = pcall(install)
  if not ok then
    loaded = false
    error(e, 0)
  end
end

return setmetatable(functions, {
  __index = function(_, name)
    local module = FIELDS[name]
    if module ~= nil then
      return loading.load(module)[name]
    end
    local value
    if not loaded then
      load_all()
      -- Loading may have set the name itself (constants).
      value = rawget(functions, name)
    end
    if value == nil then
      value = loading.load "tfdist.core.ops".find("", name)
      rawset(functions, name, value)
    end
    return value
  end,
  __names = function()
    if not loaded then
      load_all()
    end
    local names = loading.load "tfdist.core.ops".names("")
    for name in pairs(FIELDS) do
      names[#names + 1] = name
    end
    return names
  end,
})
