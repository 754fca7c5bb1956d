--- What `make lint` refuses in the imports of C and of Lua, on trees of a few
--- files.

local files = require "spec.support.files"
local process = require "spec.support.process"

-- What the check says of a tree { [path] = text }; @ in a text is `require`,
-- which the check of this very file is not to see.
local function say(tree)
  local root = files.place()
  for path, text in pairs(tree) do
    assert(os.execute(("mkdir -p %s/%s"):format(root, path:match "^(.*)/")))
    files.write(root .. "/" .. path, (text:gsub("@", "require ")))
  end
  local here = process.run("pwd").out:gsub("\n", "")
  local r = process.run(("cd %s && git init -q . && lua5.4 "
    .. "%s/scripts/check_layers.lua"):format(root, here))
  process.run("rm -rf " .. root)
  return r
end

local LUA = "lua/tfdist/"

describe("the check of imports #once", function()
  it("lets floors see those below them, and what is registered", function()
    local r = say {
      [LUA .. "base/a.lua"] = "local M = {}\nM.hooks = {}\nreturn M\n",
      [LUA .. "core/b.lua"] = 'local a = @"tfdist.base.a"\n'
        .. "function a.hooks.place()\nend\n",
      [LUA .. "core/c.lua"] = 'local a = @"tfdist.base.a"\n'
        .. "local function f(list)\n  local a2 = a.list\n  a2 = list\n"
        .. "  list.x = 1 -- a.x = 1\n  return a2\nend\nreturn f\n",
    }
    assert.is_nil(r.err:find("lua/tfdist", 1, true), r.err)
    assert.matches("core %-> base +2\n", r.out)
  end)

  local refused = {
    { "floor base may not see core", {
      [LUA .. "base/a.lua"] = 'local b = @"tfdist.core.b"\n',
      [LUA .. "core/b.lua"] = "return {}\n" } },
    { "floor keras may not see tfdist", {
      [LUA .. "keras/a.lua"] =
        'local function f()\n  return @"tfdist"\nend\nreturn f\n',
      [LUA .. "init.lua"] = "return {}\n" } },
    { "modules in a circle: tfdist.base.a tfdist.base.b", {
      [LUA .. "base/a.lua"] = 'local b = @"tfdist.base.b"\n',
      [LUA .. "base/b.lua"] =
        'return function()\n  return @"tfdist.base.a"\nend\n' } },
    { "core/b.lua:2 writes into a.name", {
      [LUA .. "base/a.lua"] = "return {}\n",
      [LUA .. "core/b.lua"] = 'local a = @"tfdist.base.a"\n'
        .. "function a.name()\nend\n" } },
    { "core/b.lua:3 writes into Class:method", {
      [LUA .. "base/a.lua"] = "return {}\n",
      [LUA .. "core/b.lua"] = 'local a = @"tfdist.base.a"\n'
        .. "local Class = a.Class\nfunction Class:method()\nend\n" } },
    { "core/b.lua:3 writes into a.list", {
      [LUA .. "base/a.lua"] = "return {}\n",
      [LUA .. "core/b.lua"] = 'local a = @"tfdist.base.a"\n'
        .. "local function f(x)\n  a.list[x] = 1\nend\nreturn f\n" } },
    { "core/c.lua:2 puts in tfdist.base.a.place, as lua/tfdist/core/b.lua:2", {
      [LUA .. "base/a.lua"] = "return {}\n",
      [LUA .. "core/b.lua"] = 'local a = @"tfdist.base.a"\n'
        .. "a.hooks.place = 1\n",
      [LUA .. "core/c.lua"] = 'local a = @"tfdist.base.a"\n'
        .. "a.hooks.place = 2\n" } },
    { "a_spec.lua:1 requires tfdist.nowhere, which is not there", {
      ["spec/a_spec.lua"] = 'local a = @"tfdist.nowhere"\n' } },
    { "core/a.lua stands beside a folder of its name", {
      [LUA .. "core/a.lua"] = "", [LUA .. "core/a/b.lua"] = "" } },
    { "layer base may not see tensor", {
      ["src/base/a.h"] = '#include "tensor/tensor.h"\n' } },
    { "private header: src/tensor/a.c includes device/private.h", {
      ["src/tensor/a.c"] = '#include "device/private.h"\n' } },
    { "call upward: src/tensor/a.c calls tfd_current of ops", {
      ["src/tensor/a.c"] =
        "int tfd__a(void) {\n  return tfd_current(); /* tfd_x */\n}\n",
      ["src/ops/b.c"] =
        "int tfd_current(void) {\n  return 1;\n}\n" } },
    { "files in a circle: ops/a.c ops/b.c", {
      ["src/ops/a.c"] = "int tfd__a(int x,\n           int y) {\n"
        .. "  return tfd__b(x, y);\n}\n",
      ["src/ops/b.c"] = "int tfd__b(int x, int y) {\n  return tfd__a(x, y);\n}"
        .. "\n" } },
  }
  for _, case in ipairs(refused) do
    it("tells: " .. case[1], function()
      local r = say(case[2])
      assert.equal(1, r.code)
      assert.is_truthy(r.err:find(case[1], 1, true), r.err)
    end)
  end

  it("draws a diagram", function()
    local r = process.run "lua5.4 scripts/check_layers.lua --dot"
    assert.equal(0, r.code, r.err)
    assert.matches('"lua/core" %-> "lua/base" %[label = %d+%]', r.out)
    assert.matches('"src/tensor" %-> "src/device" %[label = %d+%]', r.out)
  end)
end)
