--- What users install: make install, the rock, the bundle, a C program.

local process = require "spec.support.process"

local BUILD = process.build

local function sh(format, ...)
  local r = process.run(format:format(...))
  assert.equal(0, r.code, r.out .. r.err)
  return r.out
end

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

describe("packages #once", function()
  local root

  before_each(function()
    root = os.tmpname()
    os.remove(root)
    sh("mkdir %s", root)
  end)

  after_each(function()
    sh("rm -rf %s", root)
  end)

  it("make install puts everything below PREFIX, uninstall takes it away",
    function()
      sh("make -s BUILD=%s install DESTDIR=%s PREFIX=/opt/t", BUILD, root)
      local at = root .. "/opt/t/"
      for _, path in ipairs { "bin/tfdist", "bin/tfdist-luajit",
        "include/tfdist.h", "include/tfdist/constants.h",
        "include/tfdist/ops.h", "lib/libtfdist.so", "lib/libtfdist.a",
        "lib/pkgconfig/tfdist.pc", "lib/lua/5.4/tfdist/core.so",
        "lib/lua/5.1/tfdist/core.so", "share/lua/5.4/tfdist/init.lua",
        "share/lua/5.1/tfdist/init.lua", "share/man/man1/tfdist.1",
        "share/man/man1/tfdist-luajit.1",
        "share/bash-completion/completions/tfdist" } do
        assert.is_true(exists(at .. path), path)
      end
      -- The plain interpreters find it where it lies.
      assert.equal("8.0\n", sh("cd / && LUA_PATH='%sshare/lua/5.4/?.lua;"
        .. "%sshare/lua/5.4/?/init.lua' LUA_CPATH='%slib/lua/5.4/?.so' lua5.4 "
        .. "-e 'print(require(\"tfdist\").fill({ 4 }, 2):sum():item())'",
        at, at, at))
      sh("make -s BUILD=%s uninstall DESTDIR=%s PREFIX=/opt/t", BUILD, root)
      assert.equal("", sh("find %s -type f -o -type l", root))
    end)

  it("a C program builds with pkg-config and runs", function()
    sh("make -s BUILD=%s install DESTDIR=%s PREFIX=/opt/t", BUILD, root)
    local lib = root .. "/opt/t/lib"
    local function output(name)
      sh("PKG_CONFIG_SYSROOT_DIR=%s PKG_CONFIG_PATH=%s/pkgconfig sh -c "
        .. "'cc -Wall -Wextra -Werror examples/%s.c $(pkg-config --cflags "
        .. "--libs tfdist) -o %s/%s'", root, lib, name, root, name)
      return sh("LD_LIBRARY_PATH=%s %s/%s", lib, root, name)
    end
    assert.equal("w = 2.000  b = 1.000  loss = 0.000000\n", output "embed")
    assert.truthy(output "embed_mirrored":find(
      "^step   0  loss = 4.069630\n.*\nw = 2.000  b = 1.000\n$"))
  end)

  local engines = {
    { name = "Lua 5.4", version = "5.4", host = "tfdist", variables = "",
      lua = "lua5.4" },
    { name = "LuaJIT", version = "5.1", host = "tfdist-luajit", lua = "luajit",
      variables = "LUA_INCDIR=/usr/include/luajit-2.1 LUA=/usr/bin/luajit" },
  }
  for _, engine in ipairs(engines) do
    it("the rock installs and leaves, " .. engine.name, function()
      local rocks = ("HOME=%s luarocks --lua-version %s --tree %s/tree")
        :format(root, engine.version, root)
      sh("%s make rocks/tfdist-scm-1.rockspec %s", rocks, engine.variables)
      local tree = root .. "/tree/"
      local share = tree .. "share/lua/" .. engine.version
      assert.equal("6.0\n", sh("cd / && LUA_PATH='%s/?.lua;%s/?/init.lua' "
        .. "LUA_CPATH='%slib/lua/%s/?.so' %s -e 'print(string.format(\"%%.1f\","
        .. "require(\"tfdist\").fill({ 3 }, 2):sum():item()))'", share, share,
        tree, engine.version, engine.lua))
      assert.equal("0.1.0\n", sh("%sbin/%s -e 'print(require(\"tfdist\")"
        .. ".__version__)'", tree, engine.host))
      sh("%s remove tfdist", rocks)
      assert.equal("", sh("find %s -type f -not -path '*/luarocks/*'", tree))
    end)
  end

  it("the rock refuses other interpreters with the line that helps", function()
    local r = process.run("make -s rock ROCK_LUA=lua5.1")
    assert.not_equal(0, r.code)
    assert.matches("Lua 5.4 or LuaJIT, this is Lua 5.1", r.out, 1, true)
    assert.matches("LUA=/usr/bin/luajit", r.out, 1, true)
  end)

  it("make says what is missing where there is no Lua, and fails", function()
    local r = process.run("PKG_CONFIG_LIBDIR=/nonexistent make -s BUILD="
      .. root .. "/none")
    assert.not_equal(0, r.code)
    assert.matches("no Lua to build for.-apt%-get install .-liblua5%.4%-dev",
      r.err)
    r = process.run("make -s LUA=no-such-lua BUILD=" .. root .. "/none")
    assert.not_equal(0, r.code)
    assert.matches("need no%-such%-lua.-apt%-get install lua5%.4", r.err)
  end)

  it("the bundle brings every library but the C library", function()
    local path, size = sh("make -s BUILD=%s bundle", BUILD)
      :match "(%S+%.tar%.gz)%s+([%d.]+) MB"
    assert.is_true(tonumber(size) < 60)
    sh("tar -C %s -xzf %s", root, path)
    local at = root .. "/" .. path:match "([^/]+)%.tar%.gz$"
    for _, host in ipairs { "tfdist", "tfdist-luajit" } do
      assert.equal("8\n", sh("cd / && env -i %s/bin/%s -e 'print(string.format("
        .. "\"%%d\", require(\"tfdist\").fill({ 4 }, 2):sum():item()))'",
        at, host))
      -- LAPACK is opened when it is used, from the bundle, too.
      assert.equal("0.5\n", sh("cd / && env -i TFDIST_LAPACK_LIBRARIES=%s/lib "
        .. "%s/bin/%s -e 'print(require(\"tfdist\").linalg.inv {{ 2 }}:item())'",
        at, at, host))
      for name, where in sh("ldd %s/bin/%s", at, host)
        :gmatch "(%S+) => (%S+)" do
        assert.is_true(where:sub(1, #at) == at
          or name:find "^libc%.so" ~= nil or name:find "^libm%.so" ~= nil
          or name:find "^libdl%.so" ~= nil or name:find "^librt%.so" ~= nil
          or name:find "^libpthread%.so" ~= nil, name .. " => " .. where)
      end
    end
  end)
end)
