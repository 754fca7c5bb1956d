/* Groups of processes over TCP: the case table, each rank set a process of its
** own, and what happens when one of them goes away, hangs, says something else
** or is a stranger. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/tcp/hello.h"
#include "comm_processes.h"

/* --- the case table ------------------------------------------------------- */

static void every_case(void **state) {
  int processes;

  (void)state;
  for (processes = 2; processes <= MOST; processes++) {
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
    for (processes = 1; processes <= MOST; processes++) {
      run_all(all_cases, processes, 1);
    }
    run_all(all_cases, 3, 2);
    run_all(long_values, 3, 1);
  }
  tested = "tcp";
}

/* 2^24 + 1 is no single float: what comes out tells the order of additions.
** Four shares of 64 elements; more[q] is what share q has beyond 2^24. */
typedef struct order_case {
  const char *way;
  float more[4];
} order_case;

static const order_case *order;

static int in_its_order(int process, int processes, int local) {
  static const float given[4] = {16777216.0f, 0.0f, 1.0f, 1.0f};
  tfd__network n = network_of(process, processes);
  world w = {0};
  pieces p;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p, &p);
  float *x = NULL;
  int i;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  make_pieces(&w, &p, TFD_FLOAT32, 256);
  x = p.list[0].buffer->data;
  for (i = 0; i < 256; i++) x[i] = given[process];
  CHECK(tfd__group_run(w.group, &c, tfd__deadline_in(60)) == TFD_OK);
  for (i = 0; i < 256; i++) CHECK(x[i] == 16777216.0f + order->more[i / 64]);
  drop_pieces(&w, &p);
  tfd__release(w.group);
  return 0;
}

static void every_way_adds_in_its_own_order(void **state) {
  static const order_case cases[] = {
      {"tcp", {0, 0, 0, 0}},      /* ((a + b) + c) + d */
      {"doubling", {2, 2, 2, 2}}, /* (a + b) + (c + d) */
      {"halving", {0, 0, 0, 0}},  /* (a + c) + (b + d) */
      {"ring", {0, 2, 2, 0}},     /* from its own number on */
  };
  size_t k;

  (void)state;
  for (k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    order = &cases[k];
    tested = order->way;
    run_all(in_its_order, 4, 1);
  }
  tested = "tcp";
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

/* Process 1 connects to process 0 and is told; process 0 goes on waiting. */
static int other_secret(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  n.secret = process == 0 ? "one secret" : "two secret";
  n.secret_bytes = 10;
  n.start_timeout = process == 0 ? 3 : 60;
  if (process == 0) {
    CHECK(open_world(&n, local, &w) == TFD_DEADLINE_EXCEEDED);
    CHECK(strstr(tfd_error_message(), "process 1 (127.") != NULL);
    return 0;
  }
  CHECK(open_world(&n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(strstr(tfd_error_message(), "the secrets differ") != NULL);
  return 0;
}

static void another_secret_is_refused(void **state) {
  (void)state;
  run_all(other_secret, 2, 1);
}

static int other_list(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  const char *mine[2] = {address_list[0], address_list[1]};
  world w = {0};

  if (process == 1) mine[1] = address_list[2];
  n.addresses = mine;
  n.start_timeout = process == 0 ? 3 : 60;
  if (process == 0) {
    CHECK(open_world(&n, local, &w) == TFD_DEADLINE_EXCEEDED);
    return 0;
  }
  CHECK(open_world(&n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(strstr(tfd_error_message(), "another list of addresses") != NULL);
  return 0;
}

static void another_cluster_is_refused(void **state) {
  (void)state;
  run_all(other_list, 2, 1);
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

static int knock(void) {
  struct sockaddr_in to = {.sin_family = AF_INET};
  int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  char host[32];
  int port = 0;

  if (sscanf(address_list[0], "%31[^:]:%d", host, &port) != 2) return -1;
  to.sin_port = htons((uint16_t)port);
  if (inet_pton(AF_INET, host, &to.sin_addr) != 1) return -1;
  (void)connect(s, (struct sockaddr *)&to, sizeof to);
  return s;
}

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
  while (access(enough, F_OK) != 0) {
    CHECK(knock() >= 0);
    (void)poll(NULL, 0, 50);
  }
  return 0;
}

static void who_finds_no_room_is_waited_for(void **state) {
  pid_t stranger;

  (void)state;
  make_addresses();
  (void)snprintf(enough, sizeof enough, "/tmp/comm-enough-%d", (int)getpid());
  stranger = start(knocks, 1, 2, 1);
  assert_int_equal(0, status_of(start(without_room, 0, 2, 1)));
  (void)fclose(fopen(enough, "w"));
  assert_int_equal(0, status_of(stranger));
  (void)unlink(enough);
}

/* A task that begins anew is told that the others have met without it; so it is
** when others knock and say nothing. Process 1 has died before, after all had
** the sum. */
static char ready[3][64];

static int stays(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int rc;

  CHECK(open_world(&n, local, &w) == TFD_OK);
  rc = sum_ones(&w, 10, 60);
  (void)fclose(fopen(ready[process], "w"));
  if (process == 1) (void)pause();
  CHECK(rc == TFD_OK);
  while (access(enough, F_OK) != 0) (void)poll(NULL, 0, 5);
  tfd__release(w.group);
  return 0;
}

static int comes_back(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  int i;

  for (i = 0; i < 80; i++) CHECK(knock() >= 0);
  n.beat_timeout = 0.5;
  CHECK(open_world(&n, local, &w) == TFD_FAILED_PRECONDITION);
  CHECK(strstr(tfd_error_message(), "process 1 does not agree with process 0 ("
                                    "127.") != NULL);
  CHECK(strstr(tfd_error_message(), "all have to be started again") != NULL);
  return 0;
}

static void who_comes_back_alone_is_told(void **state) {
  pid_t children[3];
  int i;

  (void)state;
  (void)snprintf(enough, sizeof enough, "/tmp/comm-enough-%d", (int)getpid());
  for (i = 0; i < 3; i++) {
    (void)snprintf(ready[i], sizeof ready[i], "/tmp/comm-ready-%d-%d",
                   (int)getpid(), i);
  }
  make_addresses();
  for (i = 0; i < 3; i++) children[i] = start(stays, i, 3, 1);
  for (i = 0; i < 3; i++) {
    int looks = 12000; /* a minute, if one of them fails */

    while (access(ready[i], F_OK) != 0 && looks-- > 0) (void)poll(NULL, 0, 5);
  }
  (void)kill(children[1], SIGKILL);
  assert_int_equal(128 + SIGKILL, status_of(children[1]));
  assert_int_equal(0, status_of(start(comes_back, 1, 3, 1)));
  (void)fclose(fopen(enough, "w"));
  assert_int_equal(0, status_of(children[0]));
  assert_int_equal(0, status_of(children[2]));
  (void)unlink(enough);
  for (i = 0; i < 3; i++) (void)unlink(ready[i]);
}

/* --- who begins anew while all are waited for ----------------------------- */

/* Process 1's part of a connection with process 0, up to its end. */
static int be_heard(int socket, bool connects, tfd__hello mine) {
  tfd__network n = network_of((int)mine.process, (int)mine.processes);
  tfd__talk t;
  bool over = false;

  assert_int_equal(TFD_OK, tfd__talk_begin(&t, socket, connects, &mine, &n));
  while (!over) {
    struct pollfd p = {.fd = socket, .events = POLLIN};

    (void)poll(&p, 1, 100);
    assert_int_equal(TFD_OK, tfd__talk_go_on(&t, &over));
  }
  assert_true(t.agreed);
  return socket;
}

/* What all must agree on is in each hello. */
static tfd__hello hello_of(int socket) {
  uint8_t bytes[TFD_HELLO_BYTES];
  tfd__hello h;

  assert_int_equal(sizeof bytes,
                   recv(socket, bytes, sizeof bytes, MSG_PEEK | MSG_WAITALL));
  assert_true(tfd__hello_read(bytes, &h));
  return h;
}

static void wait_for(int socket, short events) {
  struct pollfd p = {.fd = socket, .events = events};

  assert_int_equal(1, poll(&p, 1, 60000));
}

static int knock_until_heard(void) {
  int looks = 12000;
  int s = -1;

  while (looks-- > 0) {
    struct pollfd p;

    s = knock();
    p = (struct pollfd){.fd = s, .events = POLLIN};
    if (poll(&p, 1, 60000) == 1 && (p.revents & (POLLERR | POLLHUP)) == 0) {
      break;
    }
    (void)close(s);
    (void)poll(NULL, 0, 5);
  }
  return s;
}

/* Process 1 of 3 is there, as process 0 sees it. */
static void pose_as_one(int sockets[TFD_CHANNELS]) {
  int c;

  for (c = 0; c < TFD_CHANNELS; c++) {
    tfd__hello mine;

    sockets[c] = knock_until_heard();
    mine = hello_of(sockets[c]);
    mine.process = 1;
    mine.channel = (uint32_t)c;
    (void)be_heard(sockets[c], true, mine);
  }
}

/* Process 0 of 3 is there, as process 1 sees it. */
static void pose_as_zero(int sockets[TFD_CHANNELS]) {
  int listener = -1;
  int c;

  assert_int_equal(TFD_OK, tfd__listen(address_list[0], &listener));
  for (c = 0; c < TFD_CHANNELS; c++) {
    tfd__hello mine;

    wait_for(listener, POLLIN);
    sockets[c] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    wait_for(sockets[c], POLLIN);
    mine = hello_of(sockets[c]);
    mine.process = 0;
    (void)be_heard(sockets[c], false, mine);
  }
  (void)close(listener);
}

static int sums_once(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  tfd__release(w.group);
  return 0;
}

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
  (void)fclose(fopen(enough, "w"));
  while (tfd__group_check(w.group, "look") == TFD_OK) (void)poll(NULL, 0, 5);
  (void)snprintf(text, sizeof text, "(%s, pid ", address_list[1]);
  CHECK(strstr(tfd_error_message(), text) != NULL);
  CHECK(strstr(tfd_error_message(),
               ") was last heard of in collective 1, all_reduce sum of "
               "float32[1000] at train.lua:40; process 0 (this one) has come "
               "to none") != NULL);
  tfd__release(w.group);
  return 0;
}

static void who_is_gone_is_told_with_where_it_was(void **state) {
  pid_t children[2];
  int looks = 12000;
  int i;

  (void)state;
  (void)snprintf(enough, sizeof enough, "/tmp/comm-enough-%d", (int)getpid());
  make_addresses();
  for (i = 0; i < 2; i++) children[i] = start(hears_where, i, 2, 1);
  while (access(enough, F_OK) != 0 && looks-- > 0) (void)poll(NULL, 0, 5);
  (void)kill(children[1], SIGKILL);
  assert_int_equal(128 + SIGKILL, status_of(children[1]));
  assert_int_equal(0, status_of(children[0]));
  (void)unlink(enough);
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
      cmocka_unit_test(every_case),
      cmocka_unit_test(every_case_in_other_ways),
      cmocka_unit_test(every_way_adds_in_its_own_order),
      cmocka_unit_test(long_values_of_every_kind),
      cmocka_unit_test(collectives_are_waited_for_in_any_order),
      FAULT_TESTS,
      cmocka_unit_test(a_fault_of_one_process_fails_all),
      cmocka_unit_test(connections_that_fail_are_tried_again),
      cmocka_unit_test(a_secret_that_all_know_opens),
      cmocka_unit_test(another_secret_is_refused),
      cmocka_unit_test(another_cluster_is_refused),
      cmocka_unit_test(other_machines_need_a_secret),
      cmocka_unit_test(who_is_missing_is_named),
      cmocka_unit_test(calls_after_leaving_say_so),
      cmocka_unit_test(strangers_disturb_nobody),
      cmocka_unit_test(who_finds_no_room_is_waited_for),
      cmocka_unit_test(a_low_limit_of_descriptors_is_enough),
      cmocka_unit_test(strangers_find_the_door_shut),
      cmocka_unit_test(who_comes_back_alone_is_told),
      cmocka_unit_test(who_dies_meanwhile_may_come_back),
      cmocka_unit_test(who_is_there_twice_is_told_where),
      cmocka_unit_test(who_is_gone_is_told_with_where_it_was),
  };

  tested = "tcp";
  configure("2", "queued");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
