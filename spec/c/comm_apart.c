/* Processes that were given different things: both sides of a meeting end at
** once, in the same words, and so do all whom they have met. Who has not shown
** the secret is believed none of it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "comm_knock.h"

/* --- what is believed ----------------------------------------------------- */

/* Bytes from one side to the other, of which number `bad` of all that have come
** has a bit that was another; -1 = none has. */
static void pass_on(int from, int to, long bad, long *passed) {
  uint8_t bytes[TFD_TALK_BYTES];
  ssize_t n = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);

  if (n <= 0) return;
  if (bad >= *passed && bad < *passed + n) bytes[bad - *passed] ^= 1;
  *passed += n;
  assert_int_equal(n, send(to, bytes, (size_t)n, MSG_NOSIGNAL));
}

/* Two that know a secret, and somebody between them who does not. */
static void talk_through(tfd__talk talks[2], const tfd__hello hellos[2],
                         long bad) {
  tfd__network n = {.secret = "a long secret",
                    .secret_bytes = 13,
                    .processes = 3,
                    .addresses = address_list};
  long passed[2] = {0};
  bool over[2] = {false};
  int pairs[2][2];
  int turns;
  int i;

  for (i = 0; i < 2; i++) {
    n.process = i;
    assert_int_equal(
        0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]));
    assert_int_equal(TFD_OK, tfd__talk_begin(&talks[i], pairs[i][0], i == 1,
                                             &hellos[i], &n));
  }
  for (turns = 0; turns < 12; turns++) {
    for (i = 0; i < 2; i++) {
      if (!over[i]) {
        assert_int_equal(TFD_OK, tfd__talk_go_on(&talks[i], &over[i]));
      }
      pass_on(pairs[i][1], pairs[1 - i][1], i == 0 ? bad : -1, &passed[i]);
    }
  }
  for (i = 0; i < 2; i++) {
    (void)close(pairs[i][0]);
    (void)close(pairs[i][1]);
  }
}

static void no_bit_of_a_verdict_may_change(void **state) {
  enum { PROVED = TFD_HELLO_BYTES + TFD_PROOF_BYTES };
  const tfd__hello alike[2] = {{.process = 0, .processes = 3, .local = 1},
                               {.process = 1, .processes = 3, .local = 1}};
  tfd__hello apart[2] = {alike[0], alike[1]};
  tfd__talk talks[2];
  long bad;

  (void)state;
  make_addresses();
  apart[1].cluster = 1;
  talk_through(talks, alike, -1);
  assert_true(talks[0].agreed && talks[1].agreed);
  talk_through(talks, apart, -1);
  assert_true(talks[0].proved && talks[1].proved);
  assert_int_equal(TFD_VERDICT_CLUSTER, talks[1].verdict);
  assert_non_null(strstr(talks[1].told, address_list[1]));
  /* Process 0 says that it agrees, and somebody else says otherwise, */
  for (bad = PROVED; bad < TFD_TALK_BYTES; bad++) {
    talk_through(talks, alike, bad);
    assert_false(talks[1].agreed);
    assert_int_equal(TFD_VERDICT_GOOD, talks[1].verdict);
    /* or says in its name what it has. */
    talk_through(talks, apart, bad);
    assert_string_equal("", talks[1].told);
  }
  for (bad = TFD_HELLO_BYTES; bad < PROVED; bad++) {
    talk_through(talks, apart, bad);
    assert_false(talks[1].proved);
    assert_int_equal(TFD_VERDICT_SECRET, talks[1].verdict);
    assert_string_equal("", talks[1].told);
  }
}

/* A version to come, whose hello says more than we know. */
static void another_protocol_is_told_apart_from_no_protocol(void **state) {
  const tfd__hello mine = {.process = 1, .processes = 3, .local = 1};
  tfd__hello theirs = {0};
  uint8_t bytes[TFD_HELLO_BYTES];
  uint32_t sum = 0;

  (void)state;
  tfd__hello_write(&mine, bytes);
  bytes[4]++;
  sum = tfd__crc32c(0, bytes, sizeof bytes - 4);
  memcpy(bytes + sizeof bytes - 4, &sum, 4);
  assert_true(tfd__hello_read(bytes, &theirs));
  assert_int_equal(TFD_PROTOCOL + 1, theirs.protocol);
  assert_int_equal(1, theirs.process);
  assert_int_equal(TFD_VERDICT_PROTOCOL, tfd__hello_judge(&mine, &theirs));
}

/* Whose words did not come has said the number at least. */
static void a_transport_has_a_name_without_words(void **state) {
  tfd__network n = network_of(1, 2);
  tfd__talk t = {.verdict = TFD_VERDICT_TRANSPORT};

  (void)state;
  make_addresses();
  t.mine.transport = tfd__transport_number("halving");
  t.theirs.transport = tfd__transport_number("shm");
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd__fail_apart(&n, &t, 0));
  assert_non_null(strstr(
      tfd_error_message(),
      "do not agree: process 0 goes over shm; process 1 goes over halving"));
}

/* --- both sides ----------------------------------------------------------- */

/* Both sides end, long before either would have given the other up, and say the
** same of who they are and what both have. */
static int is_apart(const tfd__network *n, int local, const char *has) {
  int64_t begin = ran_by_now();
  char who[256];
  world w = {0};

  CHECK(open_world(n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(ran_since(begin) < AT_ONCE_S);
  (void)snprintf(who, sizeof who, "group: process 0 (%s, pid ",
                 n->addresses[0]);
  CHECK(strstr(tfd_error_message(), who) != NULL);
  (void)snprintf(who, sizeof who, ") and process 1 (%s, pid ", n->addresses[1]);
  CHECK(strstr(tfd_error_message(), who) != NULL);
  (void)snprintf(who, sizeof who, ") do not agree: %s", has);
  CHECK(strstr(tfd_error_message(), who) != NULL);
  CHECK(strlen(tfd_error_hint()) > 0);
  CHECK(tfd_error_exit_code() == TFD_EXIT_ANY);
  return 0;
}

/* It was there, which may be anybody's. */
static int waits_on(tfd__network *n, int local) {
  world w = {0};

  do { /* until the other has come in time */
    n->start_timeout = 1;
    CHECK(open_world(n, local, &w) == TFD_DEADLINE_EXCEEDED);
  } while (strstr(tfd_error_message(), "one that says it is this, at ") ==
           NULL);
  CHECK(strstr(tfd_error_message(), " has another list of addresses") != NULL);
  return 0;
}

static int other_list(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  const char *mine[2] = {address_list[0], address_list[1]};
  char has[256];

  if (process == 0) return waits_on(&n, local);
  mine[1] = address_list[2];
  n.addresses = mine;
  (void)snprintf(has, sizeof has,
                 "process 0 has the 2 addresses %s, %s; process 1 has the 2 "
                 "addresses %s, %s",
                 address_list[0], address_list[1], address_list[0],
                 address_list[2]);
  return is_apart(&n, local, has);
}

static int longer_list(int process, int processes, int local) {
  tfd__network n = network_of(process, processes + process);
  char has[256];

  if (process == 0) return waits_on(&n, local);

  (void)snprintf(has, sizeof has,
                 "process 0 has the 2 addresses %s, %s; process 1 has the 3 "
                 "addresses %s, %s, %s",
                 address_list[0], address_list[1], address_list[0],
                 address_list[1], address_list[2]);
  return is_apart(&n, local, has);
}

static void another_cluster_ends_who_comes(void **state) {
  (void)state;
  run_all(other_list, 2, 1);
  run_all(longer_list, 2, 1);
}

static int more_devices(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);

  n.secret = "a long secret";
  n.secret_bytes = 13;
  return is_apart(&n, local + process,
                  "process 0 has 1 device; process 1 has 2 devices");
}

static void another_number_of_devices_ends_both(void **state) {
  (void)state;
  run_all(more_devices, 2, 1);
}

static int other_transport(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);

  if (process == 1) tested = "ring";
  return is_apart(&n, local,
                  "process 0 goes over tcp; process 1 goes over ring");
}

/* Who takes what it would take by itself differs from nobody. */
static int same_transport(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  tested = process == 1 ? "shm" : NULL;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(strcmp(w.group->provider->name, "shm") == 0);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  tfd__release(w.group);
  return 0;
}

static void another_transport_ends_both(void **state) {
  (void)state;
  run_all(other_transport, 2, 1);
  run_all(same_transport, 2, 1);
}

/* Who has not met the one that differs hears of it from the others. */
static int different;

static int one_of_four_differs(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  int64_t begin = ran_by_now();
  char has[64];
  world w = {0};

  n.secret = "a long secret";
  n.secret_bytes = 13;
  if (process == different) tested = "halving";
  CHECK(open_world(&n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(ran_since(begin) < AT_ONCE_S);
  (void)snprintf(has, sizeof has, "process %d goes over halving", different);
  CHECK(strstr(tfd_error_message(), has) != NULL);
  return 0;
}

static void who_differs_from_some_ends_all(void **state) {
  (void)state;
  for (different = 0; different < 4; different++) {
    run_all(one_of_four_differs, 4, 1);
  }
}

/* --- who else hears of it ------------------------------------------------- */

static int is_apart_from_two(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  if (process == 2) tested = "doubling";
  CHECK(open_world(&n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(strstr(tfd_error_message(),
               "process 0 goes over tcp; process 2 goes over doubling") !=
        NULL);
  return 0;
}

/* Process 1, which is there already, is told by process 0. */
static void whom_it_has_met_hear_of_it(void **state) {
  uint8_t bytes[TFD_FRAME_BYTES + TFD_NOTE_BYTES];
  char note[TFD_NOTE_BYTES + 1];
  int sockets[TFD_CHANNELS];
  pid_t children[2];
  tfd__frame f;
  ssize_t n = 0;
  int i;

  (void)state;
  make_addresses();
  children[0] = start(is_apart_from_two, 0, 3, 1);
  pose_as_one(sockets);
  children[1] = start(is_apart_from_two, 2, 3, 1);
  for (i = 0; i < 2; i++) assert_int_equal(0, status_of(children[i]));
  wait_on(sockets[TFD_CHANNEL_CONTROL], POLLIN);
  n = recv(sockets[TFD_CHANNEL_CONTROL], bytes, sizeof bytes, 0);
  assert_true(n > TFD_FRAME_BYTES);
  assert_true(tfd__refusal_find(bytes, (size_t)n, &f, note));
  assert_int_equal(0, f.what);
  assert_non_null(
      strstr(note, "process 0 goes over tcp; process 2 goes over doubling"));
  for (i = 0; i < TFD_CHANNELS; i++) (void)close(sockets[i]);
}

static int is_told(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  int64_t begin = 0;
  world w = {0};

  begin = ran_by_now();
  CHECK(open_world(&n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(ran_since(begin) < AT_ONCE_S);
  CHECK(strstr(tfd_error_message(),
               "stopped because of process 0: they differ") != NULL);
  return 0;
}

static void who_hears_of_it_ends(void **state) {
  int sockets[TFD_CHANNELS];
  pid_t child;
  int i;

  (void)state;
  make_addresses();
  child = start(is_told, 1, 3, 1);
  pose_as_zero(sockets);
  tfd__refusal_send(sockets[TFD_CHANNEL_CONTROL], 0, "they differ");
  assert_int_equal(0, status_of(child));
  for (i = 0; i < TFD_CHANNELS; i++) (void)close(sockets[i]);
}

/* One more than there are; one of another cluster with the awaited one's
** number, which stays the latter's; and one with other devices whose place is
** taken. Each is told itself. */
static void who_is_superfluous_ends_nobody(void **state) {
  int sockets[TFD_CHANNELS];
  pid_t children[3];
  int kind;
  int i;

  (void)state;
  make_addresses();
  children[0] = start(sums_once, 0, 3, 1);
  for (kind = 0; kind < 3; kind++) {
    tfd__talk t = {.heard_all = false};

    if (kind == 2) pose_as_one(sockets);
    while (!t.heard_all) {
      int s = knock_until_heard();
      tfd__hello mine;

      if (hello_of(s, &mine)) {
        mine.process = kind == 0 ? 3 : 1;
        if (kind == 0) mine.processes = 4;
        if (kind == 1) mine.cluster ^= 1;
        if (kind == 2) mine.local++;
        t = talk_with(s, true, &mine);
      }
      (void)close(s);
    }
    assert_int_equal(kind == 2 ? TFD_VERDICT_LOCAL : TFD_VERDICT_CLUSTER,
                     t.verdict);
    if (kind < 2) assert_non_null(strstr(t.told, address_list[2]));
  }
  for (i = 0; i < TFD_CHANNELS; i++) (void)close(sockets[i]);
  for (i = 1; i < 3; i++) children[i] = start(sums_once, i, 3, 1);
  for (i = 0; i < 3; i++) assert_int_equal(0, status_of(children[i]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_bit_of_a_verdict_may_change),
      cmocka_unit_test(another_protocol_is_told_apart_from_no_protocol),
      cmocka_unit_test(a_transport_has_a_name_without_words),
      cmocka_unit_test(another_cluster_ends_who_comes),
      cmocka_unit_test(another_number_of_devices_ends_both),
      cmocka_unit_test(another_transport_ends_both),
      cmocka_unit_test(who_differs_from_some_ends_all),
      cmocka_unit_test(whom_it_has_met_hear_of_it),
      cmocka_unit_test(who_hears_of_it_ends),
      cmocka_unit_test(who_is_superfluous_ends_nobody),
  };

  tested = "tcp";
  configure("2", "queued");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
