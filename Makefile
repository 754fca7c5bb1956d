# tfdist: knobs, lists, rules. `make help` lists the targets.

# --- knobs --------------------------------------------------------------------
CC ?= gcc
OPT ?= -O2 -g
# SAN=address or SAN=thread makes an instrumented build in a folder of its own.
SAN ?=
ifeq ($(SAN),address)
  BUILD ?= build/asan
  SAN_FLAGS = -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
              -fno-sanitize-recover=undefined -DTFD_DEBUG
else ifeq ($(SAN),thread)
  BUILD ?= build/tsan
  SAN_FLAGS = -O1 -fno-omit-frame-pointer -fsanitize=thread -DTFD_DEBUG
endif
BUILD ?= build
PREFIX ?= /usr/local

# --- flags --------------------------------------------------------------------
WARN = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
       -Wmissing-prototypes -Wwrite-strings
# OpenMP: oneDNN's threads and our parallel loops share one pool.
# -ffp-contract=off: the same bits whatever instruction set a loop runs on.
BASE_FLAGS = -std=gnu11 -fPIC -fvisibility=hidden -fopenmp -fno-math-errno \
             -fno-trapping-math -ffp-contract=off -MMD -MP -Isrc \
             $(WARN) $(EXTRA)
LIBS = -ldnnl -lz -lm -lpthread -ldl

# --- lists --------------------------------------------------------------------
LAYERS = base types backend backend/cpu device tensor ops autograd io
CORE_SRC := $(foreach l,$(LAYERS),$(sort $(wildcard src/$(l)/*.c)))
CORE_OBJ := $(CORE_SRC:%.c=$(BUILD)/%.o)
TEST_SRC := $(sort $(wildcard spec/c/*.c))
TEST_BIN := $(TEST_SRC:spec/c/%.c=$(BUILD)/spec/%)
BENCH_SRC := $(sort $(wildcard scripts/bench/*.c))
BENCH_BIN := $(BENCH_SRC:scripts/bench/%.c=$(BUILD)/bench/%)

# --- rules --------------------------------------------------------------------
all: $(BUILD)/libtfdist.so

# Numeric loops gain from -O3; the rest is branchy and stays at -O2.
$(BUILD)/src/backend/cpu/%.o: OPT += -O3

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) $(OPT) $(SAN_FLAGS) -c $< -o $@

$(BUILD)/libtfdist.a: $(CORE_OBJ)
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/libtfdist.so: $(CORE_OBJ)
	$(CC) -shared -fopenmp $(SAN_FLAGS) -o $@ $^ $(LIBS)

# --- tests --------------------------------------------------------------------
$(BUILD)/spec/%: spec/c/%.c $(BUILD)/libtfdist.a
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) $(OPT) $(SAN_FLAGS) -Wno-missing-prototypes $< \
	  -o $@ $(BUILD)/libtfdist.a -lcmocka $(LIBS)

test-c: $(TEST_BIN)
	@status=0; for t in $^; do \
	  echo "== $$t"; timeout 120 $$t 2>&1 || status=1; done; exit $$status

test test-all:
	lua5.4 scripts/test.lua

lint:
	lua5.4 scripts/check_layers.lua
	luacheck -q lua spec scripts examples

# --- benchmarks ---------------------------------------------------------------
$(BUILD)/bench/%: scripts/bench/%.c $(BUILD)/libtfdist.a
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) $(OPT) $< -o $@ $(BUILD)/libtfdist.a $(LIBS)

clean:
	rm -rf $(BUILD)

help:
	@echo 'make            library, core modules, hosts'
	@echo 'make test       every suite (what scripts/check runs)'
	@echo 'make test-c     C unit tests      make lint   layers, luacheck'
	@echo 'make bench      benchmarks with peers, side by side'
	@echo 'make clean      SAN=address|thread chooses an instrumented build'

.PHONY: all test test-all test-c lint clean help
-include $(CORE_OBJ:.o=.d) $(TEST_BIN:=.d)

