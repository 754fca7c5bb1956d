#include "backend/cpu/cpu.h"

static const tfd__kernel kernels[TFD_KERNEL_N] = {
#define KERNEL(name) [TFD_KERNEL_##name] = tfd__cpu_##name,
#include "backend/kernels/all.def"
#undef KERNEL
};

static int cpu_alloc(int ordinal, size_t bytes, void **data_p) {
  void *data = tfd__alloc_aligned(64, bytes);

  (void)ordinal;
  if (data == NULL) return tfd__no_memory(bytes, "device buffer");
  *data_p = data;
  return TFD_OK;
}

static void cpu_free(int ordinal, void *data, size_t bytes) {
  (void)ordinal;
  (void)bytes;
  tfd__free(data);
}

const tfd__backend tfd__cpu_backend = {
    .name = "cpu",
    .device_type = "CPU",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_visible = true,
    .kernels = kernels,
};
