rockspec_format = "3.0"
package = "tfdist"
version = "scm-1"
source = {
  -- `luarocks make` builds the checkout that it runs in.
  url = "git+file://.",
}
description = {
  summary = "TensorFlow's tf.distribute for Lua",
  detailed = [[
Tensors, gradients, distribution strategies and Keras-like training in a C
runtime, as a Lua module and as a host program that runs training scripts:
`tfdist` for Lua 5.4, `tfdist-luajit` for LuaJIT.]],
  license = "Apache-2.0",
}
dependencies = { "lua >= 5.1, < 5.5" }
build = {
  type = "make",
  build_target = "rock",
  install_target = "install-rock",
  build_variables = {
    ROCK_LUA = "$(LUA)",
  },
  install_variables = {
    ROCK_LUA = "$(LUA)",
    BINDIR = "$(BINDIR)",
    LIBDIR = "$(LIBDIR)",
    LUADIR = "$(LUADIR)",
  },
}
