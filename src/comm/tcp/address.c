/* "host:port" to sockets. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm/tcp/tcp.h"

/* Who has the port may be about to end: the run before, say. */
#define TAKEN_SECONDS 5.0

enum { HOST_BYTES = 256, PORT_BYTES = 8, BACKLOG = 128 };

/* "[::1]:2222" and "host:2222" as two texts. */
static int split(const char *address, char host[HOST_BYTES],
                 char port[PORT_BYTES]) {
  const char *colon = strrchr(address, ':');
  const char *from = address;
  const char *to = colon;

  if (colon != NULL && *from == '[' && to > from + 1 && to[-1] == ']') {
    from++;
    to--;
  }
  if (colon == NULL || to <= from || to - from >= HOST_BYTES ||
      colon[1] == '\0' || strlen(colon + 1) >= PORT_BYTES) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "group: \"%.80s\" is no address; expected \"host:port\"",
                     address);
  }
  memcpy(host, from, (size_t)(to - from));
  host[to - from] = '\0';
  memcpy(port, colon + 1, strlen(colon + 1) + 1);
  return TFD_OK;
}

/* *error_p is getaddrinfo's. Errors: ValueError for what is no address. */
static int look_up(const char *address, bool passive, struct addrinfo **list_p,
                   int *error_p) {
  struct addrinfo hints = {.ai_family = AF_UNSPEC,
                           .ai_socktype = SOCK_STREAM,
                           .ai_flags =
                               AI_NUMERICSERV | (passive ? AI_PASSIVE : 0)};
  char host[HOST_BYTES];
  char port[PORT_BYTES];

  TFD_TRY(split(address, host, port));
  *error_p = getaddrinfo(host, port, &hints, list_p);
  return TFD_OK;
}

void tfd__far_end(int socket, char *text, size_t bytes) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  char host[64] = "?";
  char port[PORT_BYTES] = "?";

  if (getpeername(socket, (struct sockaddr *)&a, &n) == 0) {
    (void)getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port,
                      sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  }
  (void)snprintf(text, bytes, strchr(host, ':') == NULL ? "%s:%s" : "[%s]:%s",
                 host, port);
}

void tfd__tune(int socket) {
  int on = 1;
  int idle = 3;
  int interval = 2;
  int count = 3;

  (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval,
                   sizeof interval);
  (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

void tfd__tune_control(int socket, double beat_timeout) {
  int ms = (int)(1000 * (beat_timeout > 0 ? beat_timeout : 10));

  (void)setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static int open_listener(const struct addrinfo *a) {
  int type = a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC;
  int fault = TFD_FAIL(NET_LISTEN);
  int s = fault == 0 ? socket(a->ai_family, type, 0) : -1;
  int on = 1;

  if (fault != 0) errno = fault;
  if (s < 0) return -1;
  (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(s, a->ai_addr, a->ai_addrlen) == 0 && listen(s, BACKLOG) == 0) {
    return s;
  }
  on = errno;
  (void)close(s);
  errno = on;
  return -1;
}

static int try_listen(const struct addrinfo *list) {
  const struct addrinfo *a = NULL;
  int found = -1;

  for (a = list; a != NULL && found < 0; a = a->ai_next) {
    found = open_listener(a);
  }
  return found;
}

static int cannot_listen(const char *address, int error) {
  char owner[80] = "";

  if (error == EADDRINUSE) {
    tfd__port_owner((unsigned)strtoul(strrchr(address, ':') + 1, NULL, 10),
                    owner, sizeof owner);
  }
  (void)tfd__fail(TFD_UNAVAILABLE, "group: cannot listen on %s: %s%s", address,
                  strerror(error), owner);
  if (error == EADDRINUSE) {
    return tfd__hint("another process has that port: `ss -ltnp` names it");
  }
  if (error == EADDRNOTAVAIL) {
    return tfd__hint("this machine has none of that address");
  }
  return TFD_UNAVAILABLE;
}

int tfd__listen_any(const char *host, int *socket_p, int *port_p) {
  struct sockaddr_in any = {0};
  socklen_t bytes = sizeof any;
  char address[HOST_BYTES + PORT_BYTES];

  (void)snprintf(address, sizeof address, "%.255s:0", host);
  TFD_TRY(tfd__listen(address, socket_p));
  if (getsockname(*socket_p, (struct sockaddr *)&any, &bytes) == 0 &&
      any.sin_family == AF_INET) {
    *port_p = ntohs(any.sin_port);
    return TFD_OK;
  }
  (void)close(*socket_p);
  return tfd__fail(TFD_UNAVAILABLE, "group: no port on %s", host);
}

int tfd__listen(const char *address, int *socket_p) {
  tfd__deadline until = tfd__deadline_in(TAKEN_SECONDS);
  struct addrinfo *list = NULL;
  int found = -1;
  int error = 0;

  TFD_TRY(look_up(address, true, &list, &error));
  if (error != 0) {
    return tfd__fail(TFD_NOT_FOUND, "group: the host of %s is not known: %s",
                     address, gai_strerror(error));
  }
  for (;;) {
    found = try_listen(list);
    error = errno;
    if (found >= 0 || error != EADDRINUSE || tfd__now_ns() >= until ||
        tfd__interrupt_get()) {
      break;
    }
    (void)poll(NULL, 0, 50);
  }
  freeaddrinfo(list);
  *socket_p = found;
  if (found < 0 && tfd__interrupt_get()) {
    return tfd__fail(TFD_CANCELLED, "group: interrupted while waiting for %s",
                     address);
  }
  return found >= 0 ? TFD_OK : cannot_listen(address, error);
}

static const struct addrinfo *at_turn(const struct addrinfo *list, int turn) {
  const struct addrinfo *a = NULL;
  int n = 0;

  for (a = list; a != NULL; a = a->ai_next) n++;
  for (a = list, turn %= n; turn > 0; turn--) a = a->ai_next;
  return a;
}

static int begin_connect(const struct addrinfo *a, int *error_p) {
  int s = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  if (s >= 0 &&
      (connect(s, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS)) {
    return s;
  }
  *error_p = errno;
  if (s >= 0) (void)close(s);
  return -1;
}

int tfd__connect(const char *address, int turn, int *socket_p, int *error_p) {
  struct addrinfo *list = NULL;

  *error_p = TFD_FAIL(NET_CONNECT);
  *socket_p = -1;
  if (*error_p != 0) return TFD_OK;
  if (TFD_FAIL(NET_NAME) != 0) {
    *error_p = EAI_AGAIN;
    return TFD_OK;
  }
  TFD_TRY(look_up(address, false, &list, error_p));
  if (*error_p != 0) return TFD_OK;
  *socket_p = begin_connect(at_turn(list, turn), error_p);
  freeaddrinfo(list);
  return TFD_OK;
}

const char *tfd__connect_error(int error) {
  return error < 0 ? gai_strerror(error) : strerror(error);
}

bool tfd__is_loopback(const char *address) {
  char host[HOST_BYTES];
  char port[PORT_BYTES];

  if (split(address, host, port) != TFD_OK) return false;
  return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
         strcasecmp(host, "localhost") == 0;
}

bool tfd__same_host(const char *a, const char *b) {
  char hosts[2][HOST_BYTES];
  char port[PORT_BYTES];

  return split(a, hosts[0], port) == TFD_OK &&
         split(b, hosts[1], port) == TFD_OK &&
         strcasecmp(hosts[0], hosts[1]) == 0;
}

bool tfd__is_one_host(const tfd__network *n) {
  bool same = true;
  bool loopback = true;
  int p;

  for (p = 0; p < n->processes; p++) {
    loopback = loopback && tfd__is_loopback(n->addresses[p]);
    same = same && tfd__same_host(n->addresses[0], n->addresses[p]);
  }
  return same || loopback;
}
