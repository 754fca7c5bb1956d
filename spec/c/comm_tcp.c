/* Groups of processes over TCP: the case table, each rank set a process of its
** own, and what happens when one of them goes away, hangs or says something
** else. How they meet is comm_meeting's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "comm/tcp/peers.h"
#include "comm/tcp/work.h"
#include "comm_processes.h"

/* --- the case table ------------------------------------------------------- */

static void every_case(void **state) {
  int processes;

  (void)state;
  for (processes = 2; processes <= MOST; processes += STRIDE) {
    run_all(all_cases, processes, 1);
  }
  run_all(all_cases, 2, 2);
  run_all(all_cases, 3, 2);
}

/* The ways that have steps, each under its own name. */
static void every_case_in_other_ways(void **state) {
  static const char *const ways[] = {"ring", "halving", "doubling"};
  size_t k;
  int processes;

  (void)state;
  for (k = 0; k < sizeof ways / sizeof ways[0]; k++) {
    tested = ways[k];
    for (processes = 1; processes <= MOST; processes += STRIDE) {
      run_all(all_cases, processes, 1);
    }
    run_all(all_cases, 3, 2);
    run_all(long_values, 3, 1);
  }
  tested = "tcp";
}

#define BIG 16777216.0f
#define BIG_2 16777218.0f
#define GIVEN \
  { BIG, 0, 1, 1 }

static void every_way_adds_in_its_own_order(void **state) {
  static const order_case cases[] = {
      {"tcp", 256, GIVEN, {BIG, BIG, BIG, BIG}}, /* ((a + b) + c) + d */
      {"doubling", 256, GIVEN, {BIG_2, BIG_2, BIG_2, BIG_2}},
      /* (a + b) + (c + d) */
      {"halving", 256, GIVEN, {BIG, BIG, BIG, BIG}},  /* (a + c) + (b + d) */
      {"ring", 256, GIVEN, {BIG, BIG_2, BIG_2, BIG}}, /* from its own on */
  };
  size_t k;

  (void)state;
  for (k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    order = &cases[k];
    run_all(in_its_order, 4, 1);
  }
}

/* --- several under way ---------------------------------------------------- */

static void collectives_are_waited_for_in_any_order(void **state) {
  (void)state;
  run_all(several_under_way, 2, 1);
  run_all(several_under_way, 3, 2);
  tested = "ring";
  run_all(several_under_way, 4, 1);
  tested = "tcp";
  run_all(orders_differ, 3, 1);
}

/* --- deaths --------------------------------------------------------------- */

static void a_death_in_a_ring_fails_all_within_two_seconds(void **state) {
  (void)state;
  tested = "ring";
  many_deaths(3);
  tested = "tcp";
}

/* --- ordered faults ------------------------------------------------------- */

static void a_fault_of_one_process_fails_all(void **state) {
  static const ordered_fault cases[] = {
      CHUNK_FAULTS,
      {"net.send=econnreset@6@rank1", "process", 0, 100000},
      {"net.send=flip@6@rank1", "process 1 of 3", 0, 100000},
      {"net.receive=flip@6@rank1", "process", 0, 100000},
      {"net.receive=etimedout@6@rank1", "process", 0, 100000},
  };

  (void)state;
  run_faults(cases, sizeof cases / sizeof *cases);
}

/* --- aborts --------------------------------------------------------------- */

/* Heartbeats until there is no room for one more; how many. A local socket
** takes each as a whole or not at all. */
static int fill_with_beats(int socket) {
  const tfd__frame beat = {.type = TFD_FRAME_BEAT};
  uint8_t bytes[TFD_FRAME_BYTES];
  int n = 0;

  tfd__frame_write(&beat, bytes);
  while (send(socket, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) n++;
  return n;
}

/* Wait until the mesh's thread has done all that it was woken for: it forgets
** that first, and has come to the end of a turn when it forgets again. */
static void let_it_turn(tfd__mesh *m) {
  struct pollfd p = {.fd = m->wake, .events = POLLIN};
  int turn;

  for (turn = 0; turn < 2; turn++) {
    tfd__mesh_wake(m);
    while (poll(&p, 1, 0) > 0) (void)poll(NULL, 0, 1);
  }
}

/* Process 0 of 2 without a meeting; ends[c] are what process 1 has. */
static int open_between(world *w, int ends[TFD_CHANNELS], int *beats_p) {
  tfd__peer_sockets *sockets = tfd__calloc(2, sizeof *sockets);
  tfd__circle circle = {.processes = 2, .numbers = {0, 1}};
  tfd__network n = network_of(0, 2);
  tfd__tcp_group *own = NULL;
  int c;

  n.within = &circle;
  CHECK(open_world(&n, 1, w) == TFD_OK);
  for (c = 0; c < TFD_CHANNELS; c++) {
    int pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    sockets[0].socket[c] = -1;
    sockets[1].socket[c] = pair[0];
    ends[c] = pair[1];
  }
  *beats_p = fill_with_beats(sockets[1].socket[TFD_CHANNEL_CONTROL]);
  own = w->group->own;
  own->circle.owned = true;
  CHECK(tfd__mesh_new(w->group, &n, sockets, &own->circle.mesh) == TFD_OK);
  return 0;
}

static bool damaged;

/* Process 1 says that it has failed, maybe in words of another sum. */
static int aborts_in_damaged_words(int process, int processes, int local) {
  static const char text[] = "the disk is full";
  uint8_t bytes[TFD_FRAME_BYTES];
  tfd__frame f = {.type = TFD_FRAME_ABORT,
                  .tag = TFD_ABORTED,
                  .length = strlen(text),
                  .sum = tfd__crc32c(0, text, strlen(text))};
  int ends[TFD_CHANNELS];
  world w = {0};
  int beats = 0;
  int c;

  (void)process;
  (void)processes;
  (void)local;
  if (damaged) f.sum ^= 1;
  tfd__frame_write(&f, bytes);
  CHECK(open_between(&w, ends, &beats) == 0);
  CHECK(send(ends[TFD_CHANNEL_CONTROL], bytes, sizeof bytes, 0) ==
        sizeof bytes);
  CHECK(send(ends[TFD_CHANNEL_CONTROL], text, strlen(text), 0) ==
        (ssize_t)strlen(text));
  let_it_turn(((tfd__tcp_group *)w.group->own)->circle.mesh);
  CHECK(sum_ones(&w, 10, 60) == TFD_ABORTED);
  CHECK((strstr(tfd_error_message(), text) == NULL) == damaged);
  CHECK((strstr(tfd_error_message(), "damaged") != NULL) == damaged);
  for (c = 0; c < TFD_CHANNELS; c++) (void)close(ends[c]);
  tfd__release(w.group);
  return 0;
}

static void words_of_an_abort_have_a_sum(void **state) {
  (void)state;
  place_them();
  for (int i = 0; i < 2; i++) {
    damaged = i == 1;
    assert_int_equal(0, status_of(start(aborts_in_damaged_words, 0, 2, 1)));
  }
}

/* A heartbeat waits for room when the abort comes. */
static int aborts_behind_a_beat(int process, int processes, int local) {
  char text[4090];
  char got[TFD_NOTE_BYTES];
  uint8_t bytes[TFD_FRAME_BYTES];
  tfd__frame f = {.type = TFD_FRAME_BEAT};
  int ends[TFD_CHANNELS];
  world w = {0};
  int beats = 0;
  int frames;
  int c;

  (void)process;
  (void)processes;
  (void)local;
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  CHECK(open_between(&w, ends, &beats) == 0);
  tfd__group_abort(w.group, text);
  let_it_turn(((tfd__tcp_group *)w.group->own)->circle.mesh);
  for (frames = 0; f.type == TFD_FRAME_BEAT; frames++) {
    CHECK(frames < beats + 2);
    CHECK(recv(ends[TFD_CHANNEL_CONTROL], bytes, sizeof bytes, MSG_WAITALL) ==
          sizeof bytes);
    CHECK(tfd__frame_read(bytes, &f));
  }
  CHECK(f.type == TFD_FRAME_ABORT);
  CHECK(f.length == strlen(text));
  CHECK(recv(ends[TFD_CHANNEL_CONTROL], got, f.length, MSG_WAITALL) ==
        (ssize_t)f.length);
  CHECK(memcmp(got, text, f.length) == 0);
  for (c = 0; c < TFD_CHANNELS; c++) (void)close(ends[c]);
  tfd__release(w.group);
  return 0;
}

static void an_abort_finds_room_behind_a_beat(void **state) {
  (void)state;
  make_addresses();
  assert_int_equal(0, status_of(start(aborts_behind_a_beat, 0, 2, 1)));
}

/* --- leaving -------------------------------------------------------------- */

static int after_leaving(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  tfd__groups_leave(0);
  CHECK(sum_ones(&w, 10, 60) == TFD_FAILED_PRECONDITION);
  CHECK(strstr(tfd_error_message(), "has left its group of 2 ranks") != NULL);
  tfd__release(w.group);
  return 0;
}

static void calls_after_leaving_say_so(void **state) {
  (void)state;
  run_all(after_leaving, 2, 1);
}

/* --- what is said of who is gone ------------------------------------------ */

/* Process 1 waits in its first sum, for good; process 0 has heard of it. */
static int hears_where(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  char text[1024] = "";
  world w = {0};
  int looks = 12000;

  n.beat_timeout = 10;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  if (process == 1) return sum_ones(&w, 1000, 120);
  while (strstr(text, "in collective 1, ") == NULL && looks-- > 0) {
    w.group->provider->late(w.group, 2, text, sizeof text);
    (void)poll(NULL, 0, 5);
  }
  come_to(POINT_TOLD);
  while (tfd__group_check(w.group, "look") == TFD_OK) (void)poll(NULL, 0, 5);
  (void)snprintf(text, sizeof text, "(%s, pid ", address_list[1]);
  CHECK(strstr(tfd_error_message(), text) != NULL);
  CHECK(strstr(tfd_error_message(),
               ") was last heard of in collective 1, all_reduce sum of "
               "float32[1000] at train.lua:40; process 0 (this one) is in no "
               "collective") != NULL);
  tfd__release(w.group);
  return 0;
}

static void who_is_gone_is_told_with_where_it_was(void **state) {
  pid_t children[2];
  int i;

  (void)state;
  make_addresses();
  for (i = 0; i < 2; i++) children[i] = start(hears_where, i, 2, 1);
  (void)wait_for(POINT_TOLD, 1);
  (void)kill(children[1], SIGKILL);
  assert_int_equal(128 + SIGKILL, status_of(children[1]));
  assert_int_equal(0, status_of(children[0]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case),
      cmocka_unit_test(every_case_in_other_ways),
      cmocka_unit_test(every_way_adds_in_its_own_order),
      cmocka_unit_test(long_values_of_every_kind),
      cmocka_unit_test(collectives_are_waited_for_in_any_order),
      FAULT_TESTS,
      cmocka_unit_test(a_death_at_any_moment_fails_all_within_two_seconds),
      cmocka_unit_test(a_death_in_a_ring_fails_all_within_two_seconds),
      cmocka_unit_test(a_fault_of_one_process_fails_all),
      cmocka_unit_test(words_of_an_abort_have_a_sum),
      cmocka_unit_test(an_abort_finds_room_behind_a_beat),
      cmocka_unit_test(calls_after_leaving_say_so),
      cmocka_unit_test(who_is_gone_is_told_with_where_it_was),
  };

  tested = "tcp";
  configure("2", "queued");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
