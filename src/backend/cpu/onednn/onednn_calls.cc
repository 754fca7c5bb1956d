// The one place that catches what oneDNN throws.
#include "backend/cpu/onednn/onednn_calls.h"

#include <future>
#include <new>

__thread bool tfd__dnnl_exhausted = false;

namespace {

// A primitive whose making was broken off stays in the library's cache as a
// promise that is never kept: who asks for it next would get that. The other
// primitives go too; plans hold those they use.
void forget_broken() noexcept {
  int capacity = 0;

  try {
    if (dnnl_get_primitive_cache_capacity(&capacity) == dnnl_success &&
        dnnl_set_primitive_cache_capacity(0) == dnnl_success)
      dnnl_set_primitive_cache_capacity(capacity);
  } catch (...) {
  }
}

dnnl_status_t noted(dnnl_status_t status) {
  if (status == dnnl_out_of_memory) tfd__dnnl_exhausted = true;
  return status;
}

template <typename T> T *noted(T *made) {
  return made;
}

template <typename R> struct failure {
  static R of(dnnl_status_t status) { return status; }
};

template <typename T> struct failure<T *> {
  static T *of(dnnl_status_t) { return nullptr; }
};

template <auto call> struct guarded;

template <typename R, typename... A, R(DNNL_API *call)(A...)>
struct guarded<call> {
  static R run(A... args) noexcept {
    dnnl_status_t status = dnnl_out_of_memory;

    try {
      return noted(call(args...));
    } catch (const std::bad_alloc &) {
    } catch (const std::future_error &) { // broken off by another thread
    } catch (...) {
      status = dnnl_runtime_error;
    }
    forget_broken();
    return failure<R>::of(noted(status));
  }
};

} // namespace

#define DEFINE(name)                                  \
  const decltype(&dnnl_##name) tfd__dnnl_try_##name = \
      guarded<&dnnl_##name>::run;
extern "C" {
TFD_DNNL_CALLS(DEFINE)
}
