#include "backend/cpu/linalg/lapack.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/environment.h"

#define MOST_SETTINGS 1024
/* What the libraries take when they are opened, and what OpenBLAS takes for
** each call that runs at a time, and keeps: 128 MiB and what malloc adds. */
#define OPEN_BYTES ((size_t)64 << 20)
#define CALL_BYTES ((size_t)129 << 20)
/* What malloc maps for the first allocation of a thread of its own. */
#define ARENA_BYTES ((size_t)128 << 20)

typedef void (*dgemm_function)(int order, int trans_a, int trans_b, int m,
                               int n, int k, double alpha, const double *a,
                               int lda, const double *b, int ldb, double beta,
                               double *c, int ldc);

static tfd__lapack single;
static tfd__lapack twice; /* float64 */
static dgemm_function dgemm;
static char missing[512]; /* why there are none */
static bool tried;        /* to open the libraries */
static int64_t busy;      /* calls now */
static int64_t most;      /* calls at once that OpenBLAS has memory for */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all the above */

/* --- opening -------------------------------------------------------------- */

static void *open_library(const char *name) {
  char folder[TFD_ENV_TEXT];
  char path[TFD_ENV_TEXT + 64];

  if (!tfd__env_text("TFDIST_LAPACK_LIBRARIES", folder)) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* OpenBLAS reads its settings while it is opened: one thread, or it starts one
** for each core; `core`, when not NULL, names the kernels to take. The process
** sees these variables for that moment only, and its children never do. The
** list is swapped whole, since other threads may be reading it. */
static void *open_openblas(const char *core) {
  static char one_thread[] = "OPENBLAS_NUM_THREADS=1";
  static char *settings[MOST_SETTINGS + 3] = {one_thread};
  extern char **environ;
  char **before = environ;
  void *library = NULL;
  int n = 0;

  while (before != NULL && before[n] != NULL && n < MOST_SETTINGS) {
    settings[n + 1] = before[n];
    n++;
  }
  settings[n + 2] = NULL;
  settings[n + 1] = (char *)(uintptr_t)core;
  __atomic_store_n(&environ, settings, __ATOMIC_RELEASE);
  library = open_library("libopenblas.so.0");
  __atomic_store_n(&environ, before, __ATOMIC_RELEASE);
  return library;
}

/* Kernels for a processor that is newer than the library, which then takes
** those for the oldest; NULL to leave it as it is. */
static const char *better_core(void *library) {
  const char *(*name)(void) = NULL;
  void *symbol = dlsym(library, "openblas_get_corename");

  if (symbol == NULL || getenv("OPENBLAS_CORETYPE") != NULL) return NULL;
  memcpy(&name, &symbol, sizeof name);
  if (strcmp(name(), "Prescott") != 0) return NULL;
  switch (tfd__vector_bits()) {
  case 512:
    return "OPENBLAS_CORETYPE=SkylakeX";
  case 256:
    return "OPENBLAS_CORETYPE=Haswell";
  default:
    return NULL;
  }
}

static bool find(void *library, const char *name, void *function_p) {
  void *symbol = library == NULL ? NULL : dlsym(library, name);

  if (symbol == NULL) {
    const char *why = dlerror();

    (void)snprintf(missing, sizeof missing, "%s", why == NULL ? name : why);
    return false;
  }
  memcpy(function_p, &symbol, sizeof symbol);
  return true;
}

/* Whatever threads OpenBLAS is built with, it uses none. Its setting may
** reach the calling thread's own. */
static bool hold_to_one_thread(void *openblas) {
  void (*set)(int) = NULL;
  int threads = tfd__threads_get();

  if (!find(openblas, "openblas_set_num_threads", &set)) return false;
  set(1);
  tfd__threads_set(threads);
  return true;
}

static bool find_all(void *lapacke) {
#define FUNCTION(name, arguments)                                \
  if (!find(lapacke, "LAPACKE_s" #name "_work", &single.name) || \
      !find(lapacke, "LAPACKE_d" #name "_work", &twice.name))    \
    return false;
  TFD_LAPACK_FUNCTIONS(FUNCTION)
#undef FUNCTION
  return true;
}

static void open_all(void) {
  void *openblas = open_openblas(NULL);
  const char *core = openblas == NULL ? NULL : better_core(openblas);
  dgemm_function product = NULL;

  if (core != NULL) {
    (void)dlclose(openblas);
    openblas = open_openblas(core);
  }
  if (!find(openblas, "cblas_dgemm", &product)) return;
  if (!hold_to_one_thread(openblas)) return;
  if (!find_all(open_library("liblapacke.so.3"))) return;
  dgemm = product;
}

/* --- use ------------------------------------------------------------------ */

/* OpenBLAS waits for ever when it cannot have memory: it is called only when
** there is room for what it will take. */
static int check_room(size_t bytes) {
  void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

  if (room == MAP_FAILED) return tfd__no_memory(bytes, "OpenBLAS");
  munmap(room, bytes);
  return TFD_OK;
}

/* Under the lock: once for good, unless memory was short. */
static int open_once(void) {
  if (tried) return TFD_OK;
  TFD_TRY(check_room(OPEN_BYTES));
  tried = true;
  open_all();
  return TFD_OK;
}

static int enter(int64_t threads) {
  TFD_TRY(open_once());
  if (dgemm == NULL) return TFD_OK;
  if (busy + threads > most) {
    size_t more = (size_t)(busy + threads - most);

    TFD_TRY(
        check_room(more * CALL_BYTES + (size_t)(threads - 1) * ARENA_BYTES));
    most = busy + threads;
  }
  busy += threads;
  return TFD_OK;
}

/* Whether there is a library, in *there_p. */
static int try_enter(int64_t threads, bool *there_p) {
  int rc = TFD_OK;

  pthread_mutex_lock(&lock);
  rc = enter(threads);
  *there_p = dgemm != NULL;
  pthread_mutex_unlock(&lock);
  return rc;
}

int tfd__lapack_enter(const char *name, int dtype, int64_t threads,
                      const tfd__lapack **p) {
  bool there = false;

  TFD_TRY(try_enter(threads, &there));
  if (!there) {
    (void)tfd__fail(TFD_UNAVAILABLE, "%s: LAPACK is not there: %s", name,
                    missing);
    return tfd__hint("apt-get install liblapacke libopenblas0");
  }
  *p = dtype == TFD_FLOAT64 ? &twice : &single;
  return TFD_OK;
}

void tfd__lapack_leave(int64_t threads) {
  pthread_mutex_lock(&lock);
  busy -= threads;
  pthread_mutex_unlock(&lock);
}

/* --- products ------------------------------------------------------------- */

/* The product goes in tiles whose size does not depend on the number of
** threads: neither do the bits. Large ones of large products pack their
** operands less often, small ones keep more cores busy. */
#define TILE_ROWS 128
#define TILE_COLS 256
#define LARGE_RESULT ((int64_t)1 << 20)
/* Multiplications below which our own product is as fast. */
#define SMALL_PRODUCT ((int64_t)1 << 21)
#define SHORT_SIDE 32

enum { ROWS_FIRST = 101, AS_IS = 111, TURNED = 112 };

typedef struct product {
  const tfd__gemm_args *g;
  int64_t tile_rows;
  int64_t tile_cols;
  int64_t across; /* tiles side by side */
  int lda;
  int ldb;
  int turn_a;
  int turn_b;
} product;

static void run_tiles(void *arg, int64_t begin, int64_t end) {
  const product *p = arg;
  const tfd__gemm_args *g = p->g;

  for (int64_t t = begin; t < end; t++) {
    int64_t row = t / p->across * p->tile_rows;
    int64_t col = t % p->across * p->tile_cols;
    int64_t m = g->m - row < p->tile_rows ? g->m - row : p->tile_rows;
    int64_t n = g->n - col < p->tile_cols ? g->n - col : p->tile_cols;

    dgemm(ROWS_FIRST, p->turn_a, p->turn_b, (int)m, (int)n, (int)g->k, 1,
          (const double *)g->a + row * g->a_row, p->lda,
          (const double *)g->b + col * g->b_col, p->ldb, g->add ? 1 : 0,
          (double *)g->c + row * g->c_row + col, (int)g->c_row);
  }
}

/* How BLAS is to read a matrix [rows, cols]; false when it cannot. */
static bool reads(int64_t row, int64_t col, int64_t rows, int64_t cols,
                  int *turn_p, int *step_p) {
  int64_t step = col == 1 ? row : col;

  *turn_p = col == 1 ? AS_IS : TURNED;
  *step_p = (int)step;
  return (col == 1 || row == 1) && step <= INT_MAX &&
         step >= (col == 1 ? cols : rows);
}

static void cut_tiles(product *p, int64_t *tiles_p) {
  const tfd__gemm_args *g = p->g;
  int64_t scale = g->m * g->n < LARGE_RESULT ? 1 : 2;

  p->tile_rows = scale * TILE_ROWS;
  p->tile_cols = scale * TILE_COLS;
  p->across = (g->n + p->tile_cols - 1) / p->tile_cols;
  *tiles_p = (g->m + p->tile_rows - 1) / p->tile_rows * p->across;
}

bool tfd__blas_gemm(const tfd__gemm_args *g, int *rc_p) {
  product p = {.g = g};
  int64_t threads = tfd__threads_get();
  int64_t tiles = 0;
  bool there = false;

  if (g->dtype != TFD_FLOAT64 || g->m < SHORT_SIDE || g->n < SHORT_SIDE ||
      g->k < SHORT_SIDE || g->m * g->n * g->k <= SMALL_PRODUCT)
    return false;
  if (g->k > INT_MAX || g->c_row > INT_MAX ||
      !reads(g->a_row, g->a_col, g->m, g->k, &p.turn_a, &p.lda) ||
      !reads(g->b_row, g->b_col, g->k, g->n, &p.turn_b, &p.ldb))
    return false;
  cut_tiles(&p, &tiles);
  if (threads > tiles) threads = tiles;
  *rc_p = try_enter(threads, &there);
  if (*rc_p != TFD_OK || !there) return *rc_p != TFD_OK;
  tfd__parallel_for(tiles, 1, run_tiles, &p);
  tfd__lapack_leave(threads);
  return true;
}
