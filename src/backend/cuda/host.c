/* What the plug-in takes from the library, under the names that shared files
** (types, window) know. */
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "backend/cuda/cuda.h"
#include "backend/plugin.h"
#include "base/given.h"
#include "base/memory.h"
#include "base/thread.h"

static const tfd__plugin_host *host;

int tfd__cuda_attach(const tfd__plugin_host *table) {
  if (table->abi != TFD_BACKEND_ABI) {
    return table->fail(TFD_FAILED_PRECONDITION,
                       "made for table %d of back ends, here it is %d",
                       TFD_BACKEND_ABI, table->abi);
  }
  host = table;
  return TFD_OK;
}

int tfd__fail(tfd_status code, const char *fmt, ...) {
  char text[1024];
  va_list list;

  va_start(list, fmt);
  (void)vsnprintf(text, sizeof text, fmt, list);
  va_end(list);
  return host->fail(code, "%s", text);
}

int tfd__error_set_place(int replica, const char *where) {
  return host->error_set_place(replica, where);
}

int tfd__error_set_note(const char *note) {
  return host->error_set_note(note);
}

int tfd__blame(const char *op, const char *argument, int64_t bound) {
  return host->blame(op, argument, bound);
}

void tfd__error_save(tfd__error *e) {
  host->error_save(e);
}

int tfd__error_raise(const tfd__error *e) {
  return host->error_raise(e);
}

void tfd__error_free(tfd__error *e) {
  host->error_free(e);
}

int tfd__exit_with(tfd__exit code) {
  tfd__error e = {0};
  int rc;

  tfd__error_save(&e);
  e.exit = code;
  rc = tfd__error_raise(&e);
  tfd__error_free(&e);
  return rc;
}

void tfd__log(tfd__log_level level, const char *fmt, ...) {
  char text[1024];
  va_list list;

  va_start(list, fmt);
  (void)vsnprintf(text, sizeof text, fmt, list);
  va_end(list);
  host->log(level, "%s", text);
}

int tfd__bad_pointer(const char *function, const char *name) {
  return tfd__fail(TFD_VALUE_ERROR, "%s: %s is NULL", function, name);
}

void *tfd__alloc_aligned(size_t alignment, size_t bytes) {
  return host->alloc_aligned(alignment, bytes);
}

void tfd__free(void *p) {
  host->free(p);
}

bool tfd__cuda_tf32(void) {
  return host->tensor_float_32();
}

int tfd__no_memory(size_t bytes, const char *what) {
  return tfd__fail(TFD_RESOURCE_EXHAUSTED, "out of memory: %zu bytes for %s",
                   bytes, what);
}

int64_t tfd__now_ns(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
