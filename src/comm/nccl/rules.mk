# The NCCL plug-in, built where the CUDA plug-in is and NCCL's header; included
# by the Makefile behind CUDA's rules. Sanitizer builds share the plain one.
NCCL_HEADER := $(firstword $(wildcard $(CUDA)/include/nccl.h \
                 /usr/include/nccl.h /usr/local/include/nccl.h))
NCCL_SRC := $(sort $(wildcard src/comm/nccl/*.c)) src/backend/cuda/library.c
NCCL_OBJ = $(NCCL_SRC:%.c=build/nccl/%.o)
NCCL_PLUGIN = build/plugins/tfdist_nccl_2.so

ifneq ($(and $(NVCC),$(CUDA_HEADERS),$(NCCL_HEADER)),)
ifeq ($(SAN),)
parts: $(NCCL_PLUGIN)
endif
standins: $(NCCL_PLUGIN) $(STANDIN)/libnccl.so.2
endif

build/nccl/src/%.o: src/%.c
	@mkdir -p $(@D)
	$(call say,CC,$< for the NCCL plug-in)
	$(Q)$(CC) $(filter-out -fopenmp,$(BASE_FLAGS)) $(OPT) \
	  -isystem $(CUDA)/include -isystem $(dir $(NCCL_HEADER)) -c $< -o $@

$(NCCL_PLUGIN): $(NCCL_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-z,defs -Wl,-z,nodelete -o $@ $^ -lpthread -ldl

$(STANDIN)/libnccl.so.2: $(STANDIN)/libnccl.o $(STANDIN)/libcuda.so.1
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' -o $@ $< \
	  -L$(STANDIN) -l:libcuda.so.1

-include $(NCCL_OBJ:.o=.d)
