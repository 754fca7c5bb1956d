/* Groups of processes on several hosts, which are loopback addresses here: the
** case table over even and ragged ones, the order of sums, and the same faults
** as of all groups of processes. */
#define _GNU_SOURCE
#include <limits.h>
#include <unistd.h>

#include "comm_processes.h"

/* How many processes each host has, host by host; 0 = no more. */
typedef struct layout {
  int on[MOST];
} layout;

/* Processes of one host have one address. */
static void place(const layout *l) {
  int p = 0;
  int h;

  make_addresses();
  for (h = 0; h < MOST && l->on[h] > 0; h++) {
    int i;

    for (i = 0; i < l->on[h]; i++, p++) {
      char *port = strchr(addresses[p], ':');
      char text[32];

      (void)snprintf(text, sizeof text, "127.%d.%d.%d%s", 201 + h,
                     (int)getpid() >> 8 & 255, 1 + (int)getpid() % 250, port);
      (void)snprintf(addresses[p], sizeof addresses[p], "%s", text);
    }
  }
}

static int processes_of(const layout *l) {
  int n = 0;
  int h;

  for (h = 0; h < MOST; h++) n += l->on[h];
  return n;
}

static void run_placed(body fn, const layout *l, int local) {
  place(l);
  run_but(fn, processes_of(l), local, -1, 0);
}

/* --- the case table ------------------------------------------------------- */

static const layout pairs = {{2, 2}};
static const layout uneven = {{1, 3}};
static const layout alone = {{1, 1}};
static const layout four = {{1, 1, 1, 1}};

static void every_case(void **state) {
  static const layout layouts[] = {{{2}},    {{1, 1}}, {{2, 2}},
                                   {{1, 3}}, {{2, 3}}, {{2, 2, 1}}};
  size_t i = 0;

  (void)state;
  if (getenv("TFD_LONG") == NULL) i = 2; /* these are shm's and tcp's cases */
  for (; i < sizeof layouts / sizeof *layouts; i++) {
    run_placed(all_cases, &layouts[i], 1);
  }
  run_placed(all_cases, &pairs, 2);
  run_placed(all_cases, &uneven, 2);
}

static void long_values_of_hosts(void **state) {
  (void)state;
  run_placed(long_values, &pairs, 1);
  run_placed(long_values, &uneven, 1);
}

/* --- order ---------------------------------------------------------------- */

#define BIG 16777216.0f
#define BIG_2 16777218.0f

static void hosts_are_added_up_before_they_meet(void **state) {
  static const order_case by_hosts = {"hierarchical", /* (a + b) + (c + d) */
                                      300,
                                      {BIG, 0, 1, 1},
                                      {BIG_2, BIG_2, BIG_2, BIG_2}};
  static const order_case flat = {"hierarchical", /* ((a + b) + c) + d */
                                  300,
                                  {BIG, 0, 1, 1},
                                  {BIG, BIG, BIG, BIG}};
  static const order_case over_tcp = {
      "tcp", 300, {BIG, 0, 1, 1}, {BIG, BIG, BIG, BIG}};

  (void)state;
  order = &by_hosts;
  run_placed(in_its_order, &pairs, 1);
  order = &flat;
  run_placed(in_its_order, &four, 1);
  order = &over_tcp;
  run_placed(in_its_order, &pairs, 1);
}

/* Hosts whose processes have other numbers than one behind the other. */
static void processes_of_a_host_need_not_be_neighbours(void **state) {
  static const order_case crossed = {"hierarchical", /* (a + c) + (b + d) */
                                     300,
                                     {BIG, 1, 0, 1},
                                     {BIG_2, BIG_2, BIG_2, BIG_2}};
  char kept[32];

  (void)state;
  order = &crossed;
  place(&pairs);
  memcpy(kept, addresses[1], sizeof kept);
  memcpy(addresses[1], addresses[2], sizeof kept);
  memcpy(addresses[2], kept, sizeof kept);
  run_but(in_its_order, 4, 1, -1, 0);
}

static void sums_are_waited_for_in_any_order(void **state) {
  (void)state;
  run_placed(several_under_way, &pairs, 1);
  run_placed(several_under_way, &uneven, 2);
  run_placed(several_under_way, &alone, 2);
}

static bool takes(const char *name, const char *const *list, int processes) {
  tfd_device *devices[1] = {device(0)};
  tfd__network n = {.processes = processes, .addresses = list};
  tfd__group_config config = {
      .devices = devices, .local = 1, .size = processes, .network = &n};
  const tfd__provider *p = NULL;

  return tfd__provider_find(NULL, &config, INT_MAX, &p) == TFD_OK &&
         strcmp(name, p->name) == 0;
}

static int unnamed(int process, int processes, int local) {
  static const char *const list[] = {"a:1", "b:1", "b:2", "a:2", "c:1"};

  (void)process;
  (void)processes;
  (void)local;
  CHECK(takes("hierarchical", list, 5));
  CHECK(takes("hierarchical", list, 3));
  CHECK(takes("tcp", list, 2));
  CHECK(takes("shm", list + 1, 2));
  return 0;
}

static void hosts_of_several_processes_are_taken_for_such(void **state) {
  (void)state;
  assert_int_equal(0, status_of(start(unnamed, 0, 1, 1)));
}

/* --- failures ------------------------------------------------------------- */

/* Two processes call what goes another way than what the others call. They hear
** of it from outside of their collectives: so all have had the first sum. */
static int ways_differ(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  pieces p;
  tfd__collective c =
      collective(TFD_COLLECTIVE_BROADCAST, TFD_REDUCE_SUM, &p, &p);
  int64_t begin = 0;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 100, 60) == TFD_OK);
  CHECK(all_come_to(POINT_WORK, processes));
  begin = ran_by_now();
  if (process < 2) {
    CHECK(sum_ones(&w, 100, 120) == TFD_ABORTED);
  } else {
    make_pieces(&w, &p, TFD_FLOAT32, 100);
    fill_pieces(&w, &p, c.op);
    CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(120)) == TFD_ABORTED);
    drop_pieces(&w, &p);
  }
  CHECK(ran_since(begin) < AT_ONCE_S);
  CHECK(strstr(tfd_error_message(), "run apart at collective 2") != NULL);
  tfd__release(w.group);
  return 0;
}

static void calls_that_go_other_ways_are_told(void **state) {
  (void)state;
  run_placed(ways_differ, &pairs, 1);
}

/* Process 2 is gone while the others are in the middle of sums. */
static int one_of_a_host_dies(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int rc = TFD_OK;
  int i;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (i = 0; i < 4 && rc == TFD_OK; i++) {
    if (process == 2 && i == 3) {
      mark_moment();
      (void)kill(getpid(), SIGKILL);
    }
    rc = sum_ones(&w, 100000, 60);
  }
  CHECK(rc == TFD_ABORTED);
  CHECK(ran_since_mark() < DEATH_S);
  CHECK(strstr(tfd_error_message(), "process 2 of 4 is gone") != NULL);
  tfd__release(w.group);
  return 0;
}

static void a_death_in_one_host_fails_all(void **state) {
  const layout *layouts[] = {&pairs, &uneven};
  int k;

  (void)state;
  for (k = 0; k < 2; k++) {
    place(layouts[k]);
    run_but(one_of_a_host_dies, 4, 1, 2, 128 + SIGKILL);
  }
}

/* Three processes are two on the second host, the first one alone; two have a
** host each. */
static void place_on_two_hosts(void) {
  static const layout one_and_two = {{1, 2}};

  place(&one_and_two);
}

static void a_fault_of_one_process_fails_all(void **state) {
  static const ordered_fault cases[] = {
      CHUNK_FAULTS,
      {"net.send=econnreset@6@rank1", "process", 0, 100000},
      {"net.receive=flip@6@rank1", "process", 0, 100000},
  };

  (void)state;
  run_faults(cases, sizeof cases / sizeof *cases);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case),
      cmocka_unit_test(long_values_of_hosts),
      cmocka_unit_test(hosts_are_added_up_before_they_meet),
      cmocka_unit_test(processes_of_a_host_need_not_be_neighbours),
      cmocka_unit_test(sums_are_waited_for_in_any_order),
      cmocka_unit_test(hosts_of_several_processes_are_taken_for_such),
      cmocka_unit_test(calls_that_go_other_ways_are_told),
      cmocka_unit_test(a_death_in_one_host_fails_all),
      FAULT_TESTS,
      cmocka_unit_test(a_death_at_any_moment_fails_all_within_two_seconds),
      cmocka_unit_test(a_fault_of_one_process_fails_all),
  };

  configure("2", "queued");
  tested = "hierarchical";
  place_them = place_on_two_hosts;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
