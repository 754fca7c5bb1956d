std = "min"
max_line_length = 100
exclude_files = { "build" }
-- A method keeps its self and a callback its place, used or not.
unused_args = false
files["spec"] = { std = "min+busted", globals = { "_G" } }
files["scripts"] = { std = "lua54" }
files["rocks"] = { std = "min+rockspec" }
-- LuaJIT does not compile its loops rightly: tfdist.base.pairs.
files["lua"] = { not_globals = { "pairs" } }
files["lua/tfdist/base/pairs.lua"] = { read_globals = { "pairs" } }
