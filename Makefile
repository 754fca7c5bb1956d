# tfdist: knobs, lists, rules. `make` builds what it finds; `make help` lists
# the targets.

BUILD ?= build
CC ?= gcc
CFLAGS ?= -O2 -g
WARN = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
       -Wmissing-prototypes -Wwrite-strings
PKGS_CORE = jansson zlib libcrypto
LUA54 = lua5.4
LUAJIT = luajit

# fopenmp: oneDNN's threading; parallel loops use the same pool.
BASE_FLAGS = -std=gnu11 -fPIC -fvisibility=hidden -fopenmp -fno-math-errno \
             -fno-trapping-math -MMD -MP -Isrc $(WARN) $(EXTRA)
LIBS = -ldnnl -ljansson -lz -lcrypto -lm -lpthread -ldl

CORE_SRC := $(wildcard src/base/*.c src/types/*.c src/backend/*.c \
              src/backend/cpu/*.c src/device/*.c src/tensor/*.c src/ops/*.c \
              src/autograd/*.c)
CORE_OBJ := $(CORE_SRC:%.c=$(BUILD)/%.o)

all: $(BUILD)/libtfdist.so

# Numeric kernels gain from -O3; the rest is branchy and stays at -O2.
$(BUILD)/src/backend/cpu/%.o: CFLAGS += -O3

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE_FLAGS) $(CFLAGS) -c $< -o $@

$(BUILD)/libtfdist.so: $(CORE_OBJ)
	$(CC) -shared -fopenmp $(EXTRA) -o $@ $^ $(LIBS)

-include $(CORE_OBJ:.o=.d)

.PHONY: all
