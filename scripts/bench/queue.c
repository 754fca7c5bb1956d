/* Queues, waiting and memory against what the machine can do, side by side.
**
** Prints one line for each measurement: name, our time, the reference's, their
** ratio and the goal. References are measured here and now: two threads
** that spin on one word, two that sleep on futexes, malloc. The best of
** repeated runs counts. Links the static library.
**
** usage: queue [DEVICES [ROUNDS]]    (default: 2 15) */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/device.h"

/* Repetitions of a measurement. */
static int rounds = 15;

static tfd_device *device(int i) {
  tfd_device *d = NULL;

  if (tfd_device_at("CPU", i, &d) != TFD_OK) {
    fprintf(stderr, "queue: %s\n", tfd_error_message());
    exit(1);
  }
  return d;
}

static void check(int rc) {
  if (rc == TFD_OK) return;
  fprintf(stderr, "queue: %s\n", tfd_error_message());
  exit(1);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;

  return x < y ? -1 : x > y;
}

static double median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, compare);
  return v[n / 2];
}

/* Fewest nanoseconds of fn(arg), which returns the time for one unit: other
** load only ever adds. */
static double measure(double (*fn)(void *), void *arg) {
  double best = fn(arg); /* warms too */
  int i;

  for (i = 0; i < rounds; i++) {
    double t = fn(arg);

    if (t < best) best = t;
  }
  return best;
}

static void line(const char *name, double ours, double reference,
                 const char *what, const char *goal) {
  printf("%-34s %10.1f ns  %-22s %10.1f ns  ratio %5.2f  goal %s\n", name, ours,
         what, reference, ours / reference, goal);
}

/* --- hand-over ------------------------------------------------------------ */

static int nothing(const tfd__call *call) {
  (void)call;
  return TFD_OK;
}

static tfd__call empty_call = {
    .name = "nothing", .kernel = nothing, .replica = -1};

/* Submit one call and wait for it. */
static double round_trip(void *arg) {
  tfd_device *d = arg;
  enum { N = 2000 };
  int64_t t = tfd__now_ns();
  int i;

  for (i = 0; i < N; i++) {
    check(tfd__stream_submit(d, &empty_call));
    check(tfd__stream_wait(d, UINT64_MAX, TFD_FOREVER));
  }
  return (double)(tfd__now_ns() - t) / N;
}

/* The same when the worker has gone to sleep before each call. */
static double parked_trip(void *arg) {
  tfd_device *d = arg;
  enum { N = 60 };
  double v[N];
  int i;

  for (i = 0; i < N; i++) {
    int64_t t = 0;

    usleep(300);
    t = tfd__now_ns();
    check(tfd__stream_submit(d, &empty_call));
    check(tfd__stream_wait(d, UINT64_MAX, TFD_FOREVER));
    v[i] = (double)(tfd__now_ns() - t);
  }
  return median(v, N);
}

static struct {
  _Alignas(64) atomic_int ask;
  _Alignas(64) atomic_int answer;
} ping;

static void *spin_side(void *arg) {
  int seen = 0;

  (void)arg;
  for (;;) {
    int ask = 0;

    while ((ask = atomic_load(&ping.ask)) == seen) continue;
    seen = ask;
    atomic_store(&ping.answer, seen);
    if (seen < 0) return NULL;
  }
}

static double raw_spin(void *arg) {
  enum { N = 20000 };
  pthread_t thread;
  int64_t t = 0;
  int i;

  (void)arg;
  atomic_store(&ping.ask, 0);
  pthread_create(&thread, NULL, spin_side, NULL);
  atomic_store(&ping.ask, 1);
  while (atomic_load(&ping.answer) != 1) continue;
  t = tfd__now_ns();
  for (i = 2; i < N + 2; i++) {
    atomic_store(&ping.ask, i);
    while (atomic_load(&ping.answer) != i) continue;
  }
  t = tfd__now_ns() - t;
  atomic_store(&ping.ask, -1);
  pthread_join(thread, NULL);
  return (double)t / N;
}

static void futex_wait(atomic_int *word, int value) {
  (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_int *word) {
  (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *futex_side(void *arg) {
  int seen = 0;

  (void)arg;
  for (;;) {
    int ask = 0;

    while ((ask = atomic_load(&ping.ask)) == seen) futex_wait(&ping.ask, seen);
    seen = ask;
    atomic_store(&ping.answer, seen);
    futex_wake(&ping.answer);
    if (seen < 0) return NULL;
  }
}

/* The other side sleeps; so does this one until the answer, or it spins as our
** host does when a core is free. */
static double raw_futex(void *arg) {
  bool spin = arg != NULL;
  enum { N = 60 };
  double v[N];
  pthread_t thread;
  int i;

  atomic_store(&ping.ask, 0);
  atomic_store(&ping.answer, 0);
  pthread_create(&thread, NULL, futex_side, NULL);
  for (i = 1; i <= N; i++) {
    int64_t t = 0;
    int answer = 0;

    usleep(300);
    t = tfd__now_ns();
    atomic_store(&ping.ask, i);
    futex_wake(&ping.ask);
    while ((answer = atomic_load(&ping.answer)) != i) {
      if (!spin) futex_wait(&ping.answer, answer);
    }
    v[i - 1] = (double)(tfd__now_ns() - t);
  }
  atomic_store(&ping.ask, -1);
  futex_wake(&ping.ask);
  pthread_join(thread, NULL);
  return median(v, N);
}

/* --- enqueue -------------------------------------------------------------- */

/* A call with three views of rank 2, as a matrix product has. */
static double enqueue(void *arg) {
  tfd_device *d = arg;
  enum { N = 20000, BATCH = 60 };
  int64_t dims[2] = {64, 512};
  int64_t ints[2] = {0, 1};
  tfd__view views[3];
  tfd__call call = {.name = "nothing",
                    .kernel = nothing,
                    .views = views,
                    .ints = ints,
                    .in_n = 2,
                    .out_n = 1,
                    .ints_n = 2,
                    .replica = -1};
  int64_t spent = 0;
  int i;

  for (i = 0; i < 3; i++) check(tfd__view_set(&views[i], 1, dims, 2));
  for (i = 0; i < N; i += BATCH) {
    int64_t t = tfd__now_ns();
    int k;

    for (k = 0; k < BATCH; k++) check(tfd__stream_submit(d, &call));
    spent += tfd__now_ns() - t;
    check(tfd__stream_wait(d, UINT64_MAX, TFD_FOREVER));
  }
  return (double)spent / N;
}

/* What any queue must do: write the command's bytes. */
static double copy_command(void *arg) {
  static char ring[1 << 18];
  enum { N = 20000, BYTES = 576 };
  char command[BYTES];
  size_t at = 0;
  int64_t t = 0;
  int i;

  (void)arg;
  memset(command, 1, sizeof command);
  t = tfd__now_ns();
  for (i = 0; i < N; i++) {
    memcpy(ring + at, command, sizeof command);
    __asm__ volatile("" ::: "memory");
    at = (at + 576) % (sizeof ring - 576);
  }
  return (double)(tfd__now_ns() - t) / N;
}

/* --- the schedule of two replicas ----------------------------------------- */

#define OPS 30
#define OP_NS 50000

static int64_t op_loops;

static void spin_loops(int64_t n) {
  volatile double x = 1;

  while (n-- > 0) x = x * 1.0000001;
}

static int work(const tfd__call *call) {
  (void)call;
  spin_loops(op_loops);
  return TFD_OK;
}

static double loops_for(int64_t n) {
  int64_t t = tfd__now_ns();

  spin_loops(n);
  return (double)(tfd__now_ns() - t);
}

static void calibrate(void) {
  double v[9];
  int i;

  for (i = 0; i < 9; i++) v[i] = loops_for(1000000);
  qsort(v, 9, sizeof *v, compare);
  op_loops = (int64_t)(1e6 * OP_NS / v[0]);
}

static tfd__call work_call = {.name = "work", .kernel = work, .replica = -1};

/* One step: both devices get their ops, the host takes 300 ns for each, then
** waits for both, as reading the loss does. */
static double step(void *arg) {
  int n = *(int *)arg;
  enum { STEPS = 2 };
  int64_t t = tfd__now_ns();
  int s;
  int d;
  int i;

  for (s = 0; s < STEPS; s++) {
    for (d = 0; d < n; d++) {
      for (i = 0; i < OPS; i++) {
        int64_t until = tfd__now_ns() + 250;

        while (tfd__now_ns() < until) continue;
        check(tfd__stream_submit(device(d), &work_call));
      }
    }
    for (d = 0; d < n; d++) {
      check(tfd__stream_wait(device(d), UINT64_MAX, TFD_FOREVER));
    }
  }
  return (double)(tfd__now_ns() - t) / STEPS;
}

/* The same work without any queue: each thread runs its ops. */
static void *bare_side(void *arg) {
  int i;

  (void)arg;
  for (i = 0; i < 2 * OPS; i++) spin_loops(op_loops);
  return NULL;
}

static double bare_step(void *arg) {
  int n = *(int *)arg;
  pthread_t threads[64];
  int64_t t = tfd__now_ns();
  int i;

  for (i = 1; i < n; i++) {
    pthread_create(&threads[i], NULL, bare_side, NULL);
  }
  (void)bare_side(NULL);
  for (i = 1; i < n; i++) pthread_join(threads[i], NULL);
  return (double)(tfd__now_ns() - t) / 2;
}

/* Short turns in alternation, the best of each: both meet the same load. */
static void schedule_lines(int devices) {
  double ideal = (double)OPS * OP_NS;
  double ours = step(&devices);
  double bare = bare_step(&devices);
  int i;

  if (devices > tfd__cores()) ideal = ideal * devices / tfd__cores();
  for (i = 0; i < 20 * rounds; i++) {
    double a = step(&devices);
    double b = bare_step(&devices);

    if (a < ours) ours = a;
    if (b < bare) bare = b;
  }
  line("step of 30 ops of 50 us each", ours, bare, "bare threads", "<= 1.03");
  line("step of 30 ops of 50 us each", ours, ideal, "ideal", "<= 1.03");
}

/* --- memory --------------------------------------------------------------- */

static double pool_pair(void *arg) {
  size_t bytes = *(size_t *)arg;
  enum { N = 20000 };
  int64_t t = tfd__now_ns();
  int i;

  for (i = 0; i < N; i++) {
    tfd__buffer *b = NULL;

    check(tfd__buffer_new(device(0), bytes, &b));
    tfd__release(b);
  }
  return (double)(tfd__now_ns() - t) / N;
}

static double malloc_pair(void *arg) {
  size_t bytes = *(size_t *)arg;
  enum { N = 20000 };
  int64_t t = tfd__now_ns();
  int i;

  for (i = 0; i < N; i++) {
    void *p = malloc(bytes);

    __asm__ volatile("" ::"r"(p) : "memory");
    free(p);
  }
  return (double)(tfd__now_ns() - t) / N;
}

/* Eight live blocks that are written, as the temporaries of a step. */
static double pool_touch(void *arg) {
  size_t bytes = *(size_t *)arg;
  enum { N = 20 };
  int64_t t = tfd__now_ns();
  tfd__buffer *b[8];
  int i;
  int k;

  for (i = 0; i < N; i++) {
    for (k = 0; k < 8; k++) {
      check(tfd__buffer_new(device(0), bytes, &b[k]));
      memset(b[k]->data, k, bytes);
    }
    for (k = 0; k < 8; k++) tfd__release(b[k]);
  }
  return (double)(tfd__now_ns() - t) / (8 * N);
}

static double malloc_touch(void *arg) {
  size_t bytes = *(size_t *)arg;
  enum { N = 20 };
  int64_t t = tfd__now_ns();
  char *b[8];
  int i;
  int k;

  for (i = 0; i < N; i++) {
    for (k = 0; k < 8; k++) {
      b[k] = malloc(bytes);
      memset(b[k], k, bytes);
    }
    for (k = 0; k < 8; k++) free(b[k]);
  }
  return (double)(tfd__now_ns() - t) / (8 * N);
}

static long faults(void) {
  struct rusage usage;

  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

static void memory_lines(void) {
  static const size_t sizes[] = {64, 4096, 131072, 1048576, 8388608};
  char name[64];
  size_t i;

  for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    size_t bytes = sizes[i];
    long before = 0;

    snprintf(name, sizeof name, "buffer new+release %zu B", bytes);
    line(name, measure(pool_pair, &bytes), measure(malloc_pair, &bytes),
         "malloc+free", "<= 80 ns");
    if (bytes < 131072) continue;
    snprintf(name, sizeof name, "8 buffers written %zu B", bytes);
    line(name, measure(pool_touch, &bytes), measure(malloc_touch, &bytes),
         "malloc", "< 1 from 1 MiB");
    before = faults();
    (void)pool_touch(&bytes);
    printf("%-34s %10ld faults in a pass%*sgoal 0\n", name, faults() - before,
           39, "");
  }
}

int main(int argc, char **argv) {
  int devices = argc > 1 ? atoi(argv[1]) : 2;
  int one = 1;

  if (argc > 2) rounds = atoi(argv[2]);
  check(tfd_config_set_cpu_devices(devices < 2 ? 2 : devices));
  check(tfd_config_set_queue_mode(TFD_QUEUE_QUEUED));
  printf("cores %d, devices %d, %d threads each\n", tfd__cores(), devices,
         tfd_device_threads(device(0)));
  line("round trip, caller runs", measure(round_trip, device(0)),
       measure(raw_spin, NULL), "two spinning threads", "<= 1");
  line("round trip, worker spins", measure(round_trip, device(1)),
       measure(raw_spin, NULL), "two spinning threads", "<= 300 ns");
  line("round trip, worker parked", measure(parked_trip, device(1)),
       measure(raw_futex, NULL), "two futexes", "<= 1.10");
  line("round trip, worker parked", measure(parked_trip, device(1)),
       measure(raw_futex, &one), "one futex, host spins", "");
  line("enqueue 3 views, own queue", measure(enqueue, device(0)),
       measure(copy_command, NULL), "copy of 576 B", "<= 50 ns");
  line("enqueue 3 views, worker drains", measure(enqueue, device(1)),
       measure(copy_command, NULL), "copy of 576 B", "");
  calibrate();
  schedule_lines(devices);
  memory_lines();
  return 0;
}
