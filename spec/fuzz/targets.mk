# Fuzzing; included by the Makefile.
# The libFuzzer targets are clang's; what they watch is compiled by clang too,
# the rest of the library comes from the AddressSanitizer build.
CLANG ?= clang
FUZZ_BUILD ?= build/asan
# Not inside FUZZ_BUILD: a program finds plug-ins beside its folder, and those
# of FUZZ_BUILD need gcc's AddressSanitizer, which clang's refuses beside it.
FUZZ_OUT ?= build/fuzz
FUZZ_FLAGS = -std=gnu11 -Isrc -O1 -g1 -fno-omit-frame-pointer -DTFD_DEBUG \
             -fno-sanitize-recover=all
FUZZ_SAN = address,undefined
FUZZ_NAMES = idx archive records example device_name shape program frame
FUZZ_BIN = $(FUZZ_NAMES:%=$(FUZZ_OUT)/%)
FUZZ_src_idx = src/io/idx.c src/io/input.c src/types/types.c
FUZZ_src_archive = src/io/archive.c src/types/types.c
FUZZ_src_records = src/io/reader.c src/io/input.c src/io/writer.c
FUZZ_src_example = src/io/example.c
FUZZ_src_device_name = src/device/names.c src/types/types.c
FUZZ_src_shape = $(wildcard src/ops/infer*.c) src/ops/registry.c \
                 src/types/types.c
FUZZ_src_program = $(wildcard src/ops/*.c src/autograd/*.c src/tensor/*.c) \
                   src/types/types.c
FUZZ_src_frame = src/comm/tcp/frame.c src/comm/tcp/hello.c \
                 src/comm/tcp/refuse.c src/comm/words.c
FUZZ_OBJ = $(patsubst %.c,$(FUZZ_OUT)/%.o,$(sort \
             $(foreach n,$(FUZZ_NAMES),$(FUZZ_src_$(n)))))

$(FUZZ_OUT)/src/%.o: src/%.c
	@mkdir -p $(@D)
	$(call say,CLANG,$<)
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link,$(FUZZ_SAN) -MMD -MP \
	  -c $< -o $@

define fuzz_rule
$(FUZZ_OUT)/$(1): spec/fuzz/$(1).c spec/fuzz/input.h spec/fuzz/file.h \
    $$(FUZZ_src_$(1):%.c=$(FUZZ_OUT)/%.o) $(FUZZ_BUILD)/hosts.stamp
	$$(call say,FUZZ,$$@)
	$$(Q)$$(CLANG) $$(FUZZ_FLAGS) -fsanitize=fuzzer,$$(FUZZ_SAN) -o $$@ $$< \
	  $$(filter %.o,$$^) $(FUZZ_BUILD)/libtfdist.a $$(LIBS) \
	  $$(shell $$(CC) -print-file-name=libgomp.so)
endef
$(foreach n,$(FUZZ_NAMES),$(eval $(call fuzz_rule,$(n))))

# The stamp is newer than the programs only when the library changed.
$(FUZZ_BUILD)/hosts.stamp: fuzz-hosts
	@[ $@ -nt $(FUZZ_BUILD)/libtfdist.a ] || touch $@

fuzz-hosts:
	@$(MAKE) --no-print-directory SAN=address BUILD=$(FUZZ_BUILD) hosts

# What strangers may send takes a minute at least.
FUZZ_RUN = FUZZ_TARGETS='$(FUZZ_NAMES:frame=frame=60)' $(LUA) spec/fuzz/run.lua $(FUZZ_BUILD) \
           $(FUZZ_OUT)

# 100,000 random calls under each host and 60 s of each parser: make fuzz
# As long as you like:   make fuzz-long N=1000000 SEED=1 SECONDS=600
# Without SEED the test run's seed (spec/support/seed.lua), else another each time.
# What scripts/check runs, fewer calls, which are the same ones each time: what it
# finds is new, not drawn: make fuzz-short
fuzz: fuzz-hosts $(FUZZ_BIN)
	@$(FUZZ_RUN) $(or $(N),100000) '$(SEED)'

fuzz-long: fuzz-hosts $(FUZZ_BIN)
	@$(FUZZ_RUN) $(or $(N),1000000) '$(SEED)' $(or $(SECONDS),600)

fuzz-programs: fuzz-hosts $(FUZZ_BIN)

fuzz-short: fuzz-programs
	@$(FUZZ_RUN) $(or $(N),10000) $(or $(SEED),1) 20

.PHONY: fuzz fuzz-long fuzz-short fuzz-hosts fuzz-programs
-include $(FUZZ_OBJ:.o=.d)
