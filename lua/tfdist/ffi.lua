--- The C API for LuaJIT scripts: the name under which they know it.
return require "tfdist.core.ffi"
