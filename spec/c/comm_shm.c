/* Groups of processes that share memory: the case table, the same faults as
** over sockets, deaths at any moment, the same bits as over TCP, and what is
** left behind. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "comm_processes.h"

static void every_case(void **state) {
  int processes;

  (void)state;
  for (processes = 1; processes <= MOST; processes += STRIDE) {
    run_all(all_cases, processes, 1);
  }
  run_all(all_cases, 1, 2);
  run_all(all_cases, 2, 2);
  run_all(all_cases, 3, 2);
}

/* --- few bytes ------------------------------------------------------------ */

/* One all_reduce of n numbers process + 1 + turn, at once or by a ticket. */
static int one_small_sum(const world *w, int process, int64_t n, int turn,
                         bool by_ticket) {
  const tfd__group *g = w->group;
  float expected =
      (float)(g->size * (g->size + 1) / 2 + g->size * (turn % 1000));
  pieces p;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p, &p);
  float *x = NULL;
  int64_t i;

  make_pieces(w, &p, TFD_FLOAT32, n);
  x = p.list[0].buffer->data;
  for (i = 0; i < n; i++) x[i] = (float)(process + 1 + turn % 1000);
  if (by_ticket) {
    complete(w, &c);
  } else {
    CHECK(tfd__group_run(w->group, &c, tfd__deadline_in(60)) == TFD_OK);
  }
  for (i = 0; i < n; i++) CHECK(x[i] == expected);
  drop_pieces(w, &p);
  return 0;
}

/* Sums of one line and of many, barriers between: each process does them at
** once or by a ticket as it likes, and some come late. */
static int small_sums(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  tfd__collective barrier = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};
  uint64_t all = 7;                        /* the same everywhere */
  uint64_t mine = 100 + (uint64_t)process; /* this process's own */
  world w = {0};
  int turn;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (turn = 0; turn < 1500; turn++) {
    int64_t numel = (int64_t)(random_of(&all) % 3 == 0 ? random_of(&all) % 40000
                                                       : random_of(&all) % 30);

    if (random_of(&mine) % 50 == 0) (void)usleep(300);
    if (random_of(&all) % 8 == 0) {
      CHECK(tfd__group_run(w.group, &barrier, tfd__deadline_in(60)) == TFD_OK);
    }
    CHECK(one_small_sum(&w, process, numel, turn, random_of(&mine) % 3 == 0) ==
          0);
  }
  tfd__release(w.group);
  return 0;
}

static void few_bytes_at_once_or_by_tickets(void **state) {
  int processes;

  (void)state;
  for (processes = 1; processes <= 3; processes++) {
    run_all(small_sums, processes, 1);
  }
}

/* The second process calls what needs slots and rounds. */
static int a_small_one_meets_a_long_one(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 1, 60) == TFD_OK);
  CHECK(sum_ones(&w, process == 0 ? 2 : 1000000, 60) != TFD_OK);
  CHECK(strstr(tfd_error_message(), "run apart at collective 2") != NULL);
  CHECK(strstr(tfd_error_message(), "float32[1000000]") != NULL);
  tfd__release(w.group);
  return 0;
}

static void other_lengths_are_told(void **state) {
  (void)state;
  run_all(a_small_one_meets_a_long_one, 2, 1);
}

static void a_fault_of_one_process_fails_all(void **state) {
  static const ordered_fault cases[] = {
      CHUNK_FAULTS,
      {"allreduce.chunk=kill@4@rank1", "process 1 of 3", 128 + SIGKILL, 10},
  };

  (void)state;
  run_faults(cases, sizeof cases / sizeof *cases);
}

/* --- bits ----------------------------------------------------------------- */

/* Numbers whose sums depend on their order. */
static void fill_random(const world *w, pieces *p, uint64_t seed) {
  int i;

  for (i = 0; i < w->group->local; i++) {
    const tfd__piece *one = &p->list[i];
    size_t size = tfd__dtype_size(one->view->dtype);
    char *bytes = calloc((size_t)one->view->numel + 1, size);
    uint64_t x = seed * 1000 + (uint64_t)(w->group->base + i);
    int64_t j;

    for (j = 0; bytes != NULL && j < one->view->numel; j++) {
      double value = ((double)random_of(&x) - 1e9) / 3e7;

      tfd__store(bytes + (size_t)j * size, one->view->dtype, value);
    }
    (void)tfd__host_write(one->buffer, 0, bytes, tfd__view_bytes(one->view));
    free(bytes);
  }
}

/* The outputs of both groups are the same bit by bit. */
static bool agree(const world *a, const world *b, tfd__collective_kind kind,
                  int dtype, int64_t n, tfd_reduce_op op) {
  const world *worlds[2] = {a, b};
  int64_t parts = kind == TFD_COLLECTIVE_REDUCE_SCATTER ? a->group->size : 1;
  pieces in;
  pieces out[2];
  bool same = true;
  int i;

  make_pieces(a, &in, dtype, n * parts);
  fill_random(a, &in, (uint64_t)n);
  for (i = 0; i < 2; i++) {
    tfd__collective c = collective(kind, op, &in, &out[i]);

    make_pieces(a, &out[i], dtype, n);
    complete(worlds[i], &c);
  }
  for (i = 0; i < a->group->local; i++) {
    (void)tfd__stream_wait(a->group->devices[i], UINT64_MAX, TFD_FOREVER);
  }
  for (i = 0; i < a->group->local && kind != TFD_COLLECTIVE_REDUCE; i++) {
    const tfd__piece *x = &out[0].list[i];
    size_t bytes = tfd__view_bytes(x->view);

    same = same &&
           memcmp(x->buffer->data, out[1].list[i].buffer->data, bytes) == 0;
  }
  if (kind == TFD_COLLECTIVE_REDUCE && a->group->base == 0) {
    same = memcmp(out[0].list[0].buffer->data, out[1].list[0].buffer->data,
                  tfd__view_bytes(out[0].list[0].view)) == 0;
  }
  drop_pieces(a, &in);
  drop_pieces(a, &out[0]);
  drop_pieces(a, &out[1]);
  return same;
}

static int two_ways(int process, int processes, int local) {
  static const int dtypes[] = {TFD_FLOAT32,  TFD_FLOAT64, TFD_FLOAT16,
                               TFD_BFLOAT16, TFD_INT32,   TFD_INT8};
  tfd__network n = network_of(process, processes);
  world a = {0};
  world b = {0};
  size_t d;
  int op;

  CHECK(open_world(&n, local, &a) == TFD_OK);
  tested = "tcp";
  CHECK(open_world(&n, local, &b) == TFD_OK);
  for (d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
    for (op = TFD_REDUCE_SUM; op <= TFD_REDUCE_PROD; op++) {
      if (op == TFD_REDUCE_MEAN && !tfd__is_float(dtypes[d])) continue;
      CHECK(agree(&a, &b, TFD_COLLECTIVE_ALL_REDUCE, dtypes[d], 20011,
                  (tfd_reduce_op)op));
      CHECK(agree(&a, &b, TFD_COLLECTIVE_ALL_REDUCE, dtypes[d], 101,
                  (tfd_reduce_op)op));
      if (local > 1) continue;
      CHECK(agree(&a, &b, TFD_COLLECTIVE_REDUCE, dtypes[d], 20011,
                  (tfd_reduce_op)op));
      CHECK(agree(&a, &b, TFD_COLLECTIVE_REDUCE_SCATTER, dtypes[d], 5003,
                  (tfd_reduce_op)op));
    }
  }
  tfd__release(a.group);
  tfd__release(b.group);
  return 0;
}

static void the_same_bits_as_over_tcp(void **state) {
  (void)state;
  run_all(two_ways, 2, 1);
  run_all(two_ways, 3, 1);
  run_all(two_ways, 3, 2);
}

/* --- memory that the group lends ------------------------------------------ */

/* What is lent may be left where it is by some and staged by others. */
static int lent_values(int process, int processes, int local) {
  static const int dtypes[] = {TFD_FLOAT32, TFD_BFLOAT16, TFD_INT64, TFD_INT8};
  tfd__network n = network_of(process, processes);
  world w = {0};
  size_t d;
  int turn;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (turn = 0; turn < 5; turn++) {
    w.lends = turn == 0 ? LENDS_ALL : LENDS_SOME;
    for (d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
      case_reductions(&w, dtypes[d], 8193 + turn, TFD_REDUCE_SUM);
      case_scatter(&w, dtypes[d], 3001, TFD_REDUCE_SUM);
      case_broadcast(&w, dtypes[d], 8191);
      case_gather(&w, dtypes[d], 3001, false);
      case_pieces(&w, dtypes[d], 3001);
    }
    case_reductions(&w, TFD_FLOAT32, 300001 / SHORTER + turn, TFD_REDUCE_MEAN);
    case_reductions(&w, TFD_FLOAT32, 20001 / SHORTER, TFD_REDUCE_MAX);
  }
  tfd__release(w.group);
  return tfd_live_handles(TFD_HANDLE_BUFFER) == 0 ? 0 : 2;
}

/* Rounds that need no slots are longer than those before it is known: 2 of 512
** KiB, then of 4 MiB. */
static int several_rounds(int process, int processes, int local) {
  static const int64_t bytes[] = {1 << 20, (1 << 20) + 8, 5 << 20,
                                  (9 << 20) + 24};
  tfd__network n = network_of(process, processes);
  world w = {0};
  size_t i;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (i = 0; i < (SHORTER > 1 ? 3 : sizeof bytes / sizeof *bytes); i++) {
    w.lends = LENDS_ALL;
    case_reductions(&w, TFD_FLOAT32, bytes[i] / 4, TFD_REDUCE_SUM);
    case_reductions(&w, TFD_INT64, bytes[i] / 8, TFD_REDUCE_SUM);
    w.lends = LENDS_SOME;
    case_reductions(&w, TFD_BFLOAT16, bytes[i] / 2, TFD_REDUCE_SUM);
  }
  tfd__release(w.group);
  return tfd_live_handles(TFD_HANDLE_BUFFER) == 0 ? 0 : 2;
}

static void long_rounds_give_the_same_results(void **state) {
  (void)state;
  run_all(several_rounds, 2, 1);
  run_all(several_rounds, 3, 1);
  run_all(several_rounds, 2, 2);
}

static void lent_memory_gives_the_same_results(void **state) {
  (void)state;
  run_all(lent_values, 1, 1);
  run_all(lent_values, 2, 1);
  run_all(lent_values, 3, 1);
  run_all(lent_values, 2, 2);
}

/* More blocks than there are; their memory is each one's own, outlives the
** group, and is used again. */
static int many_blocks(int process, int processes, int local) {
  enum { BUFFERS = 400, BYTES = 5000 };
  tfd__network n = network_of(process, processes);
  world w = {0};
  tfd__buffer *b[BUFFERS];
  char *first = NULL;
  int turn;
  int i;
  int j;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (turn = 0; turn < 2; turn++) {
    for (i = 0; i < BUFFERS; i++) {
      CHECK(tfd__group_buffer(w.group, 0, BYTES, &b[i]) == TFD_OK);
      memset(b[i]->data, i % 251, BYTES);
    }
    CHECK(turn == 0 || b[0]->data == first);
    first = b[0]->data;
    if (turn == 1) tfd__release(w.group);
    for (i = 0; i < BUFFERS; i++) {
      const unsigned char *bytes = b[i]->data;

      for (j = 0; j < BYTES; j++) CHECK(bytes[j] == i % 251);
    }
    for (i = 0; i < BUFFERS; i++) {
      tfd__release(b[(i * 7 + turn) % BUFFERS]); /* in another order */
    }
  }
  return tfd_live_handles(TFD_HANDLE_BUFFER) == 0 ? 0 : 2;
}

static void lent_memory_is_its_owners_for_as_long_as_it_likes(void **state) {
  (void)state;
  run_all(many_blocks, 2, 1);
}

/* Three values in packs whose results are wanted behind one another: they are
** reduced where they are wanted. */
static int packed(int process, int processes, int local) {
  enum { VALUES = 3 };
  static const int64_t sizes[VALUES] = {70001, 3, 20000};
  const tfd__pack_plan plan = {.bytes = 100000, .backwards = true};
  tfd__network n = network_of(process, processes);
  world w = {0};
  pieces in[VALUES];
  tfd__view views[VALUES];
  tfd__piece given[VALUES];
  tfd__piece wanted[VALUES];
  tfd__collective c = {.kind = TFD_COLLECTIVE_ALL_REDUCE,
                       .op = TFD_REDUCE_SUM,
                       .values = VALUES,
                       .what = "packed",
                       .in = given,
                       .out = wanted};
  tfd__buffer *b = NULL;
  int64_t at = 0;
  int k;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(tfd__group_buffer(w.group, 0, 90004 * sizeof(float), &b) == TFD_OK);
  for (k = VALUES - 1; k >= 0; k--) {
    make_pieces(&w, &in[k], TFD_FLOAT32, sizes[k]);
    fill_pieces(&w, &in[k], c.op);
    given[k] = in[k].list[0];
    views[k] = in[k].views[0];
    views[k].data = (float *)b->data + at;
    at += sizes[k];
    wanted[k] = (tfd__piece){b, &views[k]};
  }
  CHECK(tfd__group_all_reduce_packed(w.group, &c, &plan,
                                     tfd__deadline_in(60)) == TFD_OK);
  at = 0;
  for (k = VALUES - 1; k >= 0; k--) {
    tfd__view all = {.data = b->data, .dtype = TFD_FLOAT32};
    tfd__piece whole = {b, &all};

    expect_run(&w, &whole, at, sizes[k], -1, 0, c.op);
    expect_run(&w, &in[k].list[0], 0, sizes[k], process, 0, c.op);
    at += sizes[k];
    drop_pieces(&w, &in[k]);
  }
  tfd__release(b);
  tfd__release(w.group);
  return tfd_live_handles(TFD_HANDLE_BUFFER) == 0 ? 0 : 2;
}

static void packs_are_reduced_where_they_are_wanted(void **state) {
  (void)state;
  run_all(packed, 1, 1);
  run_all(packed, 2, 1);
  run_all(packed, 3, 1);
}

/* --- order ---------------------------------------------------------------- */

static void tickets_are_waited_for_in_any_order(void **state) {
  (void)state;
  run_all(several_under_way, 2, 1);
  run_all(several_under_way, 3, 2);
}

/* --- what stays ----------------------------------------------------------- */

static int entries_of(const char *path) {
  DIR *d = opendir(path);
  int n = 0;

  if (d == NULL) return -1;
  while (readdir(d) != NULL) n++;
  (void)closedir(d);
  return n;
}

static bool is_in_dev_shm(void) {
  DIR *d = opendir("/dev/shm");
  struct dirent *e = NULL;
  bool found = false;

  while (d != NULL && (e = readdir(d)) != NULL) {
    found = found || strstr(e->d_name, "tfdist") != NULL;
  }
  if (d != NULL) (void)closedir(d);
  return found;
}

static void deaths_at_any_moment_leave_nothing(void **state) {
  (void)state;
  many_deaths(12);
  assert_false(is_in_dev_shm());
}

static int opened_twice(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int before = 0;
  int i;

  (void)device(0);
  for (i = 0; i < 3; i++) {
    CHECK(open_world(&n, local, &w) == TFD_OK);
    CHECK(sum_ones(&w, 100000, 60) == TFD_OK);
    CHECK(!is_in_dev_shm());
    tfd__release(w.group);
    if (i == 0) before = entries_of("/proc/self/fd");
  }
  CHECK(entries_of("/proc/self/fd") == before);
  return 0;
}

static void no_descriptor_stays(void **state) {
  (void)state;
  run_all(opened_twice, 3, 1);
}

/* --- signals -------------------------------------------------------------- */

static void do_nothing(int number) {
  (void)number;
}

/* What waits for a socket with a limit comes back with EINTR, as it does after
** a stop: whatever the handler says. */
static int under_signals(int process, int processes, int local) {
  const struct itimerspec often = {{0, 100000}, {0, 100000}};
  const struct itimerspec never = {{0, 0}, {0, 0}};
  struct sigaction act = {.sa_handler = do_nothing, .sa_flags = SA_RESTART};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                           .sigev_signo = SIGUSR1};
  tfd__network n = network_of(process, processes);
  timer_t timer;
  int turn;

  (void)device(0);
  CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  for (turn = 0; turn < 20; turn++) {
    world w = {0};

    if (process == 1) CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    CHECK(open_world(&n, local, &w) == TFD_OK);
    CHECK(timer_settime(timer, 0, &never, NULL) == 0);
    CHECK(sum_ones(&w, 10, 60) == TFD_OK);
    tfd__release(w.group);
  }
  return 0;
}

static void signals_do_not_end_an_opening(void **state) {
  (void)state;
  run_all(under_signals, 2, 1);
}

static void interrupt(int number) {
  (void)number;
  tfd__interrupt_set(true);
}

static int victim;

/* The victim is stopped until it is interrupted; the other one is busy. */
static int interrupted_there(int process, int processes, int local) {
  struct sigaction act = {.sa_handler = interrupt};
  tfd__network n = network_of(process, processes);
  world w = {0};

  CHECK(sigaction(SIGINT, &act, NULL) == 0);
  CHECK(tfd__failpoints_set(process == victim
                                ? "shm.hand=stop"
                                : "shm.hand=sleep:100000") == TFD_OK);
  CHECK(open_world(&n, local, &w) == TFD_ABORTED);
  CHECK(strstr(tfd_error_message(), "interrupted") != NULL);
  CHECK(ran_since_mark() < 2);
  return 0;
}

/* Who hands out or asks is alone with it. */
static void an_interrupt_ends_the_hand_out(void **state) {
  int i;

  (void)state;
  for (victim = 0; victim < 2; victim++) {
    pid_t children[2];
    int status = 0;

    make_addresses();
    for (i = 0; i < 2; i++) children[i] = start(interrupted_there, i, 2, 1);
    assert_int_equal(children[victim],
                     waitpid(children[victim], &status, WUNTRACED));
    assert_true(WIFSTOPPED(status));
    mark_moment();
    assert_int_equal(0, kill(children[victim], SIGINT));
    assert_int_equal(0, kill(children[victim], SIGCONT));
    assert_int_equal(0, status_of(children[victim]));
    assert_int_equal(0, kill(children[1 - victim], SIGKILL));
    assert_int_equal(128 + SIGKILL, status_of(children[1 - victim]));
  }
}

/* --- who cannot ----------------------------------------------------------- */

/* Process 0 cannot have memory; whoever named the provider is told, and others
** have another one. */
static int without_memory(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  if (process == 0) {
    const struct rlimit none = {0};

    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
  }
  CHECK(open_world(&n, local, &w) == TFD_UNAVAILABLE);
  CHECK(strstr(tfd_error_message(), "process 0") != NULL);
  CHECK(strstr(tfd_error_message(), "cannot share memory") != NULL);
  tested = NULL;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(strcmp("tcp", w.group->provider->name) == 0);
  CHECK(sum_ones(&w, 1000, 60) == TFD_OK);
  tfd__release(w.group);
  return 0;
}

static void without_memory_they_go_over_tcp(void **state) {
  (void)state;
  run_all(without_memory, 3, 1);
}

static int chosen(int process, int processes, int local) {
  static const char *const lists[][2] = {
      {"10.0.0.1:1000", "10.0.0.1:1001"},
      {"10.0.0.1:1000", "10.0.0.2:1000"},
      {"127.0.0.1:1000", "localhost:1001"},
  };
  tfd__network n = network_of(process, processes);
  tfd_device *d = device(0);
  world w = {0};
  int i;

  tested = NULL;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(strcmp("shm", w.group->provider->name) == 0);
  tfd__release(w.group);
  for (i = 0; i < 3; i++) {
    tfd__network other = {.processes = 2, .addresses = lists[i]};
    tfd__group_config c = {
        .devices = &d, .local = 1, .size = 2, .network = &other};

    CHECK(tfd__shm_provider.can(&c) == (i == 1 ? TFD_UNAVAILABLE : TFD_OK));
  }
  return 0;
}

static void it_is_chosen_on_one_machine(void **state) {
  (void)state;
  run_all(chosen, 2, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case),
      cmocka_unit_test(long_values_of_every_kind),
      cmocka_unit_test(few_bytes_at_once_or_by_tickets),
      cmocka_unit_test(other_lengths_are_told),
      cmocka_unit_test(a_fault_of_one_process_fails_all),
      cmocka_unit_test(the_same_bits_as_over_tcp),
      cmocka_unit_test(lent_memory_gives_the_same_results),
      cmocka_unit_test(long_rounds_give_the_same_results),
      cmocka_unit_test(lent_memory_is_its_owners_for_as_long_as_it_likes),
      cmocka_unit_test(packs_are_reduced_where_they_are_wanted),
      cmocka_unit_test(tickets_are_waited_for_in_any_order),
      FAULT_TESTS,
      cmocka_unit_test(deaths_at_any_moment_leave_nothing),
      cmocka_unit_test(no_descriptor_stays),
      cmocka_unit_test(signals_do_not_end_an_opening),
      cmocka_unit_test(an_interrupt_ends_the_hand_out),
      cmocka_unit_test(without_memory_they_go_over_tcp),
      cmocka_unit_test(it_is_chosen_on_one_machine),
  };

  tested = "shm";
  configure("2", "queued");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
