#include "backend/cpu/device.h"
#include "backend/cpu/stream/stream.h"
#include "backend/strip.h"

static const tfd__kernel kernels[TFD_KERNEL_N] = {
#define KERNEL(name) [TFD_KERNEL_##name] = tfd__cpu_##name,
#include "backend/kernels/all.def"
#undef KERNEL
};

static const tfd__keeper keeper = {.bytes = tfd__cpu_kept_bytes,
                                   .matmul = tfd__cpu_matmul_kept};

const tfd__backend tfd__cpu_backend = {
    .abi = TFD_BACKEND_ABI,
    .kernels_n = TFD_KERNEL_N,
    .name = "cpu",
    .device_type = "CPU",
    .host_visible = true,
    .discover = tfd__cpu_discover,
    .describe = tfd__cpu_describe,
    .prepare = tfd__cpu_prepare,
    .stop = tfd__cpu_stop,
    .alloc = tfd__cpu_alloc,
    .free = tfd__cpu_free,
    .stream_new = tfd__cpu_stream_new,
    .stream_free = tfd__cpu_stream_free,
    .submit = tfd__cpu_submit,
    .after = tfd__cpu_after,
    .awaited = tfd__cpu_awaited,
    .wait = tfd__cpu_wait,
    .copy_in = tfd__cpu_copy_bytes,
    .copy_out = tfd__cpu_copy_bytes,
    .copy_across = tfd__cpu_copy_across,
    .kernels = kernels,
    .fuser = &tfd__cpu_fuser,
    .keeper = &keeper,
};
