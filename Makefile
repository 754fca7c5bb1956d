# tfdist: knobs, lists, rules. `make help` lists the targets.

# --- knobs --------------------------------------------------------------------
CC ?= gcc
OPT ?= -O2 -g
# SAN=address or SAN=thread makes an instrumented build in a folder of its own.
SAN ?=
ifeq ($(SAN),address)
  BUILD ?= build/asan
  SAN_FLAGS = -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined \
              -fno-sanitize-recover=undefined -DTFD_DEBUG
else ifeq ($(SAN),thread)
  BUILD ?= build/tsan
  SAN_FLAGS = -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread -DTFD_DEBUG
endif
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
# V=1 shows whole command lines.
V ?=
Q := $(if $(V),,@)
say = @$(if $(V),true,printf '  %-5s %s\n' '$(1)' '$(2)')

# --- flags --------------------------------------------------------------------
WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
       -Wmissing-prototypes -Wwrite-strings
# Loops that it is asked to vectorise and cannot are no news.
WARN += $(if $(findstring clang,$(shell $(CC) --version)),-Wno-pass-failed \
        -Wno-unknown-warning-option)
# OpenMP: oneDNN's threads and our parallel loops share one pool.
# -ffp-contract=off: the same bits whatever instruction set a loop runs on.
# -falign-functions: what a call costs does not hang on what was linked before.
BASE_FLAGS = -std=gnu11 -fPIC -fvisibility=hidden -fopenmp -fno-math-errno \
             -fno-trapping-math -ffp-contract=off -falign-functions=64 \
             -MMD -MP -Isrc $(WARN) $(EXTRA)
# C++ is for what a library of that language throws, and nothing else.
CXX_FLAGS = -std=gnu++17 -fPIC -fvisibility=hidden -MMD -MP -Isrc -Wall \
            -Wextra -Wshadow -Wconversion $(EXTRA)
LIBS = -ldnnl -lstdc++ -ljansson -lz -lm -lpthread -ldl

# --- lists --------------------------------------------------------------------
CPU_ROOMS = stream elementwise strip reduce array nn linalg onednn random update
LAYERS = base types backend backend/cpu $(CPU_ROOMS:%=backend/cpu/%) \
         device comm comm/tcp comm/shm comm/hosts tensor ops distribute autograd graph io
CORE_SRC := $(foreach l,$(LAYERS),$(sort $(wildcard src/$(l)/*.c)))
CORE_CXX := $(foreach l,$(LAYERS),$(sort $(wildcard src/$(l)/*.cc)))
CORE_OBJ := $(CORE_SRC:%.c=$(BUILD)/%.o) $(CORE_CXX:%.cc=$(BUILD)/%.o) \
            $(BUILD)/gen/build_id.o
TEST_SRC := $(sort $(wildcard spec/c/*.c))
TEST_BIN := $(TEST_SRC:spec/c/%.c=$(BUILD)/spec/%)
# What tfdist.h includes.
API_PARTS := $(sort $(wildcard src/tfdist/*.h))
# The networks that bench/steps runs.
STEPS_SRC := $(addprefix scripts/bench/,net.c tiny.c gpt.c)
BENCH_SRC := $(filter-out $(STEPS_SRC) %/mpi.c,\
             $(sort $(wildcard scripts/bench/*.c)))
BENCH_BIN := $(BENCH_SRC:scripts/bench/%.c=$(BUILD)/bench/%)

# --- rules --------------------------------------------------------------------
# The table comes last, whatever order the parts are made in.
all: parts
	@scripts/built $(BUILD)

parts: $(BUILD)/libtfdist.so $(BUILD)/libtfdist.a

# Numeric loops gain from -O3; the rest is branchy and stays at -O2.
$(BUILD)/src/backend/cpu/%.o: OPT += -O3

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE_FLAGS) $(OPT) $(SAN_FLAGS) -c $< -o $@

$(BUILD)/%.o: %.cc
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(CXX_FLAGS) $(OPT) $(SAN_FLAGS) -c $< -o $@

# A number of all C sources: processes that work together must have the same.
SOURCES := $(sort $(shell find src -type f 2>/dev/null))
$(BUILD)/gen/build_id.c: $(SOURCES)
	@mkdir -p $(@D)
	@cat $^ | sha256sum | sed 's/^\(.\{12\}\).*/#include "tfdist.h"\n\
	const char *tfd_build_id(void) { return "\1"; }/' > $@

$(BUILD)/gen/build_id.o: $(BUILD)/gen/build_id.c
	$(Q)$(CC) $(BASE_FLAGS) $(OPT) $(SAN_FLAGS) -c $< -o $@

$(BUILD)/libtfdist.a: $(CORE_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^

$(BUILD)/libtfdist.so: $(CORE_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -fopenmp $(SAN_FLAGS) -o $@ $^ $(LIBS)

# --- Lua: generated bindings, core modules, hosts ------------------------------
# Per engine: E_lua54 and E_luajit give the include flags, L_... the library
# (static and whole where there is one, so that C modules find every symbol).
LUA ?= lua5.4
PKG_lua54 = $(shell pkg-config --exists lua5.4 2>/dev/null && echo lua5.4 \
              || echo lua-5.4)
PKG_luajit = luajit
ENGINES := $(foreach e,lua54 luajit,$(if $(shell pkg-config --exists \
             $(PKG_$(e)) 2>/dev/null && echo yes),$(e)))
# The library alone can be made without: make build/libtfdist.so
ifneq ($(filter all parts hosts install bundle,$(or $(MAKECMDGOALS),all)),)
ifeq ($(strip $(ENGINES)),)
  $(error there is no Lua to build for: pkg-config knows neither lua5.4 nor \
    luajit; apt-get install pkg-config lua5.4 liblua5.4-dev libluajit-5.1-dev)
endif
ifeq ($(shell command -v $(LUA)),)
  $(error the generators need $(LUA), which is not there; apt-get install \
    lua5.4, or name another Lua 5.4: make LUA=PROGRAM)
endif
endif
define engine_library
$(firstword $(wildcard $(shell pkg-config --variable=libdir $(PKG_$(1)) \
  2>/dev/null)/lib$(2).a))
endef
A_lua54 = $(call engine_library,lua54,lua5.4)
A_luajit = $(call engine_library,luajit,luajit-5.1)
EDIT := $(shell pkg-config --exists libedit 2>/dev/null && echo yes)
HOST_lua54 = $(BUILD)/tfdist
HOST_luajit = $(BUILD)/tfdist-luajit

LUA_BIND_SRC := $(sort $(wildcard src/lua/*.c))
LUA_HOST_SRC := $(sort $(wildcard src/host/*.c))
LUA_LIB := $(sort $(shell find lua -name '*.lua' 2>/dev/null))
BIND_lua54 = $(LUA_BIND_SRC:%.c=$(BUILD)/lua54/%.o) \
             $(BUILD)/lua54/gen/bind_gen.o
BIND_luajit = $(LUA_BIND_SRC:%.c=$(BUILD)/luajit/%.o) \
              $(BUILD)/luajit/gen/bind_gen.o $(BUILD)/luajit/gen/embed_ffi.o
HOSTO_lua54 = $(LUA_HOST_SRC:%.c=$(BUILD)/lua54/%.o) \
              $(BUILD)/lua54/gen/embed_library.o $(BUILD)/lua54/gen/code.o
HOSTO_luajit = $(LUA_HOST_SRC:%.c=$(BUILD)/luajit/%.o) \
               $(BUILD)/luajit/gen/embed_library.o $(BUILD)/luajit/gen/code.o

parts: $(foreach e,$(ENGINES),$(BUILD)/$(e)/tfdist/core.so \
       $(if $(LUA_HOST_SRC),$(HOST_$(e))))

$(BUILD)/gen/bind_gen.c: scripts/genbind.lua src/tfdist.h $(API_PARTS)
	@mkdir -p $(@D)
	$(Q)$(LUA) scripts/genbind.lua src/tfdist.h $(@D)

$(BUILD)/gen/embed_ffi.c: $(BUILD)/gen/bind_gen.c scripts/embed.lua
	$(Q)$(LUA) scripts/embed.lua tfd__embedded_ffi $@ \
	  ffi_declarations=$(@D)/ffi_declarations.h ffi_wrappers=$(@D)/ffi_wrappers.lua

# The list of files is a dependency too: a removed file must leave the host.
$(BUILD)/gen/library.list: FORCE
	@mkdir -p $(@D)
	@echo '$(LUA_LIB)' | cmp -s - $@ || echo '$(LUA_LIB)' > $@

# As build_id.c, of the Lua part, which only hosts carry with them.
$(BUILD)/gen/lua_id.lua: $(LUA_LIB) $(BUILD)/gen/library.list
	@cat $(LUA_LIB) | sha256sum | sed 's/^\(.\{12\}\).*/return "\1"/' > $@

$(BUILD)/gen/embed_library.c: $(LUA_LIB) $(BUILD)/gen/lua_id.lua \
                              scripts/embed.lua
	$(Q)$(LUA) scripts/embed.lua tfd__embedded_library $@ \
	  tfdist.lua_id=$(BUILD)/gen/lua_id.lua -C lua $(LUA_LIB)

# Libraries beside the host win, for it and for what they need themselves
# (which is why the older kind of path): that makes a bundle relocatable.
RELOCATABLE = -Wl,--disable-new-dtags,-rpath,'$$$$ORIGIN/../lib'

define engine_rules
FLAGS_$(1) := $$(shell pkg-config --cflags $$(PKG_$(1)) 2>/dev/null)
$(BUILD)/$(1)/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(BASE_FLAGS) $$(OPT) $$(SAN_FLAGS) $$(FLAGS_$(1)) -c $$< -o $$@
$(BUILD)/$(1)/%.o: %.c
	@mkdir -p $$(@D)
	$$(call say,CC,$$< for $(1))
	$$(Q)$$(CC) $$(BASE_FLAGS) $$(OPT) $$(SAN_FLAGS) $$(FLAGS_$(1)) \
	  $$(if $$(EDIT),-DTFD_LIBEDIT) -c $$< -o $$@
# What the linker takes for the engine: static and whole where there is one.
ENGINE_$(1) = $$(or $$(strip $$(A_$(1))),$$(shell pkg-config --libs $$(PKG_$(1))))
$(BUILD)/$(1)/gen/compile: scripts/compile.c $(BUILD)/$(1)/gen/embed_library.o
	$$(Q)$$(CC) $$(BASE_FLAGS) -MF $$@.d $$(OPT) $$(SAN_FLAGS) $$(FLAGS_$(1)) \
	  -o $$@ $$< $(BUILD)/$(1)/gen/embed_library.o $$(ENGINE_$(1)) -lm -ldl
$(BUILD)/$(1)/gen/code.c: $(BUILD)/$(1)/gen/compile
	$$(Q)$$< $$@
$(BUILD)/$(1)/gen/code.o: $(BUILD)/$(1)/gen/code.c
	$$(Q)$$(CC) $$(BASE_FLAGS) $$(FLAGS_$(1)) -c $$< -o $$@
# Never unloaded: device threads may outlive the Lua state. Initialised before
# libgomp, for src/lua/spin.c: no constructor of ours may need a library but C's.
$(BUILD)/$(1)/tfdist/core.so: $$(BIND_$(1)) $(BUILD)/libtfdist.a
	@mkdir -p $$(@D)
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) -shared -fopenmp $$(SAN_FLAGS) -Wl,-z,nodelete \
	  $$(if $$(SAN),,-Wl,-z,initfirst) -o $$@ \
	  $$(BIND_$(1)) -Wl,--whole-archive $(BUILD)/libtfdist.a \
	  -Wl,--no-whole-archive $$(LIBS)
$$(HOST_$(1)): $$(HOSTO_$(1)) $$(BIND_$(1)) $(BUILD)/libtfdist.a
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) -fopenmp $$(SAN_FLAGS) -Wl,-E $(RELOCATABLE) -o $$@ \
	  $$(HOSTO_$(1)) \
	  $$(BIND_$(1)) -Wl,--whole-archive $(BUILD)/libtfdist.a \
	  $$(ENGINE_$(1)) \
	  -Wl,--no-whole-archive $$(LIBS) $$(if $$(EDIT),-ledit)
# The same with a strategy of the specs, which puts itself into the list.
$(BUILD)/spec/$(1)/tfdist/core.so: spec/support/ensemble.c $$(BIND_$(1)) \
                                   $(BUILD)/libtfdist.a
	@mkdir -p $$(@D)
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) $$(BASE_FLAGS) -MF $$@.d $$(OPT) $$(SAN_FLAGS) -shared \
	  -Wl,-z,nodelete $$(if $$(SAN),,-Wl,-z,initfirst) -o $$@ $$< \
	  $$(BIND_$(1)) -Wl,--whole-archive $(BUILD)/libtfdist.a \
	  -Wl,--no-whole-archive $$(LIBS)
-include $$(BIND_$(1):.o=.d) $$(HOSTO_$(1):.o=.d) \
         $(BUILD)/$(1)/gen/compile.d
endef
$(foreach e,$(ENGINES),$(eval $(call engine_rules,$(e))))

hosts: $(foreach e,$(ENGINES),$(HOST_$(e)))

FORCE:
.PHONY: FORCE hosts

# --- tests --------------------------------------------------------------------
$(BUILD)/spec/%: spec/c/%.c $(BUILD)/libtfdist.a
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE_FLAGS) $(OPT) $(SAN_FLAGS) -Wno-missing-prototypes \
	  -DTFD_SPEC_BUILD='"$(BUILD)"' $< -o $@ $(BUILD)/libtfdist.a -lcmocka $(LIBS)

# Back ends for specs, in folders of their own: TFDIST_PLUGINS names one.
$(BUILD)/spec/slow/tfdist_slow.so: spec/support/slow/slow.c
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(BASE_FLAGS) -MF $@.d $(OPT) $(SAN_FLAGS) -shared -o $@ $< \
	  -lpthread

# A host that holds what inference says of unknown sizes against every op.
$(BUILD)/spec/shadow: spec/support/shadow.c $(HOSTO_lua54) $(BIND_lua54) \
                      $(BUILD)/libtfdist.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(BASE_FLAGS) -MF $@.d $(OPT) $(SAN_FLAGS) -Wl,-E -o $@ $< \
	  $(HOSTO_lua54) $(BIND_lua54) -Wl,--whole-archive $(BUILD)/libtfdist.a \
	  $(ENGINE_lua54) \
	  -Wl,--no-whole-archive $(LIBS) $(if $(EDIT),-ledit)

tests-c: $(TEST_BIN) $(BUILD)/spec/slow/tfdist_slow.so standins

test-c: tests-c
	@status=0; for t in $(TEST_BIN); do \
	  echo "== $$t"; timeout 1200 $$t 2>&1 || status=1; done; exit $$status

test: all
	lua5.4 scripts/test.lua

# Also what `test` draws a part of.
check-long: all
	lua5.4 scripts/test.lua --long

# Debian 12's, for other versions see other lines; `git ls-files` leaves out what
# is generated.
FORMAT = git ls-files '*.c' '*.h' '*.cc' '*.cu' | \
         xargs clang-format-14 --style=file

format:
	$(FORMAT) -i

lint:
	lua5.4 scripts/check_layers.lua
	luacheck -q lua spec scripts examples
	$(FORMAT) --dry-run -Werror
	$(CC) $(filter-out -MMD -MP,$(BASE_FLAGS)) -Werror -fsyntax-only \
	  $(BENCH_SRC) $(STEPS_SRC)

# The folders of src/ and lua/ and who includes or requires whom, for Graphviz.
graph:
	lua5.4 scripts/check_layers.lua --dot >$(BUILD)/graph.dot
	$(if $(shell command -v dot),dot -Tsvg -o $(BUILD)/graph.svg $(BUILD)/graph.dot)
	@echo "  $(BUILD)/graph.dot$(if $(shell command -v dot), and graph.svg)"

include src/backend/cuda/rules.mk
include src/comm/nccl/rules.mk
include src/comm/mpi/rules.mk
include spec/fuzz/targets.mk

# --- benchmarks ---------------------------------------------------------------
$(BUILD)/bench/steps: $(STEPS_SRC) scripts/bench/net.h
$(BUILD)/bench/%: scripts/bench/%.c $(BUILD)/libtfdist.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(BASE_FLAGS) -MF $@.d $(OPT) $(filter %.c,$^) -o $@ \
	  $(BUILD)/libtfdist.a $(LIBS)

# Peers: left out where there is no MPI.
$(BUILD)/bench/mpi: scripts/bench/mpi.c
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)OMPI_CC='$(CC)' mpicc -std=gnu11 $(WARN) $(OPT) $< -o $@

$(BUILD)/bench/mpich: scripts/bench/mpi.c
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)MPICH_CC='$(CC)' mpicc.mpich -std=gnu11 $(WARN) $(OPT) $< -o $@

MPI_BIN := $(if $(shell command -v mpicc),$(BUILD)/bench/mpi) \
  $(if $(shell command -v mpicc.mpich),$(BUILD)/bench/mpich)

# ONLY=dispatch,gemm runs these alone, SHORT=1 measures less often.
bench-programs: $(BENCH_BIN) $(MPI_BIN)

bench: bench-programs $(foreach e,$(ENGINES),$(HOST_$(e)))
	@ONLY='$(ONLY)' SHORT='$(SHORT)' $(LUA) scripts/bench.lua $(BUILD)

# The same training on 1, 2 and 4 devices, then here and in TensorFlow, on real
# images: half an hour. OPTIONS=--only=fit takes a part of the second. Then
# cases drawn from three seeds, alone: make parity-seeds SEEDS=4 CASES=500.
parity: $(HOST_lua54) parity-seeds
	TFDIST_CPU_DEVICES=4 $< scripts/parity.lua
	scripts/parity/run $(BUILD) $(OPTIONS)

parity-seeds: $(HOST_lua54)
	scripts/parity/run_seeded $(BUILD)

# What the spec of the comparison reads; TensorFlow's answers to a few cases.
parity-record:
	$$(scripts/venv_peer tensorflow-cpu) -W ignore \
	  scripts/parity/seeded spec/parity/recorded.npz --seed=9 --cases=500

# --- installation ---------------------------------------------------------------
# The Lua modules go where Debian's interpreters look below PREFIX.
VERSION := $(shell sed -n 's/.*TFD_VERSION "\(.*\)".*/\1/p' src/tfdist.h)
ROOT = $(DESTDIR)$(PREFIX)
SHARE = $(ROOT)/share/lua
LIBDIR = $(ROOT)/lib
MANUAL = $(ROOT)/share/man/man1
COMPLETIONS = $(ROOT)/share/bash-completion/completions
DIRECTORY_lua54 = 5.4
DIRECTORY_luajit = 5.1

# Once for each engine: host, core module, Lua files. The two differ in the
# folder of the Lua version only, so they can be there side by side.
define install_rules
install-$(1): parts
	install -d $$(ROOT)/bin
	install -m 755 $$(HOST_$(1)) $$(ROOT)/bin
	install -D -m 755 $$(BUILD)/$(1)/tfdist/core.so \
	  $$(LIBDIR)/lua/$$(DIRECTORY_$(1))/tfdist/core.so
	for f in $$(LUA_LIB:lua/%=%); do install -D -m 644 lua/$$$$f \
	  $$(SHARE)/$$(DIRECTORY_$(1))/$$$$f || exit 1; done
# What LuaRocks runs: its own folders instead of PREFIX.
install-rock-$(1):
	install -d $$(BINDIR)
	install -m 755 $$(HOST_$(1)) $$(BINDIR)
	install -D -m 755 $$(BUILD)/$(1)/tfdist/core.so \
	  $$(LIBDIR)/tfdist/core.so
	for f in $$(LUA_LIB:lua/%=%); do install -D -m 644 lua/$$$$f \
	  $$(LUADIR)/$$$$f || exit 1; done
endef
$(foreach e,$(ENGINES),$(eval $(call install_rules,$(e))))

install: parts $(ENGINES:%=install-%)
	install -d $(ROOT)/include/tfdist $(LIBDIR)/pkgconfig $(MANUAL) \
	  $(COMPLETIONS)
	install -m 644 src/tfdist.h $(ROOT)/include/tfdist.h
	install -m 644 $(API_PARTS) $(ROOT)/include/tfdist
	install -m 755 $(BUILD)/libtfdist.so $(LIBDIR)/libtfdist.so
	for f in $(wildcard $(BUILD)/plugins/*.so); do \
	  install -D -m 755 $$f $(LIBDIR)/tfdist/$${f##*/} || exit 1; done
	install -m 644 $(BUILD)/libtfdist.a $(LIBDIR)/libtfdist.a
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' \
	  scripts/install/tfdist.pc >$(LIBDIR)/pkgconfig/tfdist.pc
	install -m 644 scripts/install/tfdist.1 $(MANUAL)
	ln -sf tfdist.1 $(MANUAL)/tfdist-luajit.1
	install -m 644 scripts/install/tfdist.bash $(COMPLETIONS)/tfdist
	ln -sf tfdist $(COMPLETIONS)/tfdist-luajit

uninstall:
	rm -f $(ROOT)/include/tfdist.h $(LIBDIR)/libtfdist.so \
	  $(LIBDIR)/libtfdist.a $(LIBDIR)/pkgconfig/tfdist.pc \
	  $(ROOT)/bin/tfdist $(ROOT)/bin/tfdist-luajit \
	  $(MANUAL)/tfdist.1 $(MANUAL)/tfdist-luajit.1 \
	  $(COMPLETIONS)/tfdist $(COMPLETIONS)/tfdist-luajit
	rm -rf $(ROOT)/include/tfdist $(LIBDIR)/tfdist \
	  $(SHARE)/5.1/tfdist $(SHARE)/5.4/tfdist \
	  $(LIBDIR)/lua/5.1/tfdist $(LIBDIR)/lua/5.4/tfdist

# LuaRocks installs for one interpreter, ROCK_LUA; $(LUA) runs the generators.
ROCK_LUA ?= $(LUA)
ROCK_ENGINE = $(shell $(ROCK_LUA) -e 'print(rawget(_G, "jit") and "luajit" or \
                _VERSION == "Lua 5.4" and "lua54" or _VERSION)')
rock:
	@case "$(ROCK_ENGINE)" in lua54|luajit) ;; *) \
	  echo 'tfdist needs Lua 5.4 or LuaJIT, this is $(ROCK_ENGINE);' \
	    'LuaJIT: luarocks --lua-version 5.1 make FILE' \
	    'LUA_INCDIR=/usr/include/luajit-2.1 LUA=/usr/bin/luajit'; exit 1;; \
	esac
	$(MAKE) ENGINES=$(ROCK_ENGINE) parts
install-rock:
	$(MAKE) ENGINES=$(ROCK_ENGINE) BINDIR='$(BINDIR)' \
	  LIBDIR='$(LIBDIR)' LUADIR='$(LUADIR)' install-rock-$(ROCK_ENGINE)

# A tarball that runs where nothing is installed: make bundle
bundle: parts
	scripts/bundle $(BUILD) $(VERSION)

clean:
	rm -rf $(BUILD)

help:
	@echo 'make            library, core modules, hosts'
	@echo 'make test       every suite (what scripts/check runs)'
	@echo 'make format     the C files as .clang-format says'
	@echo 'make check-long all of what it draws parts of by a seed'
	@echo 'make test-c     C unit tests      make lint   layers, luacheck'
	@echo 'make graph      diagram of the layers and floors, for Graphviz'
	@echo 'make bench      benchmarks with peers, side by side (ONLY=, SHORT=1)'
	@echo 'make fuzz       100,000 random calls on each host, 60 s of each parser'
	@echo 'make fuzz-long  N= calls, SECONDS= of each parser, SEED='
	@echo 'make install    PREFIX=/usr/local DESTDIR=   make uninstall'
	@echo 'make bundle     a relocatable tarball'
	@echo 'make parity     the same training on 1, 2, 4 devices and in TensorFlow'
	@echo 'make parity-seeds    cases drawn from seeds, here and in TensorFlow'
	@echo 'make clean      SAN=address|thread chooses an instrumented build'

.PHONY: all parts install uninstall rock install-rock bundle test format check-long \
        tests-c test-c lint graph bench bench-programs parity parity-seeds parity-record clean \
        help
-include $(CORE_OBJ:.o=.d) $(TEST_BIN:=.d) \
         $(BUILD)/spec/slow/tfdist_slow.so.d $(BUILD)/spec/shadow.d

