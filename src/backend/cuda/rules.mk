# The CUDA plug-in, built where the toolkit and cuDNN's headers are, which
# `scripts/packages cuda` brings; included by the Makefile. Machine code for
# sm_75, 80, 90 and 100 (and what they stand for), PTX for the rest. A spilled
# register is an error.
CUDA ?= $(or $(wildcard build/cuda-toolkit),/usr/local/cuda)
NVCC := $(wildcard $(CUDA)/bin/nvcc)
CUDA_HEADERS := $(and $(wildcard $(CUDA)/include/cublasLt.h),\
                      $(wildcard $(CUDA)/include/cudnn.h))
# Two passes of the compiler's front end, which takes most of the time: compute_75
# has no instructions for bfloat16, and nothing newer than compute_80 is used.
empty :=
comma := ,
CUDA_PTX = 75
CUDA_ARCHS = 80 90 100
CUDA_CODE = -gencode \
            'arch=compute_$(CUDA_PTX),code=[compute_$(CUDA_PTX),sm_$(CUDA_PTX)]' \
            -gencode 'arch=compute_$(firstword $(CUDA_ARCHS)),code=[$(subst \
              $(empty) $(empty),$(comma),$(CUDA_ARCHS:%=sm_%))]'
NVCC_FLAGS = -std=c++17 -Isrc -diag-suppress 186 -fatbin \
             -Xptxas -warn-spills,-Werror,-v $(CUDA_CODE)
CUDA_KERNELS := $(patsubst src/backend/cuda/kernels/%.cu,%,\
                $(sort $(wildcard src/backend/cuda/kernels/*.cu)))
CUDA_SRC := $(sort $(wildcard src/backend/cuda/*.c)) src/types/types.c \
            src/backend/window.c src/backend/draw.c src/backend/lay.c
# Sanitizer builds share what nvcc made for the plain one.
CUDA_BUILD = build/cuda
CUDA_FATBIN = $(CUDA_KERNELS:%=$(CUDA_BUILD)/%.fatbin)
CUDA_OBJ = $(CUDA_SRC:%.c=$(BUILD)/cuda/%.o)
CUDA_PLUGIN = $(BUILD)/plugins/tfdist_cuda.so

ifneq ($(and $(NVCC),$(CUDA_HEADERS)),)
ifeq ($(SAN),)
parts: $(CUDA_PLUGIN)
endif
endif

# Two ops round twice, in one kernel too.
$(CUDA_BUILD)/elementwise.fatbin $(CUDA_BUILD)/elementwise.log \
  $(CUDA_BUILD)/elementwise.ptx: NVCC_FLAGS += -fmad=false

# For other architectures they are built again.
$(CUDA_BUILD)/architectures: FORCE
	@mkdir -p $(@D)
	@echo "$(CUDA_CODE)" | cmp -s - $@ || echo "$(CUDA_CODE)" >$@

# The PTX on the way is kept for the specs.
$(CUDA_BUILD)/%.fatbin $(CUDA_BUILD)/%.log $(CUDA_BUILD)/%.ptx: \
  src/backend/cuda/kernels/%.cu $(CUDA_BUILD)/architectures
	@mkdir -p $(@D)/$*.keep
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@D)/$*.d \
	  -MT '$(@D)/$*.fatbin $(@D)/$*.log $(@D)/$*.ptx' \
	  -keep -keep-dir $(@D)/$*.keep \
	  -o $(@D)/$*.fatbin $< 2> $(@D)/$*.log || \
	  { cat $(@D)/$*.log; exit 1; }
	$(Q)mv $(@D)/$*.keep/$*.compute_$(CUDA_PTX).ptx $(@D)/$*.ptx
	$(Q)rm -r $(@D)/$*.keep
	$(Q)grep -v 'ptxas info\|bytes stack frame' $(@D)/$*.log || true

$(BUILD)/cuda/src/%.o: src/%.c
	@mkdir -p $(@D)
	$(call say,CC,$< for the CUDA plug-in)
	$(Q)$(CC) $(filter-out -fopenmp,$(BASE_FLAGS)) $(OPT) $(SAN_FLAGS) \
	  -isystem $(CUDA)/include -DTFD_CUDA_FATBINS='"$(CUDA_BUILD)"' -c $< -o $@
$(BUILD)/cuda/src/backend/cuda/launch.o: $(CUDA_FATBIN)
$(BUILD)/cuda/src/backend/cuda/nvrtc.o: $(wildcard \
  src/backend/cuda/kernels/*.h src/backend/cuda/kernels/ops.def)

# It sees no symbol of the library, so a missing one is an error here.
$(CUDA_PLUGIN): $(CUDA_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(SAN_FLAGS) -Wl,-z,defs -Wl,-z,nodelete -o $@ $^ -lm \
	  -lpthread -ldl

# What bench.lua of scripts/gpu compares with.
GPU_RAW = $(BUILD)/spec/gpu_raw
$(GPU_RAW): scripts/gpu/raw.c $(BUILD)/cuda/src/backend/cuda/library.o \
            $(BUILD)/cuda/src/backend/cuda/driver.o $(BUILD)/libtfdist.a \
            $(CUDA_BUILD)/nn.fatbin
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE_FLAGS) -MF $@.d $(OPT) $(SAN_FLAGS) \
	  -isystem $(CUDA)/include -DTFD_CUDA_FATBINS='"$(CUDA_BUILD)"' -o $@ \
	  $(filter %.c %.o %.a,$^) $(LIBS)

# --- stand-ins: the libraries without a GPU, for the specs ----------------------
# SAN=address: no host code may touch a device's memory, which is poisoned and
# which the stand-ins alone reach, with functions of their own (plain.cc); what
# they compute is checked for undefined behaviour. SAN=thread: what kernels,
# copies and libraries touch is seen, but not how the model runs a kernel: its
# fibers are none of the sanitizer's business.
STANDIN = $(BUILD)/standin
CHECKED = build/standin/checked
STANDIN_SAN = $(if $(filter address,$(SAN)),-fsanitize=undefined \
                -fno-sanitize=vptr -fno-sanitize-recover=undefined)\
              $(if $(filter thread,$(SAN)),-fsanitize=thread \
                --param tsan-instrument-func-entry-exit=0)
STANDIN_PLAIN = $(if $(filter address,$(SAN)),$(STANDIN)/plain.o)
STANDIN_FLAGS = -std=c++17 -O1 -g1 -fPIC -fvisibility=hidden -MMD -MP -Wall \
                -Wextra -Wno-unused-function -Isrc -Ispec/support/cuda \
                -isystem $(CUDA)/include
STANDIN_LIBS = $(STANDIN)/libcuda.so.1 $(STANDIN)/libcublasLt.so.13 \
               $(STANDIN)/libcudnn.so.9 $(STANDIN)/libnvrtc.so.13

STANDIN_KERNELS = $(CUDA_KERNELS:%=$(if $(filter thread,$(SAN)),$(CHECKED),\
                    $(STANDIN))/kernels/%.o)

$(STANDIN)/kernels/%.o: src/backend/cuda/kernels/%.cu
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(STANDIN_FLAGS) $(STANDIN_SAN) -x c++ -c $< -o $@
# How the model runs a kernel is not the sanitizers' business. It and the checker
# see every access: most of the time of what runs on stand-ins.
$(STANDIN)/model.o: STANDIN_SAN =
$(STANDIN)/model.o $(STANDIN)/race.o: STANDIN_FLAGS += -O2
$(STANDIN)/plain.o: STANDIN_SAN = -O2 -fno-builtin -fno-tree-loop-distribute-patterns
$(STANDIN)/%.o: spec/support/cuda/%.cc
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(STANDIN_FLAGS) $(STANDIN_SAN) -c $< -o $@
$(STANDIN)/libcuda.so.1: $(STANDIN_KERNELS) $(STANDIN)/model.o \
                         $(STANDIN)/libcuda.o $(STANDIN_PLAIN)
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared $(STANDIN_SAN) -Wl,-soname,$(@F) -o $@ $^
# NVRTC's compiles with the C++ compiler, and on demand with the real one too.
$(STANDIN)/libnvrtc.o: STANDIN_FLAGS += -DTFD_CXX='"$(firstword $(filter-out %ccache,$(CXX)))"' \
  -DTFD_SOURCES='"$(CURDIR)"'
$(STANDIN)/really: $(STANDIN)/really.o
	$(call say,LINK,$@)
	$(Q)$(CXX) -o $@ $< -L$(CUDA)/lib -Wl,-rpath,$(abspath $(CUDA))/lib \
	  -l:libnvrtc.so.13
$(STANDIN)/lib%.so.13 $(STANDIN)/lib%.so.9: $(STANDIN)/lib%.o $(STANDIN_PLAIN) \
                                            $(STANDIN)/libcuda.so.1
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared $(STANDIN_SAN) -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' \
	  -o $@ $< $(STANDIN_PLAIN) -L$(STANDIN) -l:libcuda.so.1

# Checked: kernels compiled for the thread sanitizer, their accesses seen by
# spec/support/cuda/race.cc in place of its library.
CHECKED_FLAGS = $(STANDIN_FLAGS) -fsanitize=thread \
                --param tsan-instrument-func-entry-exit=0
CHECKED_LIBS = $(STANDIN_LIBS:$(STANDIN)/%=$(CHECKED)/%)

$(CHECKED)/kernels/%.o: src/backend/cuda/kernels/%.cu
	@mkdir -p $(@D)
	$(call say,CXX,$< with its accesses checked)
	$(Q)$(CXX) $(CHECKED_FLAGS) -x c++ -c $< -o $@
$(CHECKED)/planted.o: spec/support/cuda/planted.cu
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(CHECKED_FLAGS) -x c++ -c $< -o $@
$(CHECKED)/libcuda.so.1: $(CUDA_KERNELS:%=$(CHECKED)/kernels/%.o) \
                         $(STANDIN)/model.o $(STANDIN)/race.o \
                         $(STANDIN)/libcuda.o
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared -Wl,-soname,$(@F) -o $@ $^ -ldl
$(CHECKED)/lib%: $(STANDIN)/lib% $(CHECKED)/libcuda.so.1
	$(Q)cp $< $@
$(STANDIN)/planted: $(CHECKED)/planted.o $(STANDIN)/model.o $(STANDIN)/race.o \
                    $(STANDIN)/planted.o
	$(call say,LINK,$@)
	$(Q)$(CXX) -o $@ $^ -ldl

# What the model makes of the kernels' arguments.
$(STANDIN)/list: $(CUDA_KERNELS:%=$(STANDIN)/kernels/%.o) $(STANDIN)/model.o \
                 $(STANDIN)/list.o
	$(call say,LINK,$@)
	$(Q)$(CXX) -o $@ $^

standins: $(if $(and $(NVCC),$(CUDA_HEADERS)),\
            $(CUDA_PLUGIN) $(GPU_RAW) $(STANDIN_LIBS) $(if $(SAN),,$(CHECKED_LIBS) \
            $(STANDIN)/planted $(STANDIN)/list $(STANDIN)/really \
            $(CUDA_KERNELS:%=$(CUDA_BUILD)/%.ptx) $(CUDA_KERNELS:%=$(CUDA_BUILD)/%.log)))

.PHONY: standins
.SECONDARY: $(patsubst %.so,%.o,$(basename $(STANDIN_LIBS)))
-include $(CUDA_OBJ:.o=.d) $(GPU_RAW).d \
         $(wildcard $(CUDA_BUILD)/*.d $(STANDIN)/*.d $(STANDIN)/kernels/*.d $(CHECKED)/*.d \
                    $(CHECKED)/kernels/*.d)
