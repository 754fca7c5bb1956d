/* Strangers: a thousand connections a second to a port of this machine, each
** of which sends what is no hello.
**
** usage: knock      reads the port from stdin, 0 = none, again and again; ends
**                   with stdin
** Ten every 10 ms cost this machine itself, as strangers elsewhere would not, a
** third of what one every ms costs. The last hundred stay open. Whoever starts
** it may be bound to a core: it is not. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EACH_MS = 10, OPEN = 100, BYTES = 64 };

static int64_t now_ms(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* -1 = there was no socket. */
static int knock(int port) {
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr = {htonl(INADDR_LOOPBACK)}};
  int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  char text[BYTES];

  memset(text, 'x', sizeof text);
  /* Whether anybody hears it is not its business. */
  (void)connect(s, (struct sockaddr *)&to, sizeof to);
  (void)send(s, text, sizeof text, MSG_NOSIGNAL);
  return s;
}

static void go_anywhere(void) {
  cpu_set_t all;

  memset(&all, -1, sizeof all);
  (void)sched_setaffinity(0, sizeof all, &all);
}

static void close_all(int *sockets) {
  for (int i = 0; i < OPEN; i++) {
    if (sockets[i] >= 0) (void)close(sockets[i]);
    sockets[i] = -1;
  }
}

/* False at stdin's end. */
static bool read_port(int *port) {
  char line[64];
  ssize_t n = read(STDIN_FILENO, line, sizeof line - 1);

  if (n <= 0) return false;
  line[n] = '\0';
  *port = atoi(line);
  return true;
}

int main(void) {
  struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
  int sockets[OPEN];
  int64_t begin = 0;
  int64_t n = 0;
  int port = 0;

  go_anywhere();
  memset(sockets, -1, sizeof sockets);
  for (;;) {
    if (poll(&in, 1, port > 0 ? EACH_MS : -1) > 0) {
      if (!read_port(&port)) return 0;
      close_all(sockets);
      begin = now_ms();
      n = 0;
    }
    for (; port > 0 && n < now_ms() - begin; n++) {
      int *s = &sockets[n % OPEN];

      if (*s >= 0) (void)close(*s);
      *s = knock(port);
    }
  }
}
