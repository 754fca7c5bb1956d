/* What this machine can do, asked for piece by piece: hand-written loops
** without tfdist, and other programs' start.
**
** usage: floor          reads requests from stdin, one on each line, and
** answers each with one line of numbers, so that a driver can alternate
** between this program and another (see scripts/bench.lua):
**   quiet               CPU s of a fixed loop, to see how steady the core is
**   fma N               GFLOP/s of N threads (float32, fused multiply-add)
**   add N               GB/s of a += b, 128 MiB for each of N threads (3x)
**   copy N              GB/s of memcpy, 128 MiB for each of N threads (2x)
**   futex               s for a round trip between two sleeping threads
**   chain ELEMENTS      CPU s of five elementwise ops in one loop
**   steps ELEMENTS      CPU s of the same ops in five loops, warm temporaries
**   sgd, momentum, adam ELEMENTS    CPU s of an update in one loop
**   spawn COMMAND       wall s, CPU s and peak MiB of a command, output dropped
**   write MIB           wall s to write a file of so much and have it on disk
**   read MIB            wall s to read it back (out of the system's cache)
**   quit                ends the program
** CPU time is what other load disturbs least; lines without it are wall time.
*/
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define CLONES \
  __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define CLONES
#endif
/* The build keeps products and sums apart; a floor must not. */
#define FUSED __attribute__((optimize("O3", "fp-contract=fast")))

enum { MAX_THREADS = 64 };

static double seconds(clockid_t clock) {
  struct timespec t;

  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(size_t bytes) {
  void *p = NULL;

  if (posix_memalign(&p, (size_t)2 << 20, bytes) != 0) {
    fprintf(stderr, "floor: out of memory\n");
    exit(1);
  }
  return p;
}

static float *array(int64_t n, float scale) {
  float *p = need((size_t)n * sizeof *p);
  int64_t i;

  for (i = 0; i < n; i++) p[i] = scale * (float)(i % 13) - 0.3f;
  return p;
}

/* --- arithmetic ----------------------------------------------------------- */

typedef float vec __attribute__((vector_size(32)));
typedef float vec16 __attribute__((vector_size(64)));

/* Twelve chains hide the latency of two units, and fit the registers. */
#define FMA_LOOP(type, lanes)                                   \
  type a = {0}, b = a, c = a, d = a, e = a, f = a;              \
  type g = a, h = a, i = a, j = a, k = a, l = a;                \
  type x = a + 0.999f, y = a + 0.001f;                          \
  for (; rounds > 0; rounds--) {                                \
    a = a * x + y, b = b * x + y, c = c * x + y, d = d * x + y; \
    e = e * x + y, f = f * x + y, g = g * x + y, h = h * x + y; \
    i = i * x + y, j = j * x + y, k = k * x + y, l = l * x + y; \
  }                                                             \
  a += b + c + d + e + f + g + h + i + j + k + l;               \
  sink = a[0];                                                  \
  return 24.0 * lanes

static volatile float sink;

#if defined(__x86_64__)
FUSED __attribute__((target("avx512f"))) static double fma16(int64_t rounds) {
  FMA_LOOP(vec16, 16);
}
FUSED __attribute__((target("avx2,fma"))) static double fma8(int64_t rounds) {
  FMA_LOOP(vec, 8);
}
#endif
FUSED static double fma_any(int64_t rounds) {
  typedef float small __attribute__((vector_size(16)));
  FMA_LOOP(small, 4);
}

/* Runs the rounds, returns the operations of one. */
static double multiply_add(int64_t rounds) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return fma16(rounds);
  if (__builtin_cpu_supports("fma")) return fma8(rounds);
#endif
  return fma_any(rounds);
}

static double quiet(void) {
  double t = seconds(CLOCK_THREAD_CPUTIME_ID);

  (void)multiply_add(1000000);
  return seconds(CLOCK_THREAD_CPUTIME_ID) - t;
}

/* --- the same on several threads ------------------------------------------ */

typedef struct team {
  int n;
  double (*fn)(int thread); /* work of one run, in units */
  pthread_barrier_t barrier;
  double rates[MAX_THREADS];
} team;

typedef struct member {
  team *team;
  int index;
} member;

enum { TURNS = 5 };

/* The best turn counts: other load only ever takes away. */
static void *member_main(void *arg) {
  member *m = arg;
  team *t = m->team;
  int i;

  (void)t->fn(m->index);
  t->rates[m->index] = 0;
  for (i = 0; i < TURNS; i++) {
    double begin = 0;
    double units = 0;
    double rate = 0;

    pthread_barrier_wait(&t->barrier);
    begin = seconds(CLOCK_MONOTONIC);
    units = t->fn(m->index);
    rate = units / (seconds(CLOCK_MONOTONIC) - begin);
    if (rate > t->rates[m->index]) t->rates[m->index] = rate;
  }
  return NULL;
}

static double together(int n, double (*fn)(int thread)) {
  static team t;
  pthread_t threads[MAX_THREADS];
  member members[MAX_THREADS];
  double sum = 0;
  int i;

  if (n < 1) n = 1;
  if (n > MAX_THREADS) n = MAX_THREADS;
  t.n = n;
  t.fn = fn;
  pthread_barrier_init(&t.barrier, NULL, (unsigned)n);
  for (i = 0; i < n; i++) {
    members[i] = (member){&t, i};
    pthread_create(&threads[i], NULL, member_main, &members[i]);
  }
  for (i = 0; i < n; i++) {
    pthread_join(threads[i], NULL);
    sum += t.rates[i];
  }
  pthread_barrier_destroy(&t.barrier);
  return sum * 1e-9;
}

static double fma_turn(int thread) {
  const int64_t rounds = 400000;

  (void)thread;
  return multiply_add(rounds) * (double)rounds;
}

enum { STREAM = 16 << 20 }; /* floats: 64 MiB for each of two arrays */

static float *stream[MAX_THREADS][2];

static void stream_arrays(int thread) {
  if (stream[thread][0] != NULL) return;
  stream[thread][0] = array(STREAM, 0.1f);
  stream[thread][1] = array(STREAM, 0.2f);
}

CLONES FUSED static void add_to(float *restrict a, const float *restrict b,
                                int64_t n) {
  for (int64_t i = 0; i < n; i++) a[i] += b[i];
}

static double add_turn(int thread) {
  stream_arrays(thread);
  add_to(stream[thread][0], stream[thread][1], STREAM);
  return 3.0 * STREAM * sizeof(float);
}

static double copy_turn(int thread) {
  stream_arrays(thread);
  memcpy(stream[thread][0], stream[thread][1], STREAM * sizeof(float));
  return 2.0 * STREAM * sizeof(float);
}

/* --- waking a thread ------------------------------------------------------ */

static struct {
  _Alignas(64) atomic_int ask;
  _Alignas(64) atomic_int answer;
} ping;

static void sleep_while(atomic_int *word, int value) {
  (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void post(atomic_int *word, int value) {
  atomic_store(word, value);
  (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *echo(void *arg) {
  int seen = 0;

  (void)arg;
  for (;;) {
    int ask = 0;

    while ((ask = atomic_load(&ping.ask)) == seen) sleep_while(&ping.ask, seen);
    seen = ask;
    post(&ping.answer, seen);
    if (seen < 0) return NULL;
  }
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;

  return x < y ? -1 : x > y;
}

static double futex_trip(void) {
  enum { N = 101 };
  double times[N];
  pthread_t thread;
  int i;

  atomic_store(&ping.ask, 0);
  atomic_store(&ping.answer, 0);
  pthread_create(&thread, NULL, echo, NULL);
  for (i = 1; i <= N; i++) {
    double t = 0;
    int answer = 0;

    usleep(200);
    t = seconds(CLOCK_MONOTONIC);
    post(&ping.ask, i);
    while ((answer = atomic_load(&ping.answer)) != i)
      sleep_while(&ping.answer, answer);
    times[i - 1] = seconds(CLOCK_MONOTONIC) - t;
  }
  post(&ping.ask, -1);
  pthread_join(thread, NULL);
  qsort(times, N, sizeof *times, by_value);
  return times[N / 2];
}

/* --- elementwise ---------------------------------------------------------- */

enum { ARRAYS = 6 };

/* All arrays are input and output by turns; NAN never comes up. */
typedef struct arrays {
  float *p[ARRAYS];
  int64_t n;
} arrays;

/* y = (relu(x * a + b))^2 - x */
CLONES FUSED static void chain(const arrays *v) {
  const float *restrict x = v->p[0];
  const float *restrict a = v->p[1];
  const float *restrict b = v->p[2];
  float *restrict y = v->p[3];

  for (int64_t i = 0; i < v->n; i++) {
    float t = x[i] * a[i] + b[i];

    t = t > 0 ? t : 0;
    y[i] = t * t - x[i];
  }
}

#define LOOP(to, expression)                             \
  for (int64_t i = 0; i < v->n; i++) to[i] = expression; \
  __asm__ volatile("" ::: "memory")

CLONES FUSED static void steps(const arrays *v) {
  const float *restrict x = v->p[0];
  const float *restrict a = v->p[1];
  const float *restrict b = v->p[2];
  float *restrict s = v->p[3];
  float *restrict t = v->p[4];

  LOOP(s, x[i] * a[i]);
  LOOP(t, s[i] + b[i]);
  LOOP(s, t[i] > 0 ? t[i] : 0);
  LOOP(t, s[i] * s[i]);
  LOOP(s, t[i] - x[i]);
}

CLONES FUSED static void sgd(const arrays *v) {
  float *restrict w = v->p[0];
  const float *restrict g = v->p[1];

  for (int64_t i = 0; i < v->n; i++) w[i] -= 1e-9f * g[i];
}

CLONES FUSED static void momentum(const arrays *v) {
  float *restrict w = v->p[0];
  const float *restrict g = v->p[1];
  float *restrict m = v->p[2];

  for (int64_t i = 0; i < v->n; i++) {
    m[i] = 0.9f * m[i] - 1e-9f * g[i];
    w[i] += m[i];
  }
}

CLONES FUSED static void adam(const arrays *v) {
  float *restrict w = v->p[0];
  const float *restrict g = v->p[1];
  float *restrict m = v->p[2];
  float *restrict s = v->p[3];

  for (int64_t i = 0; i < v->n; i++) {
    m[i] += (g[i] - m[i]) * 0.1f;
    s[i] += (g[i] * g[i] - s[i]) * 0.001f;
    w[i] -= 1e-9f * m[i] / (sqrtf(s[i]) + 1e-7f);
  }
}

/* About 20 ms of calls, so that short ones are seen at all. */
static double elementwise(void (*fn)(const arrays *), int64_t n) {
  static arrays v;
  double begin = 0;
  double t = 0;
  int64_t calls = 0;
  int i;

  if (v.n != n) {
    for (i = 0; i < ARRAYS; i++) {
      free(v.p[i]);
      v.p[i] = array(n, 0.01f * (float)(i + 1));
    }
    v.n = n;
  }
  fn(&v);
  begin = seconds(CLOCK_THREAD_CPUTIME_ID);
  do {
    int64_t more = calls > 0 ? calls : 1;

    for (calls += more; more > 0; more--) fn(&v);
    t = seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
  } while (t < 0.02);
  return t / (double)calls;
}

/* --- other programs ------------------------------------------------------- */

static double at(struct timeval t) {
  return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static void spawn(const char *command) {
  double begin = seconds(CLOCK_MONOTONIC);
  struct rusage usage;
  int status = 0;
  pid_t child = fork();

  if (child == 0) {
    int null = open("/dev/null", O_RDWR);

    dup2(null, 0);
    dup2(null, 1);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0) {
    printf("failed: %s\n", command);
    return;
  }
  printf("%.9g %.9g %.9g\n", seconds(CLOCK_MONOTONIC) - begin,
         at(usage.ru_utime) + at(usage.ru_stime),
         (double)usage.ru_maxrss / 1024);
}

/* --- files ---------------------------------------------------------------- */

/* A file that vanishes with the program, MIB of it, and memory for them. */
static int file_of(int64_t mib, char **memory_p) {
  static char *memory;
  static int64_t size;
  static FILE *file;

  if (file == NULL) file = tmpfile();
  if (size != mib) {
    free(memory);
    memory = need((size_t)mib << 20);
    memset(memory, 1, (size_t)mib << 20);
    size = mib;
  }
  *memory_p = memory;
  return file != NULL ? fileno(file) : -1;
}

/* The file takes new blocks each time, as a new one does. */
static double write_file(int64_t mib) {
  size_t n = (size_t)mib << 20;
  char *memory = NULL;
  int file = file_of(mib, &memory);
  double begin = seconds(CLOCK_MONOTONIC);
  ssize_t done = 1;
  size_t at;

  if (file < 0 || ftruncate(file, 0) != 0) return -1;
  for (at = 0; at < n && done > 0; at += (size_t)done)
    done = pwrite(file, memory + at, n - at, (off_t)at);
  if (done <= 0 || fsync(file) != 0) return -1;
  return seconds(CLOCK_MONOTONIC) - begin;
}

static double read_file(int64_t mib) {
  size_t n = (size_t)mib << 20;
  char *memory = NULL;
  int file = file_of(mib, &memory);
  struct stat about;
  double begin = 0;
  ssize_t done = 1;
  size_t at;

  if (file < 0 || fstat(file, &about) != 0) return -1;
  if (about.st_size != (off_t)n && write_file(mib) < 0) return -1;
  begin = seconds(CLOCK_MONOTONIC);
  for (at = 0; at < n && done > 0; at += (size_t)done)
    done = pread(file, memory + at, n - at, (off_t)at);
  return done > 0 ? seconds(CLOCK_MONOTONIC) - begin : -1;
}

/* --- requests ------------------------------------------------------------- */

typedef struct request {
  const char *name;
  double (*plain)(void);
  double (*turn)(int thread);
  void (*loop)(const arrays *);
  double (*file)(int64_t mib); /* negative: not possible */
} request;

static const request requests[] = {
    {.name = "quiet", .plain = quiet},
    {.name = "futex", .plain = futex_trip},
    {.name = "fma", .turn = fma_turn},
    {.name = "add", .turn = add_turn},
    {.name = "copy", .turn = copy_turn},
    {.name = "chain", .loop = chain},
    {.name = "steps", .loop = steps},
    {.name = "sgd", .loop = sgd},
    {.name = "momentum", .loop = momentum},
    {.name = "adam", .loop = adam},
    {.name = "write", .file = write_file},
    {.name = "read", .file = read_file},
};

static void answer(char *name) {
  char *argument = strchr(name, ' ');
  size_t i;

  if (argument != NULL) *argument++ = '\0';
  if (strcmp(name, "spawn") == 0 && argument != NULL) {
    spawn(argument);
    return;
  }
  for (i = 0; i < sizeof requests / sizeof requests[0]; i++) {
    const request *r = &requests[i];
    int64_t n = argument != NULL ? strtoll(argument, NULL, 10) : 1;
    double value = 0;

    if (strcmp(name, r->name) != 0) continue;
    if (r->plain != NULL) value = r->plain();
    if (r->turn != NULL) value = together((int)n, r->turn);
    if (r->loop != NULL) value = elementwise(r->loop, n);
    if (r->file != NULL) value = r->file(n);
    if (value < 0) printf("failed: %s: %s\n", name, strerror(errno));
    if (value >= 0) printf("%.9g\n", value);
    return;
  }
  printf("failed: no such request: %s\n", name);
}

int main(void) {
  char line[4096];

  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    if (strcmp(line, "quit") == 0) break;
    answer(line);
    fflush(stdout);
  }
  return 0;
}
