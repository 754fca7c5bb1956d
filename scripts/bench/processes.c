/* Our side of the benchmarks of sums between processes.
**
** usage: processes PROVIDER PROCESSES     reads requests from stdin, answers
**                                         each:
**   allreduce BYTES     wall s of an all_reduce in place, the buffers rewritten
**                       before each: the median of many
**   lent BYTES          the same in memory that the group lends
**   memory BYTES        wall s of adding so many bytes to as many others, in
**                       all processes at once, until the last has: the median
**   quit                ends the program
** The other processes are forks, who sleep on a pipe between requests; with the
** provider mpi they are mpirun's, who hear of them by it. Where there are as
** many cores each has one, as mpirun's have. Links the static library. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "comm/comm.h"
#include "pin.h"

/* Seconds of a wait that say nothing: while others are asked all are stopped. */
enum { WARM = 3, MOST = 16, TURNS = 400, LONG_TURNS = 21, QUIET = 86400 };

static void check(int rc) {
  if (rc == TFD_OK) return;
  printf("failed: %s\n", tfd_error_message());
  exit(1);
}

/* --- one request ---------------------------------------------------------- */

static int compare(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;

  return (x > y) - (x < y);
}

static double all_reduce(tfd__group *g, long long bytes, bool lent) {
  int64_t n = bytes / 4;
  int turns = bytes > 1 << 20 ? LONG_TURNS : TURNS;
  double spent[TURNS];
  tfd__buffer *b = NULL;
  tfd__view v;
  tfd__piece p = {NULL, &v};
  tfd__collective barrier = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};
  tfd__collective sum = {.kind = TFD_COLLECTIVE_ALL_REDUCE,
                         .op = TFD_REDUCE_SUM,
                         .values = 1,
                         .what = "sum",
                         .in = &p,
                         .out = &p};

  check(lent ? tfd__group_buffer(g, 0, (size_t)bytes, &b)
             : tfd__buffer_new(g->devices[0], (size_t)bytes, &b));
  check(tfd__view_set(&v, TFD_FLOAT32, &n, 1));
  v.data = b->data;
  p.buffer = b;
  for (int turn = 0; turn < turns + WARM; turn++) {
    float *x = b->data;
    int64_t start;

    for (int64_t i = 0; i < n; i++) x[i] = 1.0f;
    check(tfd__group_run(g, &barrier, 0));
    start = tfd__now_ns();
    check(tfd__group_run(g, &sum, 0));
    if (turn >= WARM)
      spent[turn - WARM] = (double)(tfd__now_ns() - start) * 1e-9;
    if (x[n / 2] != (float)g->size) {
      printf("failed: the sum is %g\n", x[n / 2]);
      exit(1);
    }
  }
  tfd__release(b);
  qsort(spent, (size_t)turns, sizeof *spent, compare);
  return spent[turns / 2];
}

static double *doubles_of(long long bytes) {
  double *x = calloc(1, (size_t)bytes);

  if (x != NULL) return x;
  printf("failed: out of memory\n");
  exit(1);
}

static double memory(tfd__group *g, long long bytes) {
  int64_t n = bytes / (int64_t)sizeof(double);
  int turns = bytes > 1 << 20 ? LONG_TURNS : TURNS;
  double spent[TURNS];
  double *a = doubles_of(bytes);
  double *b = doubles_of(bytes);
  tfd__collective barrier = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};

  for (int turn = 0; turn < turns + WARM; turn++) {
    int64_t start;

    for (int64_t i = 0; i < n; i++) b[i] = turn;
    check(tfd__group_run(g, &barrier, 0));
    start = tfd__now_ns();
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
    check(tfd__group_run(g, &barrier, 0));
    if (turn >= WARM) {
      spent[turn - WARM] = (double)(tfd__now_ns() - start) * 1e-9;
    }
  }
  if (n > 0 && a[n / 2] < 0) printf("failed: the sum is %g\n", a[n / 2]);
  free(a);
  free(b);
  qsort(spent, (size_t)turns, sizeof *spent, compare);
  return spent[turns / 2];
}

/* --- processes ------------------------------------------------------------ */

static tfd__group *join(const char *provider, int process, int processes,
                        int pid) { /* of the first process */
  static char text[MOST][32];
  const char *addresses[MOST];
  tfd__network network = {
      .process = process, .processes = processes, .addresses = addresses};
  tfd_device *device = NULL;
  tfd__group_config config = {.provider = provider,
                              .devices = &device,
                              .local = 1,
                              .base = process,
                              .size = processes,
                              .network = &network,
                              .stall = QUIET};
  tfd__group *g = NULL;

  /* Two hosts, for the provider that goes by hosts. */
  for (int i = 0; i < processes; i++) {
    bool second = strcmp(provider, "hierarchical") == 0 && i >= processes / 2;

    (void)snprintf(text[i], sizeof text[i], "127.%d.%d.%d:%d",
                   (second ? 201 : 1) + (pid >> 16) % 50, (pid >> 8) & 255,
                   1 + pid % 250, 25000 + i);
    addresses[i] = text[i];
  }
  check(tfd_device_at("CPU", 0, &device));
  check(tfd__group_new(&config, &g));
  return g;
}

/* What is asked for, and of how many bytes, in one number. */
enum { REQUESTS = 3 };
static const char *const requests[REQUESTS] = {"allreduce", "lent", "memory"};

static double serve(tfd__group *g, long long request) {
  long long bytes = request / REQUESTS;

  if (request % REQUESTS == 2) return memory(g, bytes);
  return all_reduce(g, bytes, request % REQUESTS == 1);
}

/* From the first process, or to it. */
static long long pass_on(tfd__group *g, long long request) {
  static tfd__buffer *b;
  int64_t one = 1;
  tfd__view v;
  tfd__piece p = {NULL, &v};
  tfd__collective c = {.kind = TFD_COLLECTIVE_BROADCAST,
                       .values = 1,
                       .what = "request",
                       .in = &p,
                       .out = &p};

  if (b == NULL) check(tfd__buffer_new(g->devices[0], sizeof request, &b));
  check(tfd__view_set(&v, TFD_INT64, &one, 1));
  v.data = b->data;
  p.buffer = b;
  if (g->base == 0) memcpy(b->data, &request, sizeof request);
  check(tfd__group_run(g, &c, tfd__deadline_in(86400)));
  memcpy(&request, b->data, sizeof request);
  return request;
}

/* Of the others: requests come as numbers, 0 is the end. */
static void follow(tfd__group *g, int in) {
  long long request = 0;

  while (in < 0 && (request = pass_on(g, 0)) != 0) (void)serve(g, request);
  while (in >= 0 &&
         read(in, &request, sizeof request) == (ssize_t)sizeof request &&
         request != 0) {
    (void)serve(g, request);
  }
}

static void tell(tfd__group *g, const int *out, int n, long long request) {
  if (out[1] == 0) (void)pass_on(g, request);
  for (int i = 1; i < n && out[1] > 0; i++) {
    if (write(out[i], &request, sizeof request) < 0) exit(1);
  }
}

static void lead(tfd__group *g, const int *out, int n) {
  char line[256];
  long long bytes = 0;

  while (fgets(line, sizeof line, stdin) != NULL &&
         strncmp(line, "quit", 4) != 0) {
    char word[16] = "";
    int r = 0;

    (void)sscanf(line, "%15s %lld", word, &bytes);
    while (r < REQUESTS && strcmp(word, requests[r]) != 0) r++;
    if (r == REQUESTS || bytes < 4) {
      printf("failed: no such request: %s", line);
    } else {
      tell(g, out, n, bytes * REQUESTS + r);
      printf("%.9g\n", serve(g, bytes * REQUESTS + r));
    }
    (void)fflush(stdout);
  }
  tell(g, out, n, 0);
}

static int number_of(const char *name) {
  const char *text = getenv(name);

  return text == NULL ? 0 : atoi(text);
}

int main(int argc, char **argv) {
  int n = argc > 2 ? atoi(argv[2]) : 0;
  bool started = n > 0 && strcmp(argv[1], "mpi") == 0;
  int out[MOST] = {0};
  int in = -1;
  int me = 0;
  int pid = (int)getpid();
  tfd__group *g = NULL;

  if (n < 1 || n > MOST) {
    fprintf(stderr, "usage: processes PROVIDER PROCESSES\n");
    return 2;
  }
  if (started) me = number_of("OMPI_COMM_WORLD_RANK");
  for (int i = 1; i < n && me == 0 && !started; i++) {
    int ends[2];

    if (pipe(ends) != 0) return 1;
    if (fork() == 0) {
      (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
      me = i;
      in = ends[0];
      (void)close(ends[1]);
    } else {
      out[i] = ends[1];
      (void)close(ends[0]);
    }
  }
  if (!started) pin_process(me, n);
  g = join(argv[1], me, n, pid);
  if (me == 0) {
    lead(g, out, n);
  } else {
    follow(g, in);
  }
  tfd__release(g);
  while (me == 0 && wait(NULL) > 0) continue;
  return 0;
}
