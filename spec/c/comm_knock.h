/* Who knocks at process 0's address as a spec has it: a stranger, or one that
** poses as process 1. */
#ifndef SPEC_COMM_KNOCK_H
#define SPEC_COMM_KNOCK_H

#include <arpa/inet.h>
#include <sys/socket.h>

#include "comm/tcp/hello.h"
#include "comm_processes.h"

/* Of all who know it; NULL = there is none. */
static const char *common_secret;

/* `from`, a host's number; NULL = as the system likes. */
static inline int knock_from(const char *from) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  struct sockaddr_in to = {.sin_family = AF_INET};
  char host[32];
  int port = 0;
  int s;

  if (sscanf(address_list[0], "%31[^:]:%d", host, &port) != 2) return -1;
  to.sin_port = htons((uint16_t)port);
  if (inet_pton(AF_INET, host, &to.sin_addr) != 1) return -1;
  if (from != NULL && inet_pton(AF_INET, from, &at.sin_addr) != 1) return -1;
  s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (from != NULL && bind(s, (struct sockaddr *)&at, sizeof at) != 0) {
    (void)close(s);
    return -1;
  }
  (void)connect(s, (struct sockaddr *)&to, sizeof to);
  return s;
}

static inline int knock(void) {
  return knock_from(NULL);
}

/* Process 1's part of a connection with process 0, up to its end. */
static inline tfd__talk talk_with(int socket, bool connects,
                                  const tfd__hello *mine) {
  tfd__network n = network_of((int)mine->process, (int)mine->processes);
  tfd__talk t;
  bool over = false;

  n.secret = common_secret;
  n.secret_bytes = common_secret == NULL ? 0 : strlen(common_secret);
  assert_int_equal(TFD_OK, tfd__talk_begin(&t, socket, connects, mine, &n));
  while (!over) {
    struct pollfd p = {.fd = socket, .events = POLLIN};

    (void)poll(&p, 1, 100);
    assert_int_equal(TFD_OK, tfd__talk_go_on(&t, &over));
  }
  return t;
}

/* False when it came to no end: a talk has its own deadline. */
static inline bool be_heard(int socket, bool connects, const tfd__hello *mine) {
  return talk_with(socket, connects, mine).agreed;
}

/* What all must agree on is in each hello. */
static inline bool hello_of(int socket, tfd__hello *h) {
  uint8_t bytes[TFD_HELLO_BYTES];

  return recv(socket, bytes, sizeof bytes, MSG_PEEK | MSG_WAITALL) ==
             sizeof bytes &&
         tfd__hello_read(bytes, h);
}

static inline void wait_on(int socket, short events) {
  struct pollfd p = {.fd = socket, .events = events};

  assert_int_equal(1, poll(&p, 1, 60000));
}

static inline int knock_until_heard(void) {
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

static inline bool say_one(int socket, int channel) {
  tfd__hello mine;

  if (!hello_of(socket, &mine)) return false;
  mine.process = 1;
  mine.channel = (uint32_t)channel;
  return be_heard(socket, true, &mine);
}

/* Process 1 is there, as process 0 sees it. */
static inline void pose_as_one(int sockets[TFD_CHANNELS]) {
  int c = 0;

  while (c < TFD_CHANNELS) {
    sockets[c] = knock_until_heard();
    if (say_one(sockets[c], c)) {
      c++;
    } else {
      (void)close(sockets[c]);
    }
  }
}

static inline bool say_zero(int socket) {
  tfd__hello mine;

  if (!hello_of(socket, &mine)) return false;
  mine.process = 0;
  return be_heard(socket, false, &mine);
}

/* Process 0 of 3 is there, as process 1 sees it. */
static inline void pose_as_zero(int sockets[TFD_CHANNELS]) {
  int listener = -1;
  int c = 0;

  assert_int_equal(TFD_OK, tfd__listen(address_list[0], &listener));
  while (c < TFD_CHANNELS) {
    wait_on(listener, POLLIN);
    sockets[c] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    wait_on(sockets[c], POLLIN);
    if (say_zero(sockets[c])) {
      c++;
    } else {
      (void)close(sockets[c]);
    }
  }
  (void)close(listener);
}

/* A process's life: a sum with the others. */
static inline int sums_once(int process, int processes, int local) {
  tfd__network n = network_of(process, processes);
  world w = {0};

  CHECK(open_world(&n, local, &w) == TFD_OK);
  CHECK(sum_ones(&w, 10, 60) == TFD_OK);
  tfd__release(w.group);
  return 0;
}

#endif
