/* Groups over MPI. Without arguments: start this program under each MPI's
** mpirun, once for each part and number of processes. With the name of a part
** and the number of the process that asks for it: be one of those processes. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm_addresses.h"
#include "comm_cases.h"
#include "comm_scene.h"

/* --- one of the processes --------------------------------------------------
 */

/* What cmocka's assertions do would keep the others waiting for long. */
#define CHECK(x)                                                         \
  do {                                                                   \
    if (!(x)) {                                                          \
      (void)fprintf(stderr, "%s:%d, process %d: %s\n  %s\n", __FILE__,   \
                    __LINE__, network.process, #x, tfd_error_message()); \
      return 1;                                                          \
    }                                                                    \
  } while (0)

enum { LOCAL = 2, ENDED = 9 };

static tfd__network network;

static int open_world_with(const char *provider, int local, world *w) {
  static tfd_device *devices[LOCAL];
  tfd__group_config config = {.provider = provider,
                              .devices = devices,
                              .local = local,
                              .base = network.process * local,
                              .size = network.processes * local,
                              .network = &network};
  int i;

  for (i = 0; i < local; i++) devices[i] = device(i);
  return tfd__group_new(&config, &w->group);
}

static int open_world(int local, world *w) {
  return open_world_with("mpi", local, w);
}

static int all_cases(int local) {
  bool is_long = getenv("TFD_LONG") != NULL;
  world w = {.small = !is_long && (network.processes > 2 || local > 1)};

  CHECK(open_world(local, &w) == TFD_OK);
  CHECK(strcmp("mpi", w.group->provider->name) == 0);
  check_world(&w);
  tfd__release(w.group);
  return tfd_live_handles(TFD_HANDLE_BUFFER) == 0 ? 0 : 2;
}

static int cases(void) {
  return all_cases(1);
}

static int long_cases(void) {
  world w = {0};

  CHECK(open_world(1, &w) == TFD_OK);
  check_long_values(&w);
  tfd__release(w.group);
  return 0;
}

static int cases_of_two(void) {
  return all_cases(2);
}

/* One all_reduce of n elements; its status. */
static int sum_up(const world *w, pieces *p, tfd_reduce_op op) {
  tfd__collective c = collective(TFD_COLLECTIVE_ALL_REDUCE, op, p, p);

  return tfd__group_run(w->group, &c, tfd__deadline_in(60));
}

static int sum_of(const world *w, int64_t n) {
  pieces p;
  int rc;

  make_pieces(w, &p, TFD_FLOAT32, n);
  fill_pieces(w, &p, TFD_REDUCE_SUM);
  rc = sum_up(w, &p, TFD_REDUCE_SUM);
  drop_pieces(w, &p);
  return rc;
}

/* Does every process have the same bytes in p? */
static bool all_equal(const world *w, const pieces *p) {
  int64_t n = p->list[0].view->numel;
  size_t bytes = tfd__view_bytes(p->list[0].view);
  char *got = malloc(2 * bytes);
  pieces all;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_GATHER, TFD_REDUCE_SUM, p, &all);
  bool same = got != NULL;
  int r;

  make_pieces(w, &all, p->list[0].view->dtype, n * w->group->size);
  same = same && tfd__group_run(w->group, &c, 0) == TFD_OK &&
         tfd__host_read(p->list[0].buffer, 0, got, bytes) == TFD_OK;
  for (r = 0; same && r < w->group->size; r++) {
    same = tfd__host_read(all.list[0].buffer, (size_t)r * bytes, got + bytes,
                          bytes) == TFD_OK &&
           memcmp(got, got + bytes, bytes) == 0;
  }
  drop_pieces(w, &all);
  free(got);
  return same;
}

static void put(const pieces *p, const float *x, int64_t n) {
  assert_int_equal(
      TFD_OK, tfd__host_write(p->list[0].buffer, 0, x, (size_t)n * sizeof *x));
}

/* Sums that depend on their order: the same everywhere, and each time. */
static int sums_have_the_same_bits(void) {
  enum { N = 70001 };
  static float x[N];
  static float first[N];
  static float again[N];
  world w = {0};
  pieces p;
  int turn;
  int j;

  CHECK(open_world(1, &w) == TFD_OK);
  make_pieces(&w, &p, TFD_FLOAT32, N);
  for (turn = 0; turn < 3; turn++) {
    for (j = 0; j < N; j++) {
      x[j] = sinf((float)(j * 7 + network.process)) *
             powf(10, (float)((j + network.process) % 7));
    }
    put(&p, x, N);
    CHECK(sum_up(&w, &p, TFD_REDUCE_SUM) == TFD_OK);
    CHECK(all_equal(&w, &p));
    CHECK(tfd__host_read(p.list[0].buffer, 0, turn == 0 ? first : again,
                         sizeof first) == TFD_OK);
    CHECK(turn == 0 || memcmp(first, again, sizeof first) == 0);
  }
  drop_pieces(&w, &p);
  tfd__release(w.group);
  return 0;
}

/* Zeros of both signs and numbers that are none, in all places. */
static int extremes_have_the_same_bits(void) {
  enum { N = 81 };
  static const float values[3] = {0.0f, -0.0f, 1.0f};
  float x[N];
  world w = {0};
  pieces p;
  int op;
  int j;

  CHECK(open_world(1, &w) == TFD_OK);
  make_pieces(&w, &p, TFD_FLOAT32, N);
  for (op = TFD_REDUCE_MIN; op <= TFD_REDUCE_MAX; op++) {
    for (j = 0; j < N; j++) {
      x[j] = values[(network.process == 0 ? j : j / 3) % 3];
      if (j / 9 % (network.processes + 1) == network.process) x[j] = NAN;
    }
    put(&p, x, N);
    CHECK(sum_up(&w, &p, (tfd_reduce_op)op) == TFD_OK);
    CHECK(all_equal(&w, &p));
    CHECK(tfd__host_read(p.list[0].buffer, 0, x, sizeof x) == TFD_OK);
    CHECK(isnan(x[0]));
  }
  drop_pieces(&w, &p);
  tfd__release(w.group);
  return 0;
}

/* Begun one after the other, waited for in another order, two groups at once.
 */
static int several_under_way(void) {
  world w[2] = {{0}, {0}};
  pieces p[4];
  tfd__ticket *t[4] = {NULL};
  int i;

  for (i = 0; i < 2; i++) CHECK(open_world(1, &w[i]) == TFD_OK);
  for (i = 0; i < 4; i++) {
    tfd__collective c;

    make_pieces(&w[i % 2], &p[i], TFD_FLOAT32, 1000 + i);
    fill_pieces(&w[i % 2], &p[i], TFD_REDUCE_SUM);
    c = collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p[i], &p[i]);
    CHECK(tfd__group_begin(w[i % 2].group, &c, &t[i]) == TFD_OK);
  }
  for (i = 0; i < 4; i++) {
    int k = network.process % 2 == 0 ? i : 3 - i;

    CHECK(tfd__ticket_wait(t[k], tfd__deadline_in(60)) == TFD_OK);
    expect_run(&w[k % 2], &p[k].list[0], 0, 1000 + k, -1, 0, TFD_REDUCE_SUM);
    tfd__ticket_end(t[k]);
    drop_pieces(&w[k % 2], &p[k]);
  }
  for (i = 0; i < 2; i++) tfd__release(w[i].group);
  return 0;
}

static int no_work(const tfd__call *call) {
  (void)call;
  return TFD_OK;
}

/* More than MPI has tags for, which could all move at once: what they wait for
** runs when somebody waits. */
static int many_under_way(void) {
  enum { MANY = 1100, N = 1000 };
  static pieces p[MANY];
  static tfd__ticket *t[MANY];
  static float x[N];
  world w = {0};
  int i;
  int j;

  CHECK(open_world(1, &w) == TFD_OK);
  for (i = 0; i < MANY; i++) {
    make_pieces(&w, &p[i], TFD_FLOAT32, N);
    for (j = 0; j < N; j++) x[j] = (float)(i + j % 7);
    put(&p[i], x, N);
  }
  CHECK(submit_ints(device(0), no_work, NULL, 0) == TFD_OK);
  for (i = 0; i < MANY; i++) {
    tfd__collective c =
        collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p[i], &p[i]);

    CHECK(tfd__group_begin(w.group, &c, &t[i]) == TFD_OK);
  }
  for (i = 0; i < MANY; i++) {
    CHECK(tfd__ticket_wait(t[i], tfd__deadline_in(60)) == TFD_OK);
    tfd__ticket_end(t[i]);
    CHECK(tfd__host_read(p[i].list[0].buffer, 0, x, sizeof x) == TFD_OK);
    for (j = 0; j < N; j++) {
      CHECK(x[j] == (float)(w.group->size * (i + j % 7)));
    }
    drop_pieces(&w, &p[i]);
  }
  tfd__release(w.group);
  return 0;
}

/* Who hears of it may not be in the first sum any more: all have had it when
** the other group's barrier is over. */
static int they_run_apart(void) {
  tfd__collective c = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};
  world w = {0};
  world other = {0};
  int64_t begin = 0;

  CHECK(open_world(1, &w) == TFD_OK);
  CHECK(open_world(1, &other) == TFD_OK);
  CHECK(sum_of(&w, 10) == TFD_OK);
  CHECK(tfd__group_run(other.group, &c, tfd__deadline_in(60)) == TFD_OK);
  begin = ran_by_now();
  CHECK(sum_of(&w, network.process == 0 ? 100 : 101) != TFD_OK);
  CHECK(ran_since(begin) < 5);
  CHECK(strstr(tfd_error_message(),
               "run apart at collective 2: process 0 calls all_reduce sum of "
               "float32[100], process 1 calls all_reduce sum of "
               "float32[101]") != NULL);
  CHECK(sum_of(&w, 10) == TFD_ABORTED); /* it stays failed */
  tfd__release(w.group);
  tfd__release(other.group);
  return 0;
}

/* Process 1 has another root than the others. */
static int roots_differ(tfd__collective_kind kind) {
  tfd__collective c = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};
  int64_t begin = 0;
  char words[64];
  world w = {0};
  world other = {0};

  CHECK(open_world(1, &w) == TFD_OK);
  CHECK(open_world(1, &other) == TFD_OK);
  CHECK(tfd__group_run(other.group, &c, tfd__deadline_in(60)) == TFD_OK);
  begin = ran_by_now();
  CHECK(run_kind(&w, kind, network.process == 1 ? 1 : 0, 10, 60) != TFD_OK);
  CHECK(ran_since(begin) < 5);
  CHECK(strstr(tfd_error_message(), "run apart at collective 1") != NULL);
  (void)snprintf(words, sizeof words, "process 1 calls %s of float32[10] ",
                 tfd__collective_name(kind));
  CHECK(strstr(tfd_error_message(), words) != NULL);
  CHECK(strstr(tfd_error_message(), " rank 0 at train.lua:7") != NULL);
  CHECK(strstr(tfd_error_message(), " rank 1 at train.lua:7") != NULL);
  tfd__release(w.group);
  tfd__release(other.group);
  return 0;
}

static int gathers_differ(void) {
  return roots_differ(TFD_COLLECTIVE_GATHER);
}

static int scatters_differ(void) {
  return roots_differ(TFD_COLLECTIVE_SCATTER);
}

static int one_ends(void) {
  world w = {0};

  CHECK(open_world(1, &w) == TFD_OK);
  (void)sum_of(&w, 10); /* all are there */
  if (network.process == 0) {
    CHECK(sum_of(&w, 10) != TFD_OK);
    CHECK(strstr(tfd_error_message(),
                 "has ended while process 0 waits in collective 2: "
                 "all_reduce sum of float32[10]") != NULL);
  }
  tfd__release(w.group);
  return 0;
}

/* A sum that all begin, after which a process may be missed: for the others it
** may fail for that very reason, and they go on to the next. */
static int sum_or_next(const world *w, int who) {
  int rc = sum_of(w, 10);

  if (network.process == who) return rc;
  return rc == TFD_OK ? sum_of(w, 10) : rc;
}

static int one_aborts(void) {
  world w = {0};
  int last = network.processes - 1;
  int rc;

  CHECK(open_world(1, &w) == TFD_OK);
  rc = sum_or_next(&w, last);
  if (network.process == last) {
    CHECK(rc == TFD_OK);
    tfd__group_abort(w.group, "train.lua:7: no such field");
    rc = sum_of(&w, 10);
  }
  CHECK(rc != TFD_OK);
  CHECK(strstr(tfd_error_message(), "train.lua:7: no such field") != NULL);
  if (network.process != last) {
    CHECK(strstr(tfd_error_message(), "because of process") != NULL);
  }
  tfd__release(w.group);
  return 0;
}

/* Process 1 comes too late. What process 0 gave may have been enough for it,
** but by the next one it hears why nobody waits for it. */
static int a_deadline_passes(void) {
  world w = {0};
  world other = {0};
  tfd__collective c = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};

  CHECK(open_world(1, &w) == TFD_OK);
  CHECK(open_world(1, &other) == TFD_OK);
  if (network.process == 0) {
    CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(0.1)) ==
          TFD_DEADLINE_EXCEEDED);
  }
  CHECK(tfd__group_run(other.group, &c, tfd__deadline_in(60)) == TFD_OK);
  if (tfd__group_run(w.group, &c, tfd__deadline_in(60)) == TFD_OK) {
    CHECK(network.process == 1);
    CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(60)) != TFD_OK);
  }
  CHECK(strstr(tfd_error_message(), "not done at its deadline") != NULL);
  tfd__release(w.group);
  tfd__release(other.group);
  return 0;
}

/* Process 1 fails on its own; the others hear of it and fail with it. */
static int one_exits(void) {
  world w = {0};
  int rc;

  CHECK(open_world(1, &w) == TFD_OK);
  rc = sum_or_next(&w, 1);
  if (network.process == 1) exit(ENDED);
  CHECK(rc != TFD_OK);
  CHECK(strstr(tfd_error_message(),
               "because of process 1: process 1 has ended with exit status "
               "9") != NULL);
  return ENDED;
}

/* Process 1 fails, and the others are busy with something else for long. */
static int one_exits_alone(void) {
  world w = {0};

  CHECK(open_world(1, &w) == TFD_OK);
  (void)sum_of(&w, 10); /* both are there */
  if (network.process == 1) exit(ENDED);
  (void)pause();
  return 0;
}

/* Process 0 is interrupted while it waits for process 1 to open a group too,
** and gives it up, as process 1 does after it. */
static int one_is_interrupted(void) {
  tfd__collective c = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};
  world w = {0};
  int turn;

  CHECK(open_world(1, &w) == TFD_OK);
  for (turn = 0; turn < 2; turn++) {
    if (network.process == turn) {
      tfd__interrupt_set(true);
      CHECK(open_world(1, &(world){0}) == TFD_CANCELLED);
      tfd__interrupt_set(false);
    }
    CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(60)) == TFD_OK);
  }
  tfd__release(w.group);
  return 0;
}

/* Process 0 gives up a group that process 1 comes to later, and lives on. */
static int one_gives_up_an_opening(void) {
  tfd__collective c = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};
  world w = {0};
  int64_t begin = 0;

  CHECK(open_world(1, &w) == TFD_OK);
  if (network.process == 0) {
    tfd__interrupt_set(true);
    CHECK(open_world(1, &(world){0}) == TFD_CANCELLED);
    tfd__interrupt_set(false);
  }
  CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(60)) == TFD_OK);
  if (network.process != 0) {
    begin = ran_by_now();
    CHECK(open_world(1, &(world){0}) == TFD_ABORTED);
    CHECK(ran_since(begin) < 10);
    CHECK(strstr(tfd_error_message(),
                 "stopped because of process 0: it has given the group up: "
                 "group: interrupted while waiting") != NULL);
  }
  CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(60)) == TFD_OK);
  tfd__release(w.group);
  return 0;
}

/* Process 0 gives up a group that process 1 does not come to, and ends long
** before process 1, whom that does not end. */
static int one_gives_up_and_ends(void) {
  tfd__collective c = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};
  world w = {0};
  int64_t begin = 0;

  CHECK(open_world(1, &w) == TFD_OK);
  CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(60)) == TFD_OK);
  if (network.process == 0) {
    tfd__interrupt_set(true);
    CHECK(open_world(1, &(world){0}) == TFD_CANCELLED);
    tfd__interrupt_set(false);
  }
  tfd__release(w.group);
  begin = ran_by_now();
  while (network.process != 0 && ran_since(begin) < 3) (void)usleep(10000);
  return 0;
}

static int the_world_is_known(void) {
  char host[256] = "";
  tfd__world found = {0};
  int i;

  CHECK(tfd__provider_world("mpi", 60, &found) == TFD_OK);
  CHECK(found.process == network.process);
  CHECK(found.processes == network.processes);
  (void)gethostname(host, sizeof host - 1);
  for (i = 0; i < found.processes; i++) {
    CHECK(strcmp(host, found.hosts[i]) == 0);
  }
  network.processes++;
  CHECK(open_world(1, &(world){0}) == TFD_UNAVAILABLE);
  CHECK(strstr(tfd_error_message(), "and MPI says it is") != NULL);
  return 0;
}

/* Plug-ins that put 1000 elements in one call of MPI, to be found first. */
#define SMALL "build/spec/mpi"

static int two_groups(void) {
  world w[2] = {{0}};

  CHECK(open_world(1, &w[0]) == TFD_OK);
  CHECK(open_world(1, &w[1]) == TFD_OK);
  case_two_groups(w, network.process % 2 == 1);
  tfd__release(w[0].group);
  tfd__release(w[1].group);
  return 0;
}

/* Who is ahead knocks where the first group's meeting has left a door open. */
static int one_is_late(void) {
  CHECK(tfd__failpoints_set("meet.begin=sleep:300@2@rank1") == TFD_OK);
  return two_groups();
}

/* Groups of this and of another provider, waited for in other orders. */
static int orders_differ(void) {
  static const char *const names[] = {"tcp", "shm"};
  int i;

  for (i = 0; i < 2; i++) {
    world w[2] = {{0}};
    world back[2];
    int64_t n;

    CHECK(open_world_with(names[i], 1, &w[0]) == TFD_OK);
    CHECK(open_world(1, &w[1]) == TFD_OK);
    back[0] = w[1];
    back[1] = w[0];
    for (n = 100; n < 100000; n += 69900) {
      case_other_order(w, network.process % 2 == 1, n);
      case_other_order(w, network.process % 2 == 0, n);
      case_other_order(back, network.process % 2 == 1, n);
      case_other_order(back, network.process % 2 == 0, n);
    }
    tfd__release(w[0].group);
    tfd__release(w[1].group);
  }
  return 0;
}

/* Other threads may be in the middle of it while MPI starts. */
static int code_stays(void) {
  const char *events = getenv("UCX_MEM_EVENTS");
  bool is_asked = events != NULL;
  char before[16];
  world w = {0};

  memcpy(before, (const void *)mmap, sizeof before);
  CHECK(open_world(1, &w) == TFD_OK);
  CHECK(is_asked || memcmp(before, (const void *)mmap, sizeof before) == 0);
  events = getenv("UCX_MEM_EVENTS");
  CHECK(events != NULL && strcmp(events, is_asked ? "y" : "n") == 0);
  tfd__release(w.group);
  return 0;
}

/* MPICH has one handler for the errors of all requests, the world's, which by
** itself ends the process. Numbers are those of its binary interface. */
static int errors_end_nothing(void) {
  enum { WORLD = 0x44000000, TRUNCATED = 14 };
  void *mpich = NULL;
  int (*handle)(int, int) = NULL;
  world w = {0};

  CHECK(open_world(1, &w) == TFD_OK);
  mpich = dlopen("libmpich.so.12", RTLD_NOW | RTLD_NOLOAD);
  if (mpich != NULL) {
    *(void **)&handle = dlsym(mpich, "MPI_Comm_call_errhandler");
    CHECK(handle != NULL && handle(WORLD, TRUNCATED) == 0);
    (void)dlclose(mpich);
  }
  tfd__release(w.group);
  return 0;
}

typedef struct part {
  const char *name;
  int (*body)(void);
  int least; /* processes */
  int most;
  int status;          /* mpirun's */
  const char *plugins; /* and other variables */
} part;

static const part parts[] = {
    {"cases", cases, 1, MOST, 0, ""},
    {"cases", cases, 2, 3, 0, SMALL},
    {"cases_of_two", cases_of_two, 2, 2, 0, ""},
    {"long", long_cases, 2, 3, 0, ""},
    {"sums", sums_have_the_same_bits, 2, 4, 0, ""},
    {"extremes", extremes_have_the_same_bits, 2, 3, 0, ""},
    {"several", several_under_way, 2, 2, 0, ""},
    {"many", many_under_way, 2, 2, 0, SMALL},
    {"two_groups", two_groups, 2, 3, 0, ""},
    {"late", one_is_late, 3, 3, 0, ""},
    {"orders", orders_differ, 2, 3, 0, ""},
    {"apart", they_run_apart, 2, 3, 0, ""},
    {"gathers", gathers_differ, 2, 3, 0, ""},
    {"scatters", scatters_differ, 2, 3, 0, ""},
    {"ends", one_ends, 2, 3, 0, ""},
    {"aborts", one_aborts, 2, 3, 0, ""},
    {"deadline", a_deadline_passes, 2, 2, 0, ""},
    {"interrupted", one_is_interrupted, 2, 2, 0, ""},
    {"gives_up", one_gives_up_an_opening, 2, 3, 0, ""},
    {"gives_up_and_ends", one_gives_up_and_ends, 2, 2, 0, ""},
    {"exits", one_exits, 2, 2, ENDED, ""},
    {"exits_alone", one_exits_alone, 2, 2, ENDED, ""},
    {"code_stays", code_stays, 2, 2, 0, ""},
    {"code_stays", code_stays, 2, 2, 0, "build/plugins UCX_MEM_EVENTS=y"},
    {"errors", errors_end_nothing, 2, 2, 0, ""},
    {"world", the_world_is_known, 2, 2, 0, ""},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static int number_of(const char *a, const char *b) {
  const char *text = getenv(a) != NULL ? getenv(a) : getenv(b);

  return text == NULL ? -1 : atoi(text);
}

static int be(const char *name, int starter) {
  int i;

  make_addresses_of(starter);
  begin_scene(); /* before MPI is there */
  network.addresses = address_list;
  network.process = number_of("OMPI_COMM_WORLD_RANK", "PMI_RANK");
  network.processes = number_of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
  network.start_timeout = 60;
  for (i = 0; i < PARTS; i++) {
    if (strcmp(parts[i].name, name) == 0) return parts[i].body();
  }
  return 2;
}

/* --- starting them ----------------------------------------------------------
 */

static const char *self;
/* Instrumented builds have the plain one's plug-ins and nothing to say of MPI's
** own threads. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PLAIN = 0 };
#else
enum { PLAIN = 1 };
#endif

static bool is_there(const char *mpi) {
  char command[256];

  (void)snprintf(command, sizeof command,
                 "command -v mpirun.%s >/dev/null && "
                 "test -e build/plugins/tfdist_mpi_%s.so",
                 mpi, mpi);
  return system(command) == 0;
}

static void run_part(const char *mpi, const part *p, int processes) {
  char command[1024];
  char log[64];
  int status;

  (void)snprintf(log, sizeof log, "build/comm_mpi.%d", (int)getpid());
  (void)snprintf(command, sizeof command,
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                 "OMP_NUM_THREADS=1 env -u UCX_MEM_EVENTS TFDIST_PLUGINS=%s "
                 "timeout -k 5 240 "
                 "mpirun.%s %s -n %d %s %s %d </dev/null >%s 2>&1; status=$?; "
                 "grep -q 'no TCP between all' %s && exit 99; exit $status",
                 p->plugins, mpi,
                 strcmp(mpi, "openmpi") == 0 ? "--oversubscribe" : "",
                 processes, self, p->name, (int)getpid(), log, log);
  status = system(command);
  status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (status != p->status) {
    (void)snprintf(command, sizeof command, "cat %s", log);
    (void)system(command);
  }
  (void)unlink(log);
  if (status == p->status) return;
  fail_msg("%s: %s of %d processes ended with %d, not with %d", mpi, p->name,
           processes, status, p->status);
}

static void run_parts(const char *mpi) {
  int i;
  int n;

  if (!PLAIN) skip();
  if (!is_there(mpi)) {
    print_message("no %s here: apt-get install lib%s-dev %s\n", mpi, mpi,
                  strcmp(mpi, "mpich") == 0 ? "mpich" : "openmpi-bin");
    skip();
  }
  for (i = 0; i < PARTS; i++) {
    for (n = parts[i].least; n <= parts[i].most; n++) {
      run_part(mpi, &parts[i], n);
    }
  }
}

static void over_open_mpi(void **state) {
  (void)state;
  run_parts("openmpi");
}

static void over_mpich(void **state) {
  (void)state;
  run_parts("mpich");
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(over_open_mpi),
      cmocka_unit_test(over_mpich),
  };

  configure("2", "queued");
  self = argv[0];
  if (argc > 1) return argc > 2 ? be(argv[1], atoi(argv[2])) : 2;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
