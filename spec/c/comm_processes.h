/* Groups of processes for the specs of their providers: each process is a fork
** of the spec, ends with a status, and has a deadline. `tested` names the
** provider. What must happen when one of them goes away, hangs or says
** something else is the same for all providers. */
#ifndef SPEC_COMM_PROCESSES_H
#define SPEC_COMM_PROCESSES_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "base/failpoint.h"
#include "comm/comm.h"
#include "comm_addresses.h"
#include "comm_cases.h"
#include "comm_scene.h"

static const char *tested;
static tfd_device *(*find_device)(int) = device;

/* Of 64 MB, which TFD_LONG brings, ThreadSanitizer looks at each byte. */
enum { LONGEST_S = 300, LONGEST_LONG_S = 900, AT_ONCE_S = 10 };

/* What it may take all to hear of a death, or of what else ended one. */
enum { DEATH_S = 2 };

/* For processes that are about to start, as the spec has them lie. */
static inline void make_addresses(void) {
  make_addresses_of((int)getpid());
  begin_scene();
}

static void (*place_them)(void) = make_addresses;

static inline tfd__network network_of(int process, int processes) {
  return (tfd__network){.process = process,
                        .processes = processes,
                        .addresses = address_list,
                        .start_timeout = 60,
                        .beat_timeout = 60};
}

static inline int open_world(const tfd__network *n, int local, world *w) {
  static tfd_device *devices[MOST];
  tfd__group_config config = {.provider = tested,
                              .devices = devices,
                              .local = local,
                              .base = n->process * local,
                              .size = n->processes * local,
                              .network = n};
  int i;

  for (i = 0; i < local; i++) devices[i] = find_device(i);
  return tfd__group_new(&config, &w->group);
}

/* --- processes ------------------------------------------------------------ */

typedef int (*body)(int process, int processes, int local);

static inline pid_t start(body fn, int process, int processes, int local) {
  static pid_t spec = 0;
  pid_t child = -1;

  /* A failed assertion in a child has it go on with the next test. */
  if (spec == 0) spec = getpid();
  if (spec != getpid()) _exit(99);
  child = fork();

  assert_true(child >= 0);
  if (child == 0) {
    /* One that is stopped hears no alarm. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(getenv("TFD_LONG") == NULL ? LONGEST_S : LONGEST_LONG_S);
    _exit(fn(process, processes, local));
  }
  return child;
}

static inline int status_of(pid_t child) {
  int status = 0;

  assert_int_equal(child, waitpid(child, &status, 0));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Where they have their addresses: how many end in another way than process
** `other` with `status`, all others with 0? */
static inline int count_bad(body fn, int processes, int local, int other,
                            int status) {
  pid_t children[MOST];
  int bad = 0;
  int i;

  for (i = 0; i < processes; i++) {
    children[i] = start(fn, i, processes, local);
  }
  for (i = 0; i < processes; i++) {
    int got = status_of(children[i]);

    if (got == (i == other ? status : 0)) continue;
    print_error("process %d of %d ended with %d\n", i, processes, got);
    bad++;
  }
  return bad;
}

static inline void run_but(body fn, int processes, int local, int other,
                           int status) {
  assert_int_equal(0, count_bad(fn, processes, local, other, status));
}

static inline void run_all(body fn, int processes, int local) {
  place_them();
  run_but(fn, processes, local, -1, 0);
}

/* In a child: what cmocka's assertions would do needs its parent's frame. */
#define CHECK(x)                                                         \
  do {                                                                   \
    if (!(x)) {                                                          \
      (void)fprintf(stderr, "%s:%d: %s\n  %s\n", __FILE__, __LINE__, #x, \
                    tfd_error_message());                                \
      return 1;                                                          \
    }                                                                    \
  } while (0)

/* --- the case table ------------------------------------------------------- */

static inline int all_cases(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  bool is_long = getenv("TFD_LONG") != NULL;
  world w = {.small =
                 SHORTER > 1 || (!is_long && (processes > 2 || local > 1))};

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(strcmp(tested, w.group->provider->name) == 0);
  check_world(&w);
  tfd__release(w.group);
  return tfd_live_handles(TFD_HANDLE_BUFFER) == 0 ? 0 : 2;
}

static inline int long_values(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  CHECK(open_world(&n, local, &w) == TFD_OK);
  check_long_values(&w);
  tfd__release(w.group);
  return 0;
}

static inline void long_values_of_every_kind(void **state) {
  int processes;

  (void)state;
  for (processes = 2; processes <= MOST; processes++) {
    if (processes > 3 && getenv("TFD_LONG") == NULL) break;
    run_all(long_values, processes, 1);
  }
  run_all(long_values, 2, 2);
}

/* --- order ---------------------------------------------------------------- */

/* 2^24 + 1 is no single float: what comes out tells the order of additions.
** Process p gives given[p] in each of n elements, of which four shares come to
** sums. */
typedef struct order_case {
  const char *way;
  int n;
  float given[4];
  float sums[4];
} order_case;

static const order_case *order;

static inline int in_its_order(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  pieces p;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p, &p);
  float *x = NULL;
  int i;

  tested = order->way;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  make_pieces(&w, &p, TFD_FLOAT32, order->n);
  x = p.list[0].buffer->data;
  for (i = 0; i < order->n; i++) x[i] = order->given[process];
  CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(60)) == TFD_OK);
  for (i = 0; i < order->n; i++) CHECK(x[i] == order->sums[i * 4 / order->n]);
  drop_pieces(&w, &p);
  tfd__release(w.group);
  return 0;
}

/* --- several under way ---------------------------------------------------- */

/* Odd processes begin with the last. */
static inline int several_under_way(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w[2] = {{0}};
  int i;

  for (i = 0; i < 2; i++) CHECK(open_world(&n, local, &w[i]) == TFD_OK);
  case_two_groups(w, process % 2 == 1);
  for (i = 0; i < 2; i++) tfd__release(w[i].group);
  return 0;
}

/* Groups of all pairs of these providers. */
static inline int orders_differ(int process, int processes, int local) {
  static const char *const names[] = {"tcp", "shm", "hierarchical"};
  tfd__network n = network_of(process, processes);
  world w[3] = {{0}};
  int i;
  int k;

  for (i = 0; i < 3; i++) {
    tested = names[i];
    CHECK(open_world(&n, local, &w[i]) == TFD_OK);
  }
  for (i = 0; i < 3; i++) {
    for (k = 0; k < 3; k++) {
      const world pair[2] = {w[i], w[k]};

      if (i == k) continue;
      case_other_order(pair, process % 2 == 1, 100);
      case_other_order(pair, process % 2 == 0, 70000);
    }
  }
  for (i = 0; i < 3; i++) tfd__release(w[i].group);
  return 0;
}

/* --- failures ------------------------------------------------------------- */

/* One all_reduce of n ones; its status. */
static inline int sum_ones(const world *w, int64_t n, double seconds) {
  pieces p;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p, &p);
  int rc;

  make_pieces(w, &p, TFD_FLOAT32, n);
  c.file = "train.lua";
  c.line = 40 + (int)(n % 100);
  fill_pieces(w, &p, c.op);
  rc = tfd__group_run(w->group, &c, tfd__deadline_in(seconds));
  drop_pieces(w, &p);
  return rc;
}

/* Process 1 ends without a word after three sums; the others may still be at
** the third then. */
static inline int one_dies(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int rc = TFD_OK;
  int i;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (i = 0; i < 2; i++) CHECK(sum_ones(&w, 100000, 60) == TFD_OK);
  for (i = 2; i < 4 && rc == TFD_OK; i++) {
    if (process == 1 && i == 3) {
      mark_moment();
      (void)kill(getpid(), SIGKILL);
    }
    rc = sum_ones(&w, 100000, 60);
  }
  CHECK(rc == TFD_ABORTED);
  CHECK(ran_since_mark() < DEATH_S);
  CHECK(strstr(tfd_error_message(), "process 1 of 3 is gone") != NULL);
  CHECK(sum_ones(&w, 10, 60) == TFD_ABORTED); /* it stays failed */
  tfd__release(w.group);
  return 0;
}

static inline void a_process_that_dies_fails_the_others(void **state) {
  (void)state;
  place_them();
  run_but(one_dies, 3, 1, 1, 128 + SIGKILL);
}

/* To the spec: this process is at work. */
static int ready_end;

static inline uint64_t random_of(uint64_t *x) {
  *x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *x >> 33;
}

static inline int until_it_fails(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  uint64_t x = 1; /* all have the same sizes */
  char byte = 0;
  int rc = TFD_OK;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  CHECK(write(ready_end, &byte, 1) == 1);
  while (rc == TFD_OK) {
    rc = sum_ones(&w, (int64_t)1 << random_of(&x) % 20, 60);
  }
  CHECK(ran_since_mark() < DEATH_S);
  CHECK(rc == TFD_ABORTED);
  CHECK(strstr(tfd_error_message(), "is gone") != NULL);
  tfd__release(w.group);
  CHECK(ran_since_mark() < DEATH_S); /* when the system ends it is its own */
  return 0;
}

/* One of three is killed at a moment of its own. */
static inline void one_death(uint64_t *x) {
  struct timespec pause = {.tv_nsec = (long)(random_of(x) % 30000000)};
  int victim = (int)(random_of(x) % 3);
  pid_t children[3];
  int ends[2];
  char bytes[3];
  int i;

  place_them();
  assert_int_equal(0, pipe(ends));
  ready_end = ends[1];
  for (i = 0; i < 3; i++) children[i] = start(until_it_fails, i, 3, 1);
  (void)close(ends[1]);
  for (i = 0; i < 3; i++) assert_int_equal(1, read(ends[0], bytes, 1));
  (void)nanosleep(&pause, NULL);
  mark_moment();
  assert_int_equal(0, kill(children[victim], SIGKILL));
  for (i = 0; i < 3; i++) {
    assert_int_equal(i == victim ? 128 + SIGKILL : 0, status_of(children[i]));
  }
  (void)close(ends[0]);
}

/* So many, or fifty with TFD_LONG. */
static inline void many_deaths(int few) {
  uint64_t seed = (uint64_t)tfd__now_ns();
  uint64_t x = seed;
  int n = getenv("TFD_LONG") == NULL ? few : 50;
  int i;

  print_message("seed %llu\n", (unsigned long long)seed);
  for (i = 0; i < n; i++) one_death(&x);
}

/* Process 1 is stopped; silence is noticed when patience is at its end, of which
** a fourth, or a second, had gone by at most when it was stopped. */
static double patience = 2; /* 0 = the default */

static inline int one_hangs(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  double bears = patience > 0 ? patience : 10;
  double gone = bears / 4 < 1 ? bears / 4 : 1;
  world w = {0};

  n.beat_timeout = patience;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  if (process == 1) {
    mark_moment();
    (void)kill(getpid(), SIGSTOP);
    /* What process 0 gave may have come before it went on. */
    if (sum_ones(&w, 1000, 60) == TFD_OK) (void)sum_ones(&w, 1000, 60);
  }
  CHECK(sum_ones(&w, 1000, 60) == TFD_ABORTED);
  if (process == 0) {
    char text[64];

    CHECK(ran_since_mark() > bears - gone - 0.3);
    CHECK(ran_since_mark() < bears + 2);
    (void)snprintf(text, sizeof text, "has not been heard of for %.0f.", bears);
    CHECK(strstr(tfd_error_message(), text) != NULL);
  }
  tfd__release(w.group);
  return 0;
}

static inline void one_hang(double seconds) {
  pid_t children[2];
  pid_t stopped = -1;
  int status = 0;
  int first = 0;
  int i;

  patience = seconds;
  place_them();
  for (i = 0; i < 2; i++) children[i] = start(one_hangs, i, 2, 1);
  first = status_of(children[0]);
  stopped = waitpid(children[1], &status, WUNTRACED);
  (void)kill(children[1], SIGCONT); /* it finds that the others have gone on */
  assert_int_equal(children[1], stopped);
  assert_true(WIFSTOPPED(status));
  assert_int_equal(0, status_of(children[1]));
  assert_int_equal(0, first);
}

static inline void a_process_that_hangs_fails_the_others(void **state) {
  (void)state;
  one_hang(2);
  if (getenv("TFD_LONG") != NULL) one_hang(0);
}

/* Sums until it is enough, as process 0 sees it: the others are told by a
** broadcast. */
static inline int they_go_on(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  bool over = false;

  n.beat_timeout = 2;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  do {
    pieces p;
    tfd__collective c =
        collective(TFD_COLLECTIVE_BROADCAST, TFD_REDUCE_SUM, &p, &p);
    float last = have_come(POINT_ENOUGH, 1);

    CHECK(sum_ones(&w, 1000000, 60) == TFD_OK);
    make_pieces(&w, &p, TFD_FLOAT32, 1);
    *(float *)p.views[0].data = last;
    CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(60)) == TFD_OK);
    over = *(float *)p.views[0].data > 0;
    drop_pieces(&w, &p);
    come_to(POINT_WORK);
  } while (!over);
  tfd__release(w.group);
  return 0;
}

/* A suspended job: all are stopped in the middle of what they do, for longer
** than they bear silence, and go on. Signals reach all of a process group at
** once: nobody goes on without the others. */
static inline void processes_stopped_together_go_on(void **state) {
  pid_t children[3];
  int i;

  (void)state;
  place_them();
  for (i = 0; i < 3; i++) {
    children[i] = start(they_go_on, i, 3, 1);
    assert_int_equal(0, setpgid(children[i], children[0]));
  }
  assert_true(wait_for(POINT_WORK, 9));
  assert_int_equal(0, kill(-children[0], SIGSTOP));
  (void)poll(NULL, 0, 2500);
  assert_int_equal(0, kill(-children[0], SIGCONT));
  come_to(POINT_ENOUGH);
  for (i = 0; i < 3; i++) assert_int_equal(0, status_of(children[i]));
}

static inline int they_differ(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int64_t begin = 0;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  begin = ran_by_now();
  CHECK(sum_ones(&w, process == 0 ? 100 : 101, 60) != TFD_OK);
  CHECK(ran_since(begin) < AT_ONCE_S);
  CHECK(strstr(tfd_error_message(),
               "run apart at collective 2: process 0 calls all_reduce sum of "
               "float32[100] at train.lua:40, process 1 calls all_reduce sum "
               "of float32[101] at train.lua:41") != NULL);
  CHECK(tfd_error_exit_code() == TFD_EXIT_DESYNC);
  tfd__release(w.group);
  return 0;
}

static inline void processes_that_run_apart_all_hear_of_it(void **state) {
  (void)state;
  run_all(they_differ, 2, 1);
}

static inline int one_ends(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int64_t begin = 0;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  if (process == 1) mark_moment();
  if (process == 0) {
    begin = ran_by_now();
    CHECK(sum_ones(&w, 10, 60) == TFD_ABORTED);
    CHECK(ran_since_both(begin) < DEATH_S);
    CHECK(strstr(tfd_error_message(),
                 "process 1 has ended while process 0 waits") != NULL);
    CHECK(tfd_error_exit_code() == TFD_EXIT_DESYNC);
  }
  tfd__release(w.group);
  return 0;
}

static inline void a_process_that_ends_is_not_waited_for(void **state) {
  (void)state;
  run_all(one_ends, 2, 1);
}

static inline int one_aborts(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int rc;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  rc = sum_ones(&w, 10, 60); /* of the others, it may be late for that */
  if (process == 2) {
    CHECK(rc == TFD_OK);
    mark_moment();
    tfd__group_abort(w.group, "train.lua:7: no such field");
  }
  if (rc == TFD_OK) rc = sum_ones(&w, 10, 60);
  CHECK(rc == TFD_ABORTED);
  CHECK(ran_since_mark() < DEATH_S);
  CHECK(strstr(tfd_error_message(), "train.lua:7: no such field") != NULL);
  if (process != 2) {
    CHECK(strstr(tfd_error_message(), "because of process 2") != NULL);
  }
  tfd__release(w.group);
  return 0;
}

static inline void an_abort_reaches_everybody_with_its_cause(void **state) {
  (void)state;
  run_all(one_aborts, 3, 1);
}

/* What goes wrong, as in what follows. */
static tfd__collective_kind missed;
static int missed_root;

/* Process 1 never comes to a collective of this kind; it has had its sum before
** process 0 gives up. */
static inline int one_never_comes(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  CHECK(all_come_to(POINT_WORK, processes));
  if (process == 0) {
    mark_moment();
    CHECK(run_kind(&w, missed, missed_root, 10, 0.1) == TFD_DEADLINE_EXCEEDED);
    CHECK(ran_since_mark() < DEATH_S);
    CHECK(strstr(tfd_error_message(), "not done at its deadline") != NULL);
    CHECK(strstr(tfd_error_message(), "process 1") != NULL);
    CHECK(tfd_error_exit_code() == TFD_EXIT_PEER_FAILED);
  } else {
    while (tfd__group_check(w.group, "waiting") == TFD_OK) {
      (void)poll(NULL, 0, 1); /* until it is told */
    }
    CHECK(ran_since_mark() < DEATH_S);
    CHECK(strstr(tfd_error_message(), "because of process 0") != NULL);
    CHECK(strstr(tfd_error_message(), "not done at its deadline") != NULL);
  }
  CHECK(sum_ones(&w, 10, 60) == TFD_ABORTED);
  tfd__release(w.group);
  return 0;
}

static inline void a_call_has_its_own_deadline(void **state) {
  int kind;

  (void)state;
  for (kind = 0; kind < TFD_COLLECTIVES; kind++) {
    missed = (tfd__collective_kind)kind;
    missed_root = kind == TFD_COLLECTIVE_BROADCAST ? 1 : 0;
    run_all(one_never_comes, 2, 1);
  }
  for (kind = TFD_COLLECTIVE_GATHER; kind <= TFD_COLLECTIVE_SCATTER; kind++) {
    missed = (tfd__collective_kind)kind;
    missed_root = 1;
    run_all(one_never_comes, 2, 1);
  }
}

/* Process 1 is told another root than the others. */
static inline int roots_differ(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  bool gives =
      missed == TFD_COLLECTIVE_SCATTER || missed == TFD_COLLECTIVE_BROADCAST;
  const char *to = gives ? "from" : "to";
  int64_t begin = 0;
  int rc = TFD_OK;
  char words[64];
  world w = {0};
  int r;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(all_come_to(POINT_WORK, processes));
  begin = ran_by_now();
  /* Who agrees with the root may be done once. */
  for (r = 0; r < 3 && rc == TFD_OK; r++) {
    rc = run_kind(&w, missed, process == 1 ? 1 : 0, 10, 60);
  }
  CHECK(rc != TFD_OK && ran_since(begin) < AT_ONCE_S);
  CHECK(strstr(tfd_error_message(), "run apart at collective") != NULL);
  for (r = 0; r < 2; r++) {
    (void)snprintf(words, sizeof words, "] %s rank %d at train.lua:7", to, r);
    CHECK(strstr(tfd_error_message(), words) != NULL);
  }
  (void)snprintf(words, sizeof words, "process 1 calls %s",
                 tfd__collective_name(missed));
  CHECK(strstr(tfd_error_message(), words) != NULL);
  tfd__release(w.group);
  return 0;
}

static inline void other_roots_are_told(void **state) {
  static const tfd__collective_kind kinds[] = {
      TFD_COLLECTIVE_BROADCAST, TFD_COLLECTIVE_REDUCE, TFD_COLLECTIVE_GATHER,
      TFD_COLLECTIVE_SCATTER};
  size_t k;

  (void)state;
  for (k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    missed = kinds[k];
    run_all(roots_differ, 2, 1);
    run_all(roots_differ, 3, 1);
  }
}

/* Process 1 has the lengths of the others' pieces the wrong way round. */
static inline int lengths_differ(int process, int processes, int local) {
  static const int64_t counts[2][3] = {{5, 2, 9}, {9, 2, 5}};
  tfd__network n = network_of(process, processes);
  bool gathers = missed == TFD_COLLECTIVE_GATHER;
  int64_t begin = 0;
  int rc = TFD_OK;
  world w = {0};
  pieces part;
  pieces whole;
  tfd__collective c =
      collective(missed, TFD_REDUCE_SUM, gathers ? &part : &whole,
                 gathers ? &whole : &part);
  int i;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  make_pieces(&w, &part, TFD_FLOAT32, counts[0][process]);
  make_pieces(&w, &whole, TFD_FLOAT32, 16);
  fill_pieces(&w, gathers ? &part : &whole, c.op);
  c.counts = counts[process == 1 ? 1 : 0];
  CHECK(all_come_to(POINT_WORK, processes));
  begin = ran_by_now();
  for (i = 0; i < 3 && rc == TFD_OK; i++) {
    rc = tfd__group_run(w.group, &c, tfd__deadline_in(60));
  }
  CHECK(rc != TFD_OK && ran_since(begin) < AT_ONCE_S);
  CHECK(strstr(tfd_error_message(), "run apart at collective") != NULL);
  drop_pieces(&w, &part);
  drop_pieces(&w, &whole);
  tfd__release(w.group);
  return 0;
}

static inline void other_lengths_of_pieces_are_told(void **state) {
  (void)state;
  missed = TFD_COLLECTIVE_GATHER;
  run_all(lengths_differ, 3, 1);
  missed = TFD_COLLECTIVE_SCATTER;
  run_all(lengths_differ, 3, 1);
}

/* Process 1 ends without a word while the others exchange pieces, with it as
** their root or not. */
static inline int one_dies_at_pieces(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int rc = TFD_OK;
  int i;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (i = 0; i < 5 && rc == TFD_OK; i++) {
    if (process == 1 && i == 3) {
      mark_moment();
      (void)kill(getpid(), SIGKILL);
    }
    rc = run_kind(&w, missed, missed_root, 300000, 60);
  }
  CHECK(rc == TFD_ABORTED);
  CHECK(ran_since_mark() < DEATH_S);
  CHECK(strstr(tfd_error_message(), "process 1 of 3 is gone") != NULL);
  tfd__release(w.group);
  return 0;
}

static inline void a_death_at_pieces_fails_the_others(void **state) {
  int kind;

  (void)state;
  for (kind = TFD_COLLECTIVE_GATHER; kind <= TFD_COLLECTIVE_SCATTER; kind++) {
    missed = (tfd__collective_kind)kind;
    for (missed_root = 0; missed_root < 2; missed_root++) {
      place_them();
      run_but(one_dies_at_pieces, 3, 1, 1, 128 + SIGKILL);
    }
  }
}

/* A fault that is ordered for process 1 of 3, who sums n elements again and
** again until it has met it: after the first sum, for then all are there. */
typedef struct ordered_fault {
  const char *order;
  const char *told; /* to the others */
  int code;         /* process 1 ends with it */
  int64_t n;
} ordered_fault;

static ordered_fault ordered;

static inline int with_fault(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int64_t begin = 0;
  int rc = TFD_OK;
  int i;

  n.beat_timeout = 2;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (i = 0; i < 20 && rc == TFD_OK; i++) {
    if (i == 1) CHECK(tfd__failpoints_set(ordered.order) == TFD_OK);
    begin = ran_by_now();
    rc = sum_ones(&w, ordered.n, 60);
  }
  CHECK(rc != TFD_OK);
  CHECK(ran_since(begin) < AT_ONCE_S);
  if (process != 1) CHECK(strstr(tfd_error_message(), ordered.told) != NULL);
  tfd__release(w.group);
  return 0;
}

static inline void run_faults(const ordered_fault *cases, size_t n) {
  size_t k;

  for (k = 0; k < n; k++) {
    place_them();
    ordered = cases[k];
    if (count_bad(with_fault, 3, 1, 1, ordered.code) > 0) {
      fail_msg("%s", ordered.order);
    }
  }
}

/* For a table of them: at the steps of sums. */
#define CHUNK_FAULTS                                                         \
  {"allreduce.chunk=kill@1@rank1", "process 1 of 3", 128 + SIGKILL, 100000}, \
      {"allreduce.chunk=kill@8@rank1", "process 1 of 3", 128 + SIGKILL,      \
       100000},                                                              \
      {"allreduce.chunk=exit:9@5@rank1", "process 1 of 3", 9, 100000},       \
      {"allreduce.chunk=enomem@4@rank1", "process 1", 0, 100000}, {          \
    "allreduce.chunk=enomem@4@rank1", "process 1", 0, 10                     \
  }

static inline void
a_death_at_any_moment_fails_all_within_two_seconds(void **state) {
  (void)state;
  many_deaths(3);
}

/* For a list of tests. */
#define FAULT_TESTS                                              \
  cmocka_unit_test(a_process_that_dies_fails_the_others),        \
      cmocka_unit_test(processes_stopped_together_go_on),        \
      cmocka_unit_test(a_process_that_hangs_fails_the_others),   \
      cmocka_unit_test(processes_that_run_apart_all_hear_of_it), \
      cmocka_unit_test(a_process_that_ends_is_not_waited_for),   \
      cmocka_unit_test(a_call_has_its_own_deadline),             \
      cmocka_unit_test(other_roots_are_told),                    \
      cmocka_unit_test(other_lengths_of_pieces_are_told),        \
      cmocka_unit_test(a_death_at_pieces_fails_the_others),      \
      cmocka_unit_test(an_abort_reaches_everybody_with_its_cause)

#endif
