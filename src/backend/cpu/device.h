#ifndef TFD_BACKEND_CPU_DEVICE_H
#define TFD_BACKEND_CPU_DEVICE_H
/* Slots of the table that device.c fills. */

#include "backend/cpu/cpu.h"

int tfd__cpu_discover(int *count_p);
int tfd__cpu_describe(int ordinal, tfd__device_info *info_p);
int tfd__cpu_alloc(int ordinal, size_t bytes, void **data_p);
void tfd__cpu_free(int ordinal, void *data, size_t bytes);
int tfd__cpu_copy_bytes(tfd__stream *stream, void *to, const void *from,
                        size_t bytes);
int tfd__cpu_copy_across(tfd__stream *stream, void *to, int from_ordinal,
                         const void *from, size_t bytes);

#endif
