#ifndef TFD_BACKEND_CPU_ONEDNN_CALLS_H
#define TFD_BACKEND_CPU_ONEDNN_CALLS_H
/* The calls of oneDNN that may allocate, as tfd__dnnl_try_<name>: what they
** throw ends in them and is a status (or NULL) for us, since an exception that
** leaves the library finds nobody below Lua. Out of memory also sets
** tfd__dnnl_exhausted of the thread, so that it is not taken for "there is no
** such primitive". */

#include <stdbool.h>

#include <oneapi/dnnl/dnnl.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TFD_DNNL_CALLS(X)               \
  X(engine_create)                      \
  X(stream_create)                      \
  X(memory_create)                      \
  X(memory_set_data_handle)             \
  X(primitive_attr_create)              \
  X(primitive_attr_set_scratchpad_mode) \
  X(primitive_desc_create)              \
  X(primitive_desc_iterator_create)     \
  X(primitive_desc_iterator_next)       \
  X(primitive_desc_iterator_fetch)      \
  X(reorder_primitive_desc_create)      \
  X(primitive_create)                   \
  X(primitive_execute)

#define TFD_DNNL_DECLARE(name) \
  extern __typeof__(&dnnl_##name) const tfd__dnnl_try_##name;
TFD_DNNL_CALLS(TFD_DNNL_DECLARE)
#undef TFD_DNNL_DECLARE

extern __thread bool tfd__dnnl_exhausted;

#ifdef __cplusplus
}
#endif

#endif
