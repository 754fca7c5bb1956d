/* Strangers at the open port of a process, while it waits for the others and
** while they train: each is shut out before long, whatever it says, and nobody
** else has anything of it but one line. And what connections that are let in
** have the system do, and are believed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/crc32c.h"
#include "comm_knock.h"

enum {
  SLOTS = 64,   /* strangers that are heard at once */
  CLOSED_S = 8, /* by when a talk of five seconds is over */
  STEPS = 30,   /* more of the job's, meanwhile */
  MOST_BYTES = 517
};

/* --- a job ---------------------------------------------------------------- */

enum { VALUES = 5000 };

/* What process 0 logs, -1 = to stderr. */
static int log_file = -1;

/* In step k process p gives p + k; whether to go on is process 0's to say. */
static int one_step(const world *w, int process, int processes, int k,
                    bool *over_p) {
  pieces p;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p, &p);
  float sum = (float)(processes * (processes - 1) / 2 + processes * k);
  float *x = NULL;
  int i;

  make_pieces(w, &p, TFD_FLOAT32, VALUES);
  x = p.list[0].buffer->data;
  for (i = 1; i < VALUES; i++) x[i] = (float)(process + k);
  x[0] = process == 0 && have_come(POINT_ENOUGH, 1);
  CHECK(tfd__group_run(w->group, &c, tfd__deadline_in(60)) == TFD_OK);
  for (i = 1; i < VALUES; i++) CHECK(x[i] == sum);
  *over_p = x[0] > 0;
  drop_pieces(w, &p);
  return 0;
}

static int trains(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};
  bool over = false;
  int k;

  if (process == 0 && log_file >= 0) (void)dup2(log_file, STDERR_FILENO);
  n.secret = common_secret;
  n.secret_bytes = strlen(common_secret);
  CHECK(open_world(&n, local, &w) == TFD_OK);
  for (k = 0; !over; k++) {
    CHECK(one_step(&w, process, processes, k % 1000, &over) == 0);
    if (process == 0) come_to(POINT_WORK);
  }
  tfd__release(w.group);
  return 0;
}

static void steps_go_on(void) {
  assert_true(wait_for(POINT_WORK, the_scene()->came[POINT_WORK] + STEPS));
}

static void end_well(pid_t *children, int n) {
  int i;

  come_to(POINT_ENOUGH);
  for (i = 0; i < n; i++) assert_int_equal(0, status_of(children[i]));
}

/* --- what strangers say --------------------------------------------------- */

typedef struct stranger {
  const char *name;
  size_t n;
  uint8_t bytes[MOST_BYTES];
  bool trickles; /* a byte now and then */
  int verdict;   /* that it is told; -1 = none, for it has not said enough */
  int socket;
  int64_t begin;
  size_t heard;
  uint8_t in[TFD_TALK_BYTES + 1];
} stranger;

enum { KINDS = 16 };

static stranger *says(stranger *s, const char *name, size_t n, int verdict) {
  *s = (stranger){.name = name, .n = n, .verdict = verdict, .socket = -1};
  return s;
}

/* A hello in which all is right, and what follows; `true_one` is one that was
** let in. */
static void hello_like(stranger *s, const tfd__talk *true_one, bool secret) {
  tfd__hello h = true_one->mine;

  h.has_secret = secret;
  tfd__hello_write(&h, s->bytes);
}

/* Of a process that is waited for, and has been given something else. */
static void hello_unlike(stranger *s, const tfd__talk *true_one) {
  tfd__hello h = true_one->mine;

  h.process = 2; /* 1 is there */
  h.local++;
  h.transport++;
  tfd__hello_write(&h, s->bytes);
  s->bytes[TFD_HELLO_BYTES + TFD_PROOF_BYTES] = TFD_VERDICT_LOCAL;
}

/* Of a version to come. */
static void hello_to_come(stranger *s, const tfd__talk *true_one) {
  uint32_t sum = 0;

  hello_unlike(s, true_one);
  s->bytes[4]++;
  sum = tfd__crc32c(0, s->bytes, TFD_HELLO_BYTES - 4);
  memcpy(s->bytes + TFD_HELLO_BYTES - 4, &sum, 4);
}

static void make_strangers(stranger list[KINDS], const tfd__talk *true_one) {
  static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  static const uint8_t tls[] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
  tfd__frame f = {.type = TFD_FRAME_DATA, .length = UINT64_C(1) << 63};
  tfd__frame refusal = {.type = TFD_FRAME_REFUSAL, .tag = 1};
  enum { PROVED = TFD_HELLO_BYTES + TFD_PROOF_BYTES };
  stranger *s = list;
  size_t k;

  (void)says(s++, "nothing", 0, -1);
  says(s++, "a byte now and then", 50, -1)->trickles = true;
  says(s, "a part of a hello", TFD_HELLO_BYTES - 1, -1);
  hello_like(s++, true_one, true);
  says(s, "a hello alone", TFD_HELLO_BYTES, -1);
  hello_like(s++, true_one, true);
  memcpy(says(s++, "a GET", sizeof http - 1, -1)->bytes, http, sizeof http - 1);
  s = says(s, "a TLS hello", MOST_BYTES, TFD_VERDICT_PROTOCOL);
  for (k = 0; k < MOST_BYTES; k++) s->bytes[k] = (uint8_t)(k * 37 >> 2);
  memcpy(s++->bytes, tls, sizeof tls);
  says(s, "a frame of 2^63 bytes", TFD_FRAME_BYTES, TFD_VERDICT_PROTOCOL);
  tfd__frame_write(&f, s++->bytes);
  says(s, "lengths of 2^63", 2 * PROVED, TFD_VERDICT_PROTOCOL);
  for (k = 0; k < 2 * PROVED; k += 8) s->bytes[k] = 0x80;
  s++;
  says(s, "a wrong proof", PROVED, TFD_VERDICT_SECRET);
  hello_like(s++, true_one, true);
  says(s, "no proof", PROVED, TFD_VERDICT_SECRET_MISSING);
  hello_like(s++, true_one, false);
  says(s, "a hello and a proof of before", PROVED, TFD_VERDICT_SECRET);
  memcpy(s++->bytes, true_one->out, PROVED);
  says(s, "all that was said before", TFD_TALK_BYTES, TFD_VERDICT_SECRET);
  memcpy(s++->bytes, true_one->out, TFD_TALK_BYTES);
  /* What ends a job where somebody who knows the secret says it. */
  says(s, "a refusal", TFD_TALK_BYTES, TFD_VERDICT_SECRET);
  hello_unlike(s++, true_one);
  says(s, "a hello that differs", PROVED, TFD_VERDICT_SECRET);
  hello_unlike(s++, true_one);
  says(s, "another protocol", PROVED, TFD_VERDICT_PROTOCOL);
  hello_to_come(s++, true_one);
  says(s, "a refusal alone", TFD_FRAME_BYTES, TFD_VERDICT_PROTOCOL);
  tfd__frame_write(&refusal, s++->bytes);
  assert_int_equal(KINDS, s - list);
}

/* False when the other side has closed. */
static bool listen_on(stranger *s) {
  for (;;) {
    ssize_t n = recv(s->socket, s->in + s->heard, sizeof s->in - s->heard,
                     MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    s->heard += (size_t)n;
    assert_true(s->heard <= TFD_TALK_BYTES);
  }
}

static void check_closed(const stranger *s) {
  double seconds = (double)(tfd__now_ns() - s->begin) * 1e-9;
  int told = s->heard == TFD_TALK_BYTES
                 ? s->in[TFD_HELLO_BYTES + TFD_PROOF_BYTES]
                 : -1;

  /* What lies unread has the system take back what was sent last. */
  if (told != s->verdict && s->n <= TFD_TALK_BYTES) {
    fail_msg("%s was told %d", s->name, told);
  }
  /* Who has said all that a talk is made of is not waited for. */
  if (seconds < TFD_TALK_SECONDS && s->n < TFD_TALK_BYTES) {
    fail_msg("%s was closed soon", s->name);
  }
}

static void begin_all(stranger *list, int n) {
  int i;

  for (i = 0; i < n; i++) {
    stranger *s = &list[i];

    s->begin = tfd__now_ns();
    s->socket = knock_until_heard();
    if (s->n > 0 && !s->trickles) {
      assert_int_equal(s->n, send(s->socket, s->bytes, s->n, MSG_NOSIGNAL));
    }
  }
}

/* All knock at once, and are heard to their ends. */
static void hear_out(stranger *list, int n) {
  int64_t begin = ran_by_now();
  int left = n;
  int turn;
  int i;

  begin_all(list, n);
  for (turn = 0; left > 0; turn++) {
    (void)poll(NULL, 0, 20);
    for (i = 0; i < n; i++) {
      stranger *s = &list[i];

      if (s->socket < 0) continue;
      if (s->trickles && turn % 10 == 0)
        (void)send(s->socket, "x", 1, MSG_NOSIGNAL);
      if (listen_on(s)) {
        if (ran_since(begin) > CLOSED_S) fail_msg("%s is heard on", s->name);
        continue;
      }
      check_closed(s);
      (void)close(s->socket);
      s->socket = -1;
      left--;
    }
  }
}

/* Process 1's first connection with process 0, which has let it in. */
static tfd__talk be_let_in(void) {
  tfd__talk t = {.agreed = false};

  while (!t.agreed) {
    int s = knock_until_heard();
    tfd__hello mine;

    if (hello_of(s, &mine)) {
      mine.process = 1;
      mine.channel = TFD_CHANNEL_DATA;
      t = talk_with(s, true, &mine);
    }
    if (!t.agreed) (void)close(s);
  }
  return t;
}

static void strangers_are_shut_out_whatever_they_say(void **state) {
  static stranger list[KINDS];
  pid_t children[3];
  tfd__talk t;
  int i;

  (void)state;
  make_addresses();
  children[0] = start(trains, 0, 3, 1);
  t = be_let_in();
  make_strangers(list, &t);
  hear_out(list, KINDS);
  (void)close(t.socket); /* the true one comes */
  for (i = 1; i < 3; i++) children[i] = start(trains, i, 3, 1);
  assert_true(wait_for(POINT_WORK, 1));
  make_strangers(list, &t);
  hear_out(list, KINDS);
  steps_go_on();
  end_well(children, 3);
}

/* --- many ----------------------------------------------------------------- */

enum { FLOOD = 900 };

static int descriptors_of(pid_t pid) {
  char path[32];
  DIR *folder = NULL;
  int n = 0;

  (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  folder = opendir(path);
  assert_non_null(folder);
  while (readdir(folder) != NULL) n++;
  (void)closedir(folder);
  return n;
}

static bool is_closed(int socket) {
  char bytes[TFD_TALK_BYTES];
  ssize_t n = 0;

  do {
    n = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
  } while (n > 0);
  return n == 0 || (errno != EAGAIN && errno != EINTR);
}

static int flood[FLOOD];

/* As many as are open no more, after a look at the first n. */
static int count_closed(int n) {
  int closed = 0;
  int i;

  for (i = 0; i < n; i++) {
    if (flood[i] >= 0 && is_closed(flood[i])) {
      (void)close(flood[i]);
      flood[i] = -1;
    }
    closed += flood[i] < 0;
  }
  return closed;
}

static bool is_heard(int socket) {
  struct pollfd p = {.fd = socket, .events = POLLIN};

  return socket < 0 || poll(&p, 1, 0) == 1;
}

/* They stay open, all of them, and each has been let in: what waits in the
** system's queue is the system's to drop. */
static void let_all_in(pid_t pid, int most) {
  int heard = 0;
  int n = 0;

  while (heard < FLOOD) {
    for (; n < FLOOD && n - heard < SLOTS; n++) {
      flood[n] = knock();
      assert_true(flood[n] >= 0);
    }
    while (heard < n && is_heard(flood[heard])) heard++;
    assert_true(descriptors_of(pid) <= most);
    (void)poll(NULL, 0, 5);
  }
}

/* Connections of which nothing comes have no more room than is for strangers,
** and the last of them is closed as the first one is. */
static void a_flood_has_its_own_room(void **state) {
  struct rlimit files;
  int64_t begin;
  pid_t children[2];
  int most;
  int i;

  (void)state;
  assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &files));
  if (files.rlim_cur < FLOOD + 100) files.rlim_cur = files.rlim_max;
  assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &files));
  make_addresses();
  for (i = 0; i < 2; i++) children[i] = start(trains, i, 2, 1);
  assert_true(wait_for(POINT_WORK, STEPS));
  /* One more comes before the oldest goes. */
  most = descriptors_of(children[0]) + SLOTS + 1;
  let_all_in(children[0], most);
  assert_in_range(count_closed(FLOOD), FLOOD - SLOTS, FLOOD);
  steps_go_on();
  begin = ran_by_now();
  while (count_closed(FLOOD) < FLOOD) {
    assert_true(ran_since(begin) < CLOSED_S);
    assert_true(descriptors_of(children[0]) <= most);
    (void)poll(NULL, 0, 10);
  }
  steps_go_on();
  end_well(children, 2);
}

/* --- one line ------------------------------------------------------------- */

static const char *const hosts[2] = {"127.0.0.8", "127.0.0.9"};
enum { AT_ONCE = 16, REFUSALS = 500, QUIET_S = 10, ROOM = 64 };

/* As many are refused as are asked for. */
static void be_refused(const char *host, int n) {
  static const uint8_t bytes[TFD_TALK_BYTES];
  int sockets[AT_ONCE];
  int i;

  assert_true(n <= AT_ONCE);
  for (i = 0; i < n; i++) {
    sockets[i] = knock_from(host);
    assert_true(sockets[i] >= 0);
    wait_on(sockets[i], POLLOUT);
    assert_int_equal(sizeof bytes,
                     send(sockets[i], bytes, sizeof bytes, MSG_NOSIGNAL));
  }
  for (i = 0; i < n; i++) {
    while (!is_closed(sockets[i])) wait_on(sockets[i], POLLIN);
    (void)close(sockets[i]);
  }
}

/* Lines about connections from the host; *others_p: how many others the last
** one counts. */
static int lines_about(const char *host, unsigned *others_p) {
  static char text[1 << 16];
  ssize_t bytes = pread(log_file, text, sizeof text - 1, 0);
  char words[64];
  const char *at = text;
  int n = 0;

  assert_true(bytes >= 0);
  text[bytes] = '\0';
  *others_p = 0;
  (void)snprintf(words, sizeof words, "a connection from %s to %s was refused",
                 host, address_list[0]);
  while ((at = strstr(at, words)) != NULL) {
    const char *as = strstr(at, " (as were ");
    const char *end = strchr(at, '\n');

    if (as != NULL && as < end) {
      *others_p += (unsigned)strtoul(as + strlen(" (as were "), NULL, 10);
    }
    at = end;
    n++;
  }
  return n;
}

static double seconds_since(int64_t begin) {
  return (double)(tfd__now_ns() - begin) * 1e-9;
}

static void refusals_of_a_host_have_one_line_in_ten_seconds(void **state) {
  pid_t children[2];
  unsigned others = 0;
  int64_t begin;
  int lines = 0;
  int n = 0;
  int i;

  (void)state;
  log_file = memfd_create("log", MFD_CLOEXEC);
  assert_true(log_file >= 0);
  make_addresses();
  for (i = 0; i < 2; i++) children[i] = start(trains, i, 2, 1);
  assert_true(wait_for(POINT_WORK, 1));
  begin = tfd__now_ns();
  while (n < REFUSALS) {
    be_refused(hosts[0], AT_ONCE);
    n += AT_ONCE;
    /* The second host has its own, in the middle of that. */
    if (n == AT_ONCE * 10) be_refused(hosts[1], AT_ONCE);
    assert_in_range(lines_about(hosts[0], &others), 1,
                    1 + (int)(seconds_since(begin) / QUIET_S));
  }
  assert_int_equal(1, lines_about(hosts[1], &others));
  lines = lines_about(hosts[0], &others);
  while (lines_about(hosts[0], &others) == lines) {
    be_refused(hosts[0], 1);
    n++;
  }
  assert_true(seconds_since(begin) >= QUIET_S);
  /* Each has a line or is counted in one. */
  assert_int_equal(n, others + (unsigned)lines + 1);
  assert_int_equal(1, lines_about(hosts[1], &others));
  end_well(children, 2);
  (void)close(log_file);
  log_file = -1;
}

/* A host that finds no room among those spoken of lately has no line. */
static void many_hosts_have_no_more_lines_than_there_is_room_for(void **state) {
  static char text[1 << 16];
  pid_t children[2];
  ssize_t bytes;
  int64_t begin;
  const char *at = text;
  int n = 0;
  int i;

  (void)state;
  log_file = memfd_create("log", MFD_CLOEXEC);
  assert_true(log_file >= 0);
  make_addresses();
  for (i = 0; i < 2; i++) children[i] = start(trains, i, 2, 1);
  assert_true(wait_for(POINT_WORK, 1));
  begin = tfd__now_ns();
  for (i = 1; i <= ROOM + 20; i++) {
    char host[16];

    (void)snprintf(host, sizeof host, "127.0.1.%d", i);
    be_refused(host, 1);
  }
  bytes = pread(log_file, text, sizeof text - 1, 0);
  assert_true(bytes > 0);
  while ((at = strstr(at, " was refused: ")) != NULL) {
    at++;
    n++;
  }
  assert_in_range(n, ROOM, ROOM * (1 + (int)(seconds_since(begin) / QUIET_S)));
  end_well(children, 2);
  (void)close(log_file);
  log_file = -1;
}

/* --- who is let in -------------------------------------------------------- */

static int option_of(int socket, int level, int name) {
  socklen_t bytes = sizeof(int);
  int value = -1;

  return getsockopt(socket, level, name, &value, &bytes) == 0 ? value : -1;
}

/* Of a connection to another host's process: -1 = it is none. */
static int user_timeout_of(int socket) {
  struct sockaddr_storage a;
  socklen_t bytes = sizeof a;

  if (getpeername(socket, (struct sockaddr *)&a, &bytes) != 0) return -1;
  return a.ss_family == AF_INET
             ? option_of(socket, IPPROTO_TCP, TCP_USER_TIMEOUT)
             : -1;
}

static double beat_timeout;

/* A host that vanishes is noticed by then whatever is on the way to it; data
** waits for as long as the other side is stopped. */
static int has_its_options(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  int most = beat_timeout > 0 ? (int)beat_timeout : 10;
  int found[2] = {0};
  world w = {0};
  int s;

  n.beat_timeout = beat_timeout;
  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  for (s = 0; s < 1000; s++) {
    int ms = user_timeout_of(s);

    if (ms < 0) continue;
    CHECK(ms == 0 || ms == 1000 * most);
    found[ms > 0]++;
    CHECK(option_of(s, IPPROTO_TCP, TCP_NODELAY) == 1);
    CHECK(option_of(s, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(option_of(s, IPPROTO_TCP, TCP_KEEPIDLE) +
              option_of(s, IPPROTO_TCP, TCP_KEEPINTVL) *
                  option_of(s, IPPROTO_TCP, TCP_KEEPCNT) <
          10);
    CHECK(option_of(s, IPPROTO_TCP, TCP_KEEPIDLE) > 0);
    CHECK(option_of(s, IPPROTO_TCP, TCP_KEEPINTVL) > 0);
    CHECK(option_of(s, IPPROTO_TCP, TCP_KEEPCNT) > 0);
  }
  CHECK(found[0] == processes - 1); /* data, */
  CHECK(found[1] == processes - 1); /* control */
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  tfd__release(w.group);
  return 0;
}

static void dead_hosts_are_noticed_by_the_system_too(void **state) {
  (void)state;
  beat_timeout = 0;
  run_all(has_its_options, 3, 1);
  beat_timeout = 3;
  run_all(has_its_options, 3, 1);
}

/* --- who is let in and has bad words -------------------------------------- */

static int hears_no_frame(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  n.secret = common_secret;
  n.secret_bytes = strlen(common_secret);
  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 30) == TFD_ABORTED);
  CHECK(strstr(tfd_error_message(),
               "process 1 of 2 sent bytes that are damaged "
               "or no frame") != NULL);
  tfd__release(w.group);
  return 0;
}

/* Whoever knows the secret is believed no length, either. */
static void no_length_of_a_peer_is_believed(void **state) {
  static const uint64_t lengths[] = {UINT64_C(1) << 63, UINT64_MAX,
                                     UINT64_MAX - TFD_FRAME_BYTES + 1,
                                     TFD_NOTE_BYTES + 1};
  size_t k;

  (void)state;
  for (k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
    tfd__frame f = {.type = TFD_FRAME_ABORT, .tag = 1, .length = lengths[k]};
    int sockets[TFD_CHANNELS];
    uint8_t bytes[TFD_FRAME_BYTES];
    pid_t child;
    int i;

    make_addresses();
    child = start(hears_no_frame, 0, 2, 1);
    pose_as_one(sockets);
    tfd__frame_write(&f, bytes);
    assert_int_equal(sizeof bytes, send(sockets[TFD_CHANNEL_CONTROL], bytes,
                                        sizeof bytes, MSG_NOSIGNAL));
    wait_on(sockets[TFD_CHANNEL_CONTROL], POLLRDHUP); /* it has told why */
    for (i = 0; i < TFD_CHANNELS; i++) (void)close(sockets[i]);
    assert_int_equal(0, status_of(child));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(strangers_are_shut_out_whatever_they_say),
      cmocka_unit_test(a_flood_has_its_own_room),
      cmocka_unit_test(refusals_of_a_host_have_one_line_in_ten_seconds),
      cmocka_unit_test(many_hosts_have_no_more_lines_than_there_is_room_for),
      cmocka_unit_test(dead_hosts_are_noticed_by_the_system_too),
      cmocka_unit_test(no_length_of_a_peer_is_believed),
  };

  tested = "tcp";
  common_secret = "a long secret";
  configure("2", "queued");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
