/* Training steps over raw oneDNN, one thread for each replica, gradients added
** up in shared memory: what a step costs without a runtime.
**
** usage: steps          reads requests from stdin, answers each with one line:
**   step NAME REPLICAS        wall s of a training step (forward, backward,
**                             sum over replicas, gradient descent)
**   allreduce REPLICAS BYTES  wall s to sum a buffer of each replica into all
**                             of them, the buffers rewritten before each sum
**   check NAME [EVERY]        relative difference between the gradient of an
**                             array of parameters and the loss's own slope
**                             along it, the worst of all or of every so many
**   quit                      ends the program
** NAME: mlp (784-512-512-10), cnn (32-64-FC64), lenet, lstm (2 x 512, 50
** steps, batch 50), tiny (4-64-64-2, batch 4), gpt (4 layers, 256 wide, 4
** heads, 128 steps, 256 tokens, batch 16). Batch 64 otherwise, for each
** replica. */
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net.h"

enum { MAX_REPLICAS = 8, WARM = 3 };

static const net_spec specs[] = {
    {"mlp",
     &net_calls_of_layers,
     30,
     64,
     1,
     1,
     1,
     784,
     10,
     3,
     {{NET_DENSE, 512, 0, 0, 1},
      {NET_DENSE, 512, 0, 0, 1},
      {NET_DENSE, 10, 0, 0, 0}}},
    {"cnn",
     &net_calls_of_layers,
     30,
     64,
     1,
     28,
     28,
     1,
     10,
     6,
     {{NET_CONV, 32, 3, 0, 1},
      {NET_POOL, 0, 2, 0, 0},
      {NET_CONV, 64, 3, 0, 1},
      {NET_POOL, 0, 2, 0, 0},
      {NET_DENSE, 64, 0, 0, 1},
      {NET_DENSE, 10, 0, 0, 0}}},
    {"lenet",
     &net_calls_of_layers,
     30,
     64,
     1,
     28,
     28,
     1,
     10,
     7,
     {{NET_CONV, 6, 5, 2, 1},
      {NET_POOL, 0, 2, 0, 0},
      {NET_CONV, 16, 5, 0, 1},
      {NET_POOL, 0, 2, 0, 0},
      {NET_DENSE, 120, 0, 0, 1},
      {NET_DENSE, 84, 0, 0, 1},
      {NET_DENSE, 10, 0, 0, 0}}},
    {"lstm",
     &net_calls_of_layers,
     2,
     50,
     50,
     1,
     1,
     512,
     65,
     3,
     {{NET_LSTM, 512, 0, 0, 0},
      {NET_LSTM, 512, 0, 0, 0},
      {NET_DENSE, 65, 0, 0, 0}}},
    {.name = "tiny", .calls = &tiny_calls, .turns = 2000},
    {.name = "gpt", .calls = &gpt_calls, .turns = 2},
};

static const net_spec *find(const char *name) {
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
    if (strcmp(specs[i].name, name) == 0) return &specs[i];
  fprintf(stderr, "steps: no network called %s\n", name);
  exit(1);
}

static double now(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *floats(size_t n) {
  float *p = aligned_alloc(64, (n * sizeof *p + 127) & ~(size_t)63);

  if (p == NULL) {
    fprintf(stderr, "steps: out of memory\n");
    exit(1);
  }
  memset(p, 0, n * sizeof *p);
  return p;
}

/* --- networks stay, as in a program that trains ----------------------------
 */

typedef struct kept {
  void *net;
  float *w; /* NULL: not made yet */
  float *g;
} kept;

static kept *kept_of(const net_spec *spec, int replica) {
  static kept all[sizeof specs / sizeof *specs][MAX_REPLICAS];
  kept *k = &all[spec - specs][replica];

  if (k->w == NULL) {
    k->w = floats(spec->calls->size(spec));
    k->g = floats(spec->calls->size(spec));
    omp_set_num_threads(1);
    k->net = spec->calls->open(spec, k->w, k->g, (unsigned)replica + 7);
  }
  return k;
}

/* --- replicas ---------------------------------------------------------------
 */

typedef struct team {
  int n;
  const net_spec *spec; /* NULL: sums alone */
  size_t size;          /* floats of each buffer */
  float *w[MAX_REPLICAS];
  float *g[MAX_REPLICAS];
  atomic_int arrived;
  atomic_int round;
  int turns;
  double spent; /* seconds between the first and the last turn, or in sums */
} team;

typedef struct member {
  team *t;
  int index;
} member;

/* Spins: there are no more threads than cores when it matters. */
static void meet(team *t) {
  int round = atomic_load(&t->round);

  if (atomic_fetch_add(&t->arrived, 1) == t->n - 1) {
    atomic_store(&t->arrived, 0);
    atomic_fetch_add(&t->round, 1);
    return;
  }
  while (atomic_load(&t->round) == round) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

/* This replica's stretch of the buffers. */
static void stretch(const team *t, int index, size_t *from, size_t *to) {
  size_t each = (t->size / (size_t)t->n + 15) & ~(size_t)15;

  *from = each * (size_t)index < t->size ? each * (size_t)index : t->size;
  *to = *from + each < t->size ? *from + each : t->size;
  if (index == t->n - 1) *to = t->size;
}

/* Sum and gradient descent in one pass, the result written to every copy. */
FAST static void update(const team *t, int index) {
  enum { PIECE = 4096 };
  float sum[PIECE];
  size_t from, to;

  stretch(t, index, &from, &to);
  for (size_t i = from; i < to; i += PIECE) {
    size_t n = to - i < PIECE ? to - i : PIECE;

    memcpy(sum, t->g[0] + i, n * sizeof *sum);
    for (int r = 1; r < t->n; r++)
      for (size_t k = 0; k < n; k++) sum[k] += t->g[r][i + k];
    for (size_t k = 0; k < n; k++) sum[k] = t->w[0][i + k] - 1e-4f * sum[k];
    for (int r = 0; r < t->n; r++) memcpy(t->w[r] + i, sum, n * sizeof *sum);
  }
}

FAST static void all_reduce(const team *t, int index) {
  size_t from, to;

  stretch(t, index, &from, &to);
  if (t->n == 2) {
    float *a = t->g[0];
    float *b = t->g[1];

    for (size_t i = from; i < to; i++) a[i] = b[i] = a[i] + b[i];
    return;
  }
  for (size_t i = from; i < to; i++) {
    float sum = t->g[0][i];

    for (int r = 1; r < t->n; r++) sum += t->g[r][i];
    for (int r = 0; r < t->n; r++) t->g[r][i] = sum;
  }
}

static void train(team *t, int index) {
  void *self = kept_of(t->spec, index)->net;
  double start = 0;

  omp_set_num_threads(1);
  for (int turn = 0; turn < t->turns + WARM; turn++) {
    if (turn == WARM) start = now();
    (void)t->spec->calls->step(self, t->n, 1);
    meet(t);
    update(t, index);
    meet(t);
  }
  if (index == 0) t->spent = now() - start;
}

static void sum_up(team *t, int index) {
  for (int turn = 0; turn < t->turns + WARM; turn++) {
    double start;

    for (size_t i = 0; i < t->size; i++) t->g[index][i] = 1.0f;
    meet(t);
    start = now();
    all_reduce(t, index);
    meet(t);
    if (index == 0 && turn >= WARM) t->spent += now() - start;
  }
}

static void *member_main(void *arg) {
  const member *m = arg;

  if (m->t->spec != NULL)
    train(m->t, m->index);
  else
    sum_up(m->t, m->index);
  return NULL;
}

/* Seconds of one turn; the caller is replica 0. */
static double together(const net_spec *spec, int n, size_t size, int turns) {
  pthread_t threads[MAX_REPLICAS];
  member members[MAX_REPLICAS];
  team t = {.n = n, .spec = spec, .size = size, .turns = turns};

  for (int r = 0; r < n; r++) {
    t.w[r] = spec != NULL ? kept_of(spec, r)->w : NULL;
    t.g[r] = spec != NULL ? kept_of(spec, r)->g : floats(size);
    /* After turns with other numbers of replicas: as equal as at first. */
    if (spec != NULL && r > 0) memcpy(t.w[r], t.w[0], size * sizeof **t.w);
    members[r] = (member){&t, r};
  }
  for (int r = 1; r < n; r++)
    pthread_create(&threads[r], NULL, member_main, &members[r]);
  member_main(&members[0]);
  for (int r = 1; r < n; r++) pthread_join(threads[r], NULL);
  for (int r = 0; spec == NULL && r < n; r++) free(t.g[r]);
  return t.spent / turns;
}

/* --- the gradient is right --------------------------------------------------
 */

/* Relative difference between the length of part [from, from + size) of the
** gradient and the loss's slope along it. */
static double check_part(const net_spec *spec, void *self, float *w,
                         const float *g, size_t from, size_t size) {
  float *start = floats(size);
  double losses[2];
  double norm = 0;
  double length;

  memcpy(start, w + from, size * sizeof *w);
  for (size_t i = 0; i < size; i++) norm += (double)g[from + i] * g[from + i];
  norm = sqrt(norm);
  /* So short that few units of ReLU and pooling turn, which leaves up to 0.005;
  ** the loss's rounding is 0.001 of its change. */
  length = 0.0002 / norm;
  for (int side = 0; side < 2; side++) {
    double scale = (side == 0 ? length : -length) / norm;

    for (size_t i = 0; i < size; i++)
      w[from + i] = start[i] + (float)(scale * g[from + i]);
    losses[side] = spec->calls->step(self, 1, 0);
  }
  memcpy(w + from, start, size * sizeof *w);
  free(start);
  return fabs((losses[0] - losses[1]) / (2 * length) / norm - 1);
}

/* The worst of all arrays of parameters. The second step's gradient: nothing
** of the first may be left in it. */
static double check(const net_spec *spec, int every) {
  const net_calls *calls = spec->calls;
  size_t size = calls->size(spec);
  float *w = floats(size);
  float *g = floats(size);
  double worst = 0;
  size_t from = 0;
  size_t part;
  void *self = NULL;

  omp_set_num_threads(1);
  self = calls->open(spec, w, g, 7);
  (void)calls->step(self, 1, 1);
  (void)calls->step(self, 1, 1);
  for (int k = 0; (part = calls->part(self, k)) > 0; k++) {
    double off = k % every == 0 ? check_part(spec, self, w, g, from, part) : 0;

    if (!(off <= worst)) worst = off;
    from += part;
  }
  free(w);
  free(g);
  return worst;
}

/* --- requests ---------------------------------------------------------------
 */

static void answer(const char *line) {
  char name[16];
  int n = 0;
  long long bytes = 0;

  if (sscanf(line, "step %15s %d", name, &n) == 2 && n > 0 &&
      n <= MAX_REPLICAS) {
    const net_spec *spec = find(name);

    printf("%.9g\n", together(spec, n, spec->calls->size(spec), spec->turns));
  } else if (sscanf(line, "allreduce %d %lld", &n, &bytes) == 2 && n > 1 &&
             n <= MAX_REPLICAS && bytes >= 4) {
    int turns = bytes > 1 << 20 ? 20 : 400;

    printf("%.9g\n", together(NULL, n, (size_t)bytes / 4, turns));
  } else if (sscanf(line, "check %15s %d", name, &n) >= 1 && n >= 0) {
    printf("%.9g\n", check(find(name), n > 0 ? n : 1));
  } else {
    printf("failed: no such request: %s\n", line);
  }
}

int main(void) {
  char line[256];

  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    if (strcmp(line, "quit") == 0) break;
    answer(line);
    fflush(stdout);
  }
  return 0;
}
