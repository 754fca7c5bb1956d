/* How processes meet over TCP: who may join and who is told that it may not,
** what strangers can do, who comes back, and the bytes of it all. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm_knock.h"

/* Faults at the start are tried again, not told. */
static int found_in_the_end(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  CHECK(tfd__failpoints_set("net.connect=econnrefused@2;net.name=eio@3;"
                            "net.accept=eio@1;"
                            "meet.begin=sleep:30@rank1") == TFD_OK);
  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  tfd__release(w.group);
  return 0;
}

static void connections_that_fail_are_tried_again(void **state) {
  (void)state;
  run_all(found_in_the_end, 3, 1);
}

/* --- who may join --------------------------------------------------------- */

static int with_secret(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  n.secret = "a long secret";
  n.secret_bytes = 13;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  tfd__release(w.group);
  return 0;
}

static void a_secret_that_all_know_opens(void **state) {
  (void)state;
  run_all(with_secret, 3, 1);
}

/* Process 0 goes on waiting, again and again until process 1 has been told. */
static int waits_in_vain(tfd__network *n, int local) {
  int tries = 2 * POINT_S;

  n->start_timeout = 0.5;
  do {
    world w = {0};

    CHECK(open_world(n, local, &w) == TFD_DEADLINE_EXCEEDED);
    CHECK(strstr(tfd_error_message(), "process 1 (127.") != NULL);
  } while (!have_come(POINT_TOLD, 1) && --tries > 0);
  return 0;
}

/* Process 1 connects to process 0 and is told. */
static int is_refused(const tfd__network *n, int local, const char *why) {
  world w = {0};

  CHECK(open_world(n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(strstr(tfd_error_message(), why) != NULL);
  come_to(POINT_TOLD);
  return 0;
}

static int other_secret(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);

  n.secret = process == 0 ? "one secret" : "two secret";
  n.secret_bytes = 10;
  return process == 0 ? waits_in_vain(&n, local)
                      : is_refused(&n, local, "the secrets differ");
}

static void another_secret_is_refused(void **state) {
  (void)state;
  run_all(other_secret, 2, 1);
}

static int no_secret(int process, int processes, int local) {
  static const char *const far[2] = {"192.0.2.1:2222", "192.0.2.2:2222"};
  tfd__network n = network_of(process, processes);
  world w = {0};

  n.addresses = far;
  CHECK(open_world(&n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(strstr(tfd_error_message(), "192.0.2.1:2222 can be reached") != NULL);
  CHECK(strstr(tfd_error_hint(), "TFDIST_SECRET") != NULL);
  n.insecure = true;
  CHECK(open_world(&n, local, &w) == TFD_UNAVAILABLE);
  CHECK(strstr(tfd_error_hint(), "none of that address") != NULL);
  return 0;
}

static void other_machines_need_a_secret(void **state) {
  (void)state;
  assert_int_equal(0, status_of(start(no_secret, 0, 2, 1)));
}

static int alone(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  n.start_timeout = 0.5;
  CHECK(open_world(&n, local, &w) == TFD_DEADLINE_EXCEEDED);
  CHECK(strstr(tfd_error_message(), "process 0 (127.") != NULL);
  CHECK(strstr(tfd_error_message(), "Connection refused") != NULL);
  return 0;
}

/* A name may come late, so that it is waited for, too. */
static int without_name(int process, int processes, int local) {
  static const char *const far[2] = {"nowhere.invalid:2222", "127.0.0.1:0"};
  tfd__network n = network_of(process, processes);
  world w = {0};

  n.addresses = far;
  n.insecure = true;
  n.start_timeout = 0.5;
  CHECK(open_world(&n, local, &w) == TFD_DEADLINE_EXCEEDED);
  CHECK(strstr(tfd_error_message(), "process 0 (nowhere.invalid:2222): ") !=
        NULL);
  CHECK(strstr(tfd_error_message(), "not heard of") == NULL);
  return 0;
}

static void who_is_missing_is_named(void **state) {
  (void)state;
  make_addresses();
  assert_int_equal(0, status_of(start(alone, 1, 2, 1)));
  assert_int_equal(0, status_of(start(without_name, 1, 2, 1)));
}

/* --- names whose answer is long in coming --------------------------------- */

/* Lookups behind the first one, which is that of this process's own number,
** take longer than anybody waits. An order counts who got past the one before.
*/
#define SLOW_NAMES "net.name=sleep:100000@2;net.name=sleep:100000@2"

static int with_slow_name(const char *orders, const char *const *list,
                          double seconds, int expected) {
  tfd__network n = network_of(1, 2);
  int64_t begin = ran_by_now();
  world w = {0};

  n.addresses = list;
  n.insecure = true;
  n.start_timeout = seconds;
  CHECK(tfd__failpoints_set(orders) == TFD_OK);
  CHECK(open_world(&n, 1, &w) == expected);
  CHECK(ran_since(begin) < AT_ONCE_S);
  return 0;
}

static int late_with_it(int process, int processes, int local) {
  const char *const list[2] = {"nowhere.invalid:2222", address_list[1]};

  (void)process;
  (void)processes;
  (void)local;
  CHECK(with_slow_name(SLOW_NAMES, list, 0.5, TFD_DEADLINE_EXCEEDED) == 0);
  CHECK(strstr(tfd_error_message(), "process 0 (nowhere.invalid:2222): its "
                                    "host is being looked up") != NULL);
  return 0;
}

static int interrupted_with_it(int process, int processes, int local) {
  const char *const list[2] = {"nowhere.invalid:2222", address_list[1]};

  (void)process;
  (void)processes;
  (void)local;
  tfd__interrupt_set(true);
  CHECK(with_slow_name(SLOW_NAMES, list, 60, TFD_CANCELLED) == 0);
  return 0;
}

static int interrupted_with_its_own(int process, int processes, int local) {
  const char *const list[2] = {address_list[0], "nowhere.invalid:2222"};

  (void)process;
  (void)processes;
  (void)local;
  tfd__interrupt_set(true);
  CHECK(with_slow_name("net.name=sleep:100000", list, 60, TFD_CANCELLED) == 0);
  return 0;
}

static void slow_names_hold_up_nobody(void **state) {
  (void)state;
  make_addresses();
  assert_int_equal(0, status_of(start(late_with_it, 1, 2, 1)));
  assert_int_equal(0, status_of(start(interrupted_with_it, 1, 2, 1)));
  assert_int_equal(0, status_of(start(interrupted_with_its_own, 1, 2, 1)));
}

/* --- strangers ------------------------------------------------------------ */

/* What a stranger says on connection i: nothing, a part of something, nonsense,
** a hello without a proof, with a wrong one, or what other protocols say. */
static size_t nonsense(int i, uint8_t bytes[512]) {
  static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  tfd__hello h = {.process = 1, .processes = 3, .local = 1, .meeting = 1};
  int k;

  memset(bytes, i % 2 == 0 ? 0xff : 0, 512);
  switch (i % 6) {
  case 0:
    return 0;
  case 1:
    return 1;
  case 2:
    for (k = 0; k < 512; k++) bytes[k] = (uint8_t)((i + k) * 37 >> 3);
    return 512;
  case 3:
    tfd__hello_write(&h, bytes);
    return TFD_HELLO_BYTES;
  case 4:
    h.has_secret = true;
    tfd__hello_write(&h, bytes);
    return 512;
  default:
    memcpy(bytes, http, sizeof http);
    return sizeof http;
  }
}

/* Such connections all the time, a hundred at once. */
static int stranger(int process, int processes, int local) {
  int open[100];
  int i;

  (void)process;
  (void)processes;
  (void)local;
  for (i = 0; i < 100; i++) open[i] = -1;
  for (i = 0; i < INT_MAX; i++) {
    uint8_t bytes[512];
    size_t n = nonsense(i, bytes);
    int *s = &open[i % 100];

    if (*s >= 0) (void)close(*s);
    *s = knock();
    if (n > 0 && send(*s, bytes, n, MSG_NOSIGNAL) < 0) (void)poll(NULL, 0, 1);
  }
  return 0;
}

/* Three processes that run fn end well while a stranger knocks. */
static void run_among_strangers(body fn) {
  pid_t children[3];
  pid_t bad;
  int i;

  make_addresses();
  bad = start(stranger, 0, 1, 1);
  for (i = 0; i < 3; i++) children[i] = start(fn, i, 3, 1);
  for (i = 0; i < 3; i++) assert_int_equal(0, status_of(children[i]));
  (void)kill(bad, SIGKILL);
  (void)status_of(bad);
}

static void strangers_disturb_nobody(void **state) {
  (void)state;
  run_among_strangers(with_secret);
}

enum { AT_ONCE = 64 }; /* that have not proved who they are */

/* Process 1 before its last word of the meeting and behind it, process 0 when
** one more knocks than there is room for: behind the two of process 1. */
static int stops_on_the_way(int process, int processes, int local) {
  char orders[64];

  (void)snprintf(orders, sizeof orders, "net.accept=stop@%d", 2 + AT_ONCE);
  CHECK(tfd__failpoints_set(process == 0 ? orders
                                         : "net.verdict=stop@2;"
                                           "meet.done=stop@1") == TFD_OK);
  return with_secret(process, processes, local);
}

static void wait_for_stop(pid_t child) {
  int status = 0;

  assert_int_equal(child, waitpid(child, &status, WUNTRACED));
  assert_true(WIFSTOPPED(status));
}

/* Strangers take the place of strangers: process 1 has met all others, and its
** last word, which process 0 has not heard yet, is its oldest connection's. */
static void who_is_let_in_is_no_stranger(void **state) {
  int strangers[AT_ONCE];
  pid_t children[2];
  int i;

  (void)state;
  make_addresses();
  for (i = 0; i < 2; i++) children[i] = start(stops_on_the_way, i, 2, 1);
  wait_for_stop(children[1]);
  for (i = 0; i < AT_ONCE; i++) {
    strangers[i] = knock();
    assert_true(strangers[i] >= 0);
  }
  wait_for_stop(children[0]);
  (void)kill(children[1], SIGCONT);
  wait_for_stop(children[1]);
  for (i = 0; i < 2; i++) (void)kill(children[i], SIGCONT);
  for (i = 0; i < 2; i++) assert_int_equal(0, status_of(children[i]));
  for (i = 0; i < AT_ONCE; i++) (void)close(strangers[i]);
}

/* They knock while collectives are under way, too. */
static int many_sums(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int i;

  n.secret = "a long secret";
  n.secret_bytes = 13;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (i = 0; i < 300; i++) CHECK(sum_ones(&w, 1000, 120) == TFD_OK);
  tfd__release(w.group);
  return 0;
}

static void strangers_find_the_door_shut(void **state) {
  (void)state;
  run_among_strangers(many_sums);
}

/* Without room for another connection it waits for it, and turns no circles. */
static int without_room(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  struct rlimit files = {64, 64};
  clock_t begin;
  int last = -1;
  int s = -1;

  CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
  while ((s = open("/dev/null", O_RDONLY)) >= 0) last = s;
  (void)close(last); /* it listens on this one */
  n.start_timeout = 2;
  begin = clock();
  CHECK(open_world(&n, local, &w) == TFD_DEADLINE_EXCEEDED);
  CHECK((double)(clock() - begin) / CLOCKS_PER_SEC < 1);
  return 0;
}

/* Fewer descriptors than connections that might come. */
static int with_few_descriptors(int process, int processes, int local) {
  struct rlimit files = {40, 40};

  CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
  return many_sums(process, processes, local);
}

static void a_low_limit_of_descriptors_is_enough(void **state) {
  (void)state;
  run_all(with_few_descriptors, 2, 1);
}

static int knocks(int process, int processes, int local) {
  (void)process;
  (void)processes;
  (void)local;
  while (!have_come(POINT_ENOUGH, 1)) {
    CHECK(knock() >= 0);
    (void)poll(NULL, 0, 50);
  }
  return 0;
}

static void who_finds_no_room_is_waited_for(void **state) {
  pid_t stranger;

  (void)state;
  make_addresses();
  stranger = start(knocks, 1, 2, 1);
  assert_int_equal(0, status_of(start(without_room, 0, 2, 1)));
  come_to(POINT_ENOUGH);
  assert_int_equal(0, status_of(stranger));
}

/* A task that begins anew is told that the others have met without it; so it is
** when others knock and say nothing. Process 1 has died before, after all had
** the sum. */
static int stays(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int rc;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  rc = sum_ones(&w, 10, 60);
  come_to(POINT_WORK);
  if (process == 1) (void)pause();
  CHECK(rc == TFD_OK);
  while (!have_come(POINT_ENOUGH, 1)) (void)poll(NULL, 0, 5);
  tfd__release(w.group);
  return 0;
}

static int comes_back(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int i;

  for (i = 0; i < 80; i++) CHECK(knock() >= 0);
  n.start_timeout = 1; /* the others may be about to find that it is gone */
  CHECK(open_world(&n, local, &w) == TFD_DEADLINE_EXCEEDED);
  CHECK(strstr(tfd_error_message(), "all have to be started again") != NULL);
  n.start_timeout = 0;
  n.beat_timeout = 0.5;
  CHECK(open_world(&n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(strstr(tfd_error_message(), "process 1 does not agree with process 0 ("
                                    "127.") != NULL);
  CHECK(strstr(tfd_error_message(), "all have to be started again") != NULL);
  CHECK(tfd_error_exit_code() == TFD_EXIT_PEER_FAILED);
  return 0;
}

static void who_comes_back_alone_is_told(void **state) {
  pid_t children[3];
  int i;

  (void)state;
  make_addresses();
  for (i = 0; i < 3; i++) children[i] = start(stays, i, 3, 1);
  (void)wait_for(POINT_WORK, 3);
  (void)kill(children[1], SIGKILL);
  assert_int_equal(128 + SIGKILL, status_of(children[1]));
  assert_int_equal(0, status_of(start(comes_back, 1, 3, 1)));
  come_to(POINT_ENOUGH);
  assert_int_equal(0, status_of(children[0]));
  assert_int_equal(0, status_of(children[2]));
}

/* --- who begins anew while all are waited for ----------------------------- */

/* `gone` was there and has ended; `first` is the one who knew it. */
static void begins_anew(int first, int gone, void (*pose)(int *sockets)) {
  int sockets[TFD_CHANNELS];
  pid_t children[3];
  int i;

  make_addresses();
  children[first] = start(sums_once, first, 3, 1);
  pose(sockets);
  for (i = 0; i < TFD_CHANNELS; i++) (void)close(sockets[i]);
  children[gone] = start(sums_once, gone, 3, 1);
  children[2] = start(sums_once, 2, 3, 1);
  for (i = 0; i < 3; i++) assert_int_equal(0, status_of(children[i]));
}

static void who_dies_meanwhile_may_come_back(void **state) {
  (void)state;
  begins_anew(0, 1, pose_as_one);
  begins_anew(1, 0, pose_as_zero);
}

/* A process whose next meeting has begun is no second one. */
static void who_is_ahead_is_not_there_twice(void **state) {
  int sockets[TFD_CHANNELS];
  tfd__talk t = {.heard_all = false};
  pid_t child;
  int i;

  (void)state;
  make_addresses();
  child = start(sums_once, 0, 3, 1);
  pose_as_one(sockets);
  while (!t.heard_all) {
    int s = knock_until_heard();
    tfd__hello mine;

    if (hello_of(s, &mine)) {
      mine.process = 1;
      mine.meeting++;
      t = talk_with(s, true, &mine);
    }
    (void)close(s);
  }
  assert_int_equal(TFD_VERDICT_LATER, t.verdict);
  (void)kill(child, SIGKILL);
  (void)status_of(child);
  for (i = 0; i < TFD_CHANNELS; i++) (void)close(sockets[i]);
}

static int is_there_twice(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  const char *from = NULL;
  world w = {0};

  CHECK(open_world(&n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(strstr(tfd_error_message(), "process 1 does not agree with process 0 ("
                                    "127.") != NULL);
  from = strstr(tfd_error_message(), "connected already from 127.");
  CHECK(from != NULL);
  CHECK(strstr(from, ", now 127.") != NULL);
  CHECK(strstr(tfd_error_hint(), "end one of them") != NULL);
  return 0;
}

static void who_is_there_twice_is_told_where(void **state) {
  int sockets[TFD_CHANNELS];
  pid_t children[2];
  int i;

  (void)state;
  make_addresses();
  children[0] = start(sums_once, 0, 3, 1);
  pose_as_one(sockets);
  children[1] = start(is_there_twice, 1, 3, 1);
  assert_int_equal(0, status_of(children[1]));
  (void)kill(children[0], SIGKILL);
  (void)status_of(children[0]);
  for (i = 0; i < TFD_CHANNELS; i++) (void)close(sockets[i]);
}

/* --- bytes ---------------------------------------------------------------- */

static void headers_come_back_and_no_bit_of_them_may_change(void **state) {
  tfd__frame f = {.type = TFD_FRAME_DATA,
                  .tag = 7,
                  .seq = UINT64_C(0x1234567890abcdef),
                  .what = 3,
                  .count = 5,
                  .length = UINT64_C(1) << 40,
                  .sum = 0xfedcba98};
  tfd__hello h = {.process = 3,
                  .processes = 9,
                  .local = 2,
                  .channel = 1,
                  .cluster = UINT64_C(0xfedcba9876543210),
                  .meeting = 5,
                  .pid = 4711,
                  .transport = 0x89abcdef,
                  .has_secret = true,
                  .nonce = "fifteen letters"};
  uint8_t frame[TFD_FRAME_BYTES];
  uint8_t hello[TFD_HELLO_BYTES];
  uint8_t again[TFD_FRAME_BYTES];
  tfd__frame f2 = {0};
  tfd__hello h2 = {0};
  int bit;

  (void)state;
  tfd__frame_write(&f, frame);
  assert_true(tfd__frame_read(frame, &f2));
  tfd__frame_write(&f2, again);
  assert_memory_equal(frame, again, sizeof frame);
  assert_int_equal(f.length, f2.length);
  tfd__hello_write(&h, hello);
  assert_true(tfd__hello_read(hello, &h2));
  tfd__hello_write(&h2, again);
  assert_memory_equal(hello, again, sizeof hello);
  assert_int_equal(h.local, h2.local);
  assert_int_equal(h.meeting, h2.meeting);
  assert_int_equal(h.pid, h2.pid);
  assert_int_equal(h.transport, h2.transport);
  assert_int_equal(TFD_PROTOCOL, h2.protocol);
  for (bit = 0; bit < TFD_FRAME_BYTES * 8; bit++) {
    frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_false(tfd__frame_read(frame, &f2));
    frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  for (bit = 0; bit < TFD_HELLO_BYTES * 8; bit++) {
    hello[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_false(tfd__hello_read(hello, &h2));
    hello[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
}

/* RFC 4231, test case 2. */
static void proofs_are_hmac_sha256(void **state) {
  static const uint8_t expected[TFD_PROOF_BYTES] = {
      0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
      0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
      0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
  uint8_t proof[TFD_PROOF_BYTES];

  (void)state;
  assert_int_equal(
      TFD_OK, tfd__hmac("Jefe", 4, "what do ya want for nothing?", 28, proof));
  assert_memory_equal(expected, proof, sizeof proof);
  assert_true(tfd__same_bytes(expected, proof, sizeof proof));
  proof[31] ^= 1;
  assert_false(tfd__same_bytes(expected, proof, sizeof proof));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(headers_come_back_and_no_bit_of_them_may_change),
      cmocka_unit_test(proofs_are_hmac_sha256),
      cmocka_unit_test(connections_that_fail_are_tried_again),
      cmocka_unit_test(a_secret_that_all_know_opens),
      cmocka_unit_test(another_secret_is_refused),
      cmocka_unit_test(other_machines_need_a_secret),
      cmocka_unit_test(who_is_missing_is_named),
      cmocka_unit_test(slow_names_hold_up_nobody),
      cmocka_unit_test(strangers_disturb_nobody),
      cmocka_unit_test(who_is_let_in_is_no_stranger),
      cmocka_unit_test(who_finds_no_room_is_waited_for),
      cmocka_unit_test(a_low_limit_of_descriptors_is_enough),
      cmocka_unit_test(strangers_find_the_door_shut),
      cmocka_unit_test(who_comes_back_alone_is_told),
      cmocka_unit_test(who_dies_meanwhile_may_come_back),
      cmocka_unit_test(who_is_there_twice_is_told_where),
      cmocka_unit_test(who_is_ahead_is_not_there_twice),
  };

  tested = "tcp";
  configure("2", "queued");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
