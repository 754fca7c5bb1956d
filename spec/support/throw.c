/* Preloaded into a process that computes: from the time oneDNN's engine is
** made, the C++ allocation number THROW_AT throws std::bad_alloc, once. At the
** end it says "thrown N of M" to stderr. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* The C++ library's names: operator new, and what throws. */
void *_Znwm(size_t bytes);
_Noreturn void _ZSt17__throw_bad_allocv(void);
int dnnl_engine_create(void *engine, int kind, size_t index);

static atomic_bool armed;
static atomic_long count;
static atomic_long thrown;
static long at;

void *_Znwm(size_t bytes) {
  void *p = NULL;

  if (atomic_load(&armed) && atomic_fetch_add(&count, 1) + 1 == at) {
    atomic_fetch_add(&thrown, 1);
  } else {
    p = malloc(bytes > 0 ? bytes : 1);
  }
  if (p == NULL) _ZSt17__throw_bad_allocv();
  return p;
}

int dnnl_engine_create(void *engine, int kind, size_t index) {
  const char *text = getenv("THROW_AT");

  at = text == NULL ? 0 : atol(text);
  atomic_store(&armed, true);
  return ((__typeof__(&dnnl_engine_create))dlsym(
      RTLD_NEXT, "dnnl_engine_create"))(engine, kind, index);
}

__attribute__((destructor)) static void say(void) {
  fprintf(stderr, "thrown %ld of %ld\n", atomic_load(&thrown),
          atomic_load(&count));
}
