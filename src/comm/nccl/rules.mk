# The NCCL plug-in, built where the CUDA plug-in is and NCCL's header; included
# by the Makefile behind CUDA's rules.
NCCL_HEADER := $(firstword $(wildcard $(CUDA)/include/nccl.h \
                 /usr/include/nccl.h /usr/local/include/nccl.h))
NCCL_SRC := $(sort $(wildcard src/comm/nccl/*.c)) src/backend/cuda/library.c
NCCL_OBJ = $(NCCL_SRC:%.c=$(BUILD)/nccl/%.o)
NCCL_PLUGIN = $(BUILD)/plugins/tfdist_nccl_2.so
NCCL_INCLUDES = -isystem $(CUDA)/include -isystem $(dir $(NCCL_HEADER))
GPU_RANKS = $(BUILD)/spec/gpu_ranks

ifneq ($(and $(NVCC),$(CUDA_HEADERS),$(NCCL_HEADER)),)
ifeq ($(SAN),)
parts: $(NCCL_PLUGIN)
endif
standins: $(NCCL_PLUGIN) $(STANDIN)/libnccl.so.2 $(GPU_RANKS)
endif

$(BUILD)/nccl/src/%.o: src/%.c
	@mkdir -p $(@D)
	$(call say,CC,$< for the NCCL plug-in)
	$(Q)$(CC) $(filter-out -fopenmp,$(BASE_FLAGS)) $(OPT) $(SAN_FLAGS) \
	  $(NCCL_INCLUDES) -c $< -o $@

$(NCCL_PLUGIN): $(NCCL_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(SAN_FLAGS) -Wl,-z,defs -Wl,-z,nodelete -o $@ $^ -lpthread -ldl

$(GPU_RANKS): scripts/gpu/ranks.c $(BUILD)/cuda/src/backend/cuda/library.o \
              $(BUILD)/cuda/src/backend/cuda/driver.o $(BUILD)/libtfdist.a
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE_FLAGS) -MF $@.d $(OPT) $(SAN_FLAGS) $(NCCL_INCLUDES) -o $@ \
	  $(filter %.c %.o %.a,$^) $(LIBS)

$(STANDIN)/libnccl.so.2: $(STANDIN)/libnccl.o $(STANDIN_PLAIN) \
                         $(STANDIN)/libcuda.so.1
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared $(STANDIN_SAN) -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' \
	  -o $@ $< $(STANDIN_PLAIN) -L$(STANDIN) -l:libcuda.so.1

-include $(NCCL_OBJ:.o=.d) $(GPU_RANKS).d
