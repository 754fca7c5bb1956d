/* What a connection between two processes of this machine carries: bare bytes,
** both ways at once, for the benchmarks of sums between processes.
**
** usage: stream      reads requests from stdin, answers each:
**   exchange BYTES      wall s until both have sent and received so many bytes,
**                       rewritten before: the median of many
**   quit                ends the program
** The other process is a fork; each has a core where there are two. Both look
** all the time: nobody waits for a wake-up. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pin.h"

enum { WARM = 3, TURNS = 400, LONG_TURNS = 21 };

static void fail(const char *what) {
  printf("failed: %s: %s\n", what, strerror(errno));
  exit(1);
}

static double now(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;

  return (x > y) - (x < y);
}

/* Two ends of one connection over the loopback. */
static void connect_ends(int ends[2]) {
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t n = sizeof to;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  int on = 1;

  if (listener < 0 || bind(listener, (struct sockaddr *)&to, n) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr *)&to, &n) != 0) {
    fail("listen");
  }
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(ends[0], (struct sockaddr *)&to, n) != 0) fail("connect");
  ends[1] = accept(listener, NULL, NULL);
  if (ends[1] < 0) fail("accept");
  (void)close(listener);
  for (int i = 0; i < 2; i++) {
    (void)setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)fcntl(ends[i], F_SETFL, O_NONBLOCK);
  }
}

/* Bytes that a call has moved; ends when the other side is gone. */
static size_t moved(ssize_t n) {
  if (n > 0) return (size_t)n;
  if (n < 0 && errno == EAGAIN) return 0;
  if (n < 0) fail("move");
  exit(0);
}

static void exchange(int s, const char *out, char *in, size_t bytes) {
  size_t sent = 0;
  size_t received = 0;

  while (sent < bytes || received < bytes) {
    if (sent < bytes) {
      sent += moved(send(s, out + sent, bytes - sent, MSG_NOSIGNAL));
    }
    if (received < bytes) {
      received += moved(recv(s, in + received, bytes - received, 0));
    }
  }
}

/* Both processes do this. */
static double measure(int s, size_t bytes) {
  int turns = bytes > 1 << 20 ? LONG_TURNS : TURNS;
  double spent[TURNS];
  char *out = malloc(bytes);
  char *in = malloc(bytes);
  char here = 0;
  char there = 0;

  if (out == NULL || in == NULL) fail("memory");
  for (int turn = 0; turn < turns + WARM; turn++) {
    double start;

    memset(out, turn, bytes);
    exchange(s, &here, &there, 1);
    start = now();
    exchange(s, out, in, bytes);
    if (turn >= WARM) spent[turn - WARM] = now() - start;
    if (in[bytes / 2] != (char)turn) fail("other bytes than were sent");
  }
  free(out);
  free(in);
  qsort(spent, (size_t)turns, sizeof *spent, compare);
  return spent[turns / 2];
}

/* The other process hears of requests by a pipe. */
static void follow(int s, int requests) {
  size_t bytes = 0;

  while (read(requests, &bytes, sizeof bytes) == (ssize_t)sizeof bytes) {
    (void)measure(s, bytes);
  }
}

static void lead(int s, int requests) {
  char line[256];
  size_t bytes = 0;

  while (fgets(line, sizeof line, stdin) != NULL &&
         strncmp(line, "quit", 4) != 0) {
    if (sscanf(line, "exchange %zu", &bytes) != 1 || bytes == 0) {
      printf("failed: no such request: %s", line);
    } else {
      if (write(requests, &bytes, sizeof bytes) < 0) fail("request");
      printf("%.9g\n", measure(s, bytes));
    }
    (void)fflush(stdout);
  }
}

int main(void) {
  int ends[2];
  int requests[2];

  connect_ends(ends);
  if (pipe(requests) != 0) fail("pipe");
  if (fork() == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)close(requests[1]);
    (void)close(ends[0]);
    pin_process(1, 2);
    follow(ends[1], requests[0]);
    return 0;
  }
  (void)close(requests[0]);
  (void)close(ends[1]);
  pin_process(0, 2);
  lead(ends[0], requests[1]);
  (void)close(requests[1]);
  (void)close(ends[0]);
  while (wait(NULL) > 0) continue;
  return 0;
}
