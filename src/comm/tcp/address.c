/* "host:port" to sockets. */
#define _GNU_SOURCE
#include <arpa/inet.h>
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
/* That this process's own host may take to be known. */
#define NAME_SECONDS 60.0

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

/* --- names ---------------------------------------------------------------- */

/* Who asks and the thread that finds out both come to the end of it; the second
** one frees it. */
enum { LOOKUP_UNDER_WAY = 0, LOOKUP_OVER, LOOKUP_LEFT };

struct tfd__lookup {
  char host[HOST_BYTES];
  char port[PORT_BYTES];
  bool passive;
  struct addrinfo *list; /* the result, */
  int error;             /* or why there is none */
  atomic_int stage;
};

static void lookup_free(tfd__lookup *l) {
  if (l->list != NULL) freeaddrinfo(l->list);
  tfd__free(l);
}

/* The system's resolver: it may ask other machines, and takes its time. */
static void find_out(tfd__lookup *l) {
  const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                 .ai_socktype = SOCK_STREAM,
                                 .ai_flags = AI_NUMERICSERV |
                                             (l->passive ? AI_PASSIVE : 0)};

  l->error = TFD_FAIL(NET_NAME) != 0
                 ? EAI_AGAIN
                 : getaddrinfo(l->host, l->port, &hints, &l->list);
}

static void find_out_beside(void *arg) {
  tfd__lookup *l = arg;

  find_out(l);
  if (atomic_exchange(&l->stage, LOOKUP_OVER) == LOOKUP_LEFT) lookup_free(l);
}

static bool is_number(const char *host) {
  struct in6_addr a;

  return inet_pton(AF_INET, host, &a) == 1 ||
         inet_pton(AF_INET6, host, &a) == 1;
}

int tfd__lookup_begin(const char *address, bool passive, tfd__lookup **l_p) {
  tfd__lookup *l = tfd__calloc(1, sizeof *l);
  tfd__thread thread;
  int rc;

  if (l == NULL) return tfd__no_memory(sizeof *l, "group");
  l->passive = passive;
  rc = split(address, l->host, l->port);
  if (rc == TFD_OK && is_number(l->host)) {
    find_out(l);
    l->stage = LOOKUP_OVER;
  } else if (rc == TFD_OK) {
    rc = tfd__thread_start(&thread, "tfdist-name", find_out_beside, l);
    if (rc == TFD_OK) (void)pthread_detach(thread);
  }
  if (rc == TFD_OK) {
    *l_p = l;
  } else {
    lookup_free(l);
  }
  return rc;
}

bool tfd__lookup_over(tfd__lookup *l, const struct addrinfo **list_p,
                      int *error_p) {
  if (atomic_load(&l->stage) != LOOKUP_OVER) return false;
  *list_p = l->list;
  *error_p = l->error;
  return true;
}

void tfd__lookup_end(tfd__lookup *l) {
  if (l == NULL) return;
  if (atomic_exchange(&l->stage, LOOKUP_LEFT) == LOOKUP_OVER) lookup_free(l);
}

/* --- sockets -------------------------------------------------------------- */

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

int tfd__accept(int listener, char host[TFD_FAR_BYTES]) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  int s = accept4(listener, (struct sockaddr *)&a, &n,
                  SOCK_NONBLOCK | SOCK_CLOEXEC);

  if (s >= 0 && getnameinfo((struct sockaddr *)&a, n, host, TFD_FAR_BYTES, NULL,
                            0, NI_NUMERICHOST) != 0) {
    (void)snprintf(host, TFD_FAR_BYTES, "?");
  }
  return s;
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
    return tfd__hint("another process has that port, maybe as the same task: "
                     "`ss -ltnp` names it");
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

static int interrupted(const char *address) {
  return tfd__fail(TFD_CANCELLED, "group: interrupted while waiting for %s",
                   address);
}

/* Wait until it is known where to listen. */
static int find_own(const char *address, tfd__lookup *l,
                    const struct addrinfo **list_p) {
  tfd__deadline until = tfd__deadline_in(NAME_SECONDS);
  int error = 0;

  while (!tfd__lookup_over(l, list_p, &error)) {
    if (tfd__interrupt_get()) return interrupted(address);
    if (tfd__now_ns() >= until) {
      return tfd__fail(TFD_UNAVAILABLE,
                       "group: the host of %s is not known after %g s", address,
                       NAME_SECONDS);
    }
    (void)poll(NULL, 0, 10);
  }
  if (error == 0) return TFD_OK;
  return tfd__fail(TFD_NOT_FOUND, "group: the host of %s is not known: %s",
                   address, gai_strerror(error));
}

static int listen_at(const char *address, const struct addrinfo *list,
                     int *socket_p) {
  tfd__deadline until = tfd__deadline_in(TAKEN_SECONDS);
  int found = -1;
  int error = 0;

  for (;;) {
    found = try_listen(list);
    error = errno;
    if (found >= 0 || error != EADDRINUSE || tfd__now_ns() >= until ||
        tfd__interrupt_get()) {
      break;
    }
    (void)poll(NULL, 0, 50);
  }
  *socket_p = found;
  if (found >= 0) return TFD_OK;
  return tfd__interrupt_get() ? interrupted(address)
                              : cannot_listen(address, error);
}

int tfd__listen(const char *address, int *socket_p) {
  const struct addrinfo *list = NULL;
  tfd__lookup *l = NULL;
  int rc;

  TFD_TRY(tfd__lookup_begin(address, true, &l));
  rc = find_own(address, l, &list);
  if (rc == TFD_OK) rc = listen_at(address, list, socket_p);
  tfd__lookup_end(l);
  return rc;
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

int tfd__connect(const struct addrinfo *list, int turn, int *error_p) {
  *error_p = TFD_FAIL(NET_CONNECT);
  return *error_p != 0 ? -1 : begin_connect(at_turn(list, turn), error_p);
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

/* Where a process of this machine listens; *length_p 0 when nobody knows. */
static int find_first(const char *address, struct sockaddr_storage *a,
                      socklen_t *length_p) {
  const struct addrinfo *list = NULL;
  tfd__lookup *l = NULL;
  int rc;

  *length_p = 0;
  TFD_TRY(tfd__lookup_begin(address, true, &l));
  rc = find_own(address, l, &list);
  if (rc == TFD_OK) {
    *length_p = list->ai_addrlen;
    memcpy(a, list->ai_addr, list->ai_addrlen);
  }
  tfd__lookup_end(l);
  return rc == TFD_CANCELLED ? rc : TFD_OK;
}

static int check_two(const tfd__network *n, int p, int q) {
  struct sockaddr_storage a[2] = {0};
  socklen_t length[2];

  TFD_TRY(find_first(n->addresses[p], &a[0], &length[0]));
  TFD_TRY(find_first(n->addresses[q], &a[1], &length[1]));
  if (length[0] == 0 || length[0] != length[1] ||
      memcmp(&a[0], &a[1], length[0]) != 0) {
    return TFD_OK;
  }
  (void)tfd__fail(TFD_FAILED_PRECONDITION,
                  "group: process %d (%s) and process %d (%s) have one "
                  "address; each needs its own",
                  p, n->addresses[p], q, n->addresses[q]);
  return tfd__hint("workers of one machine need different ports");
}

int tfd__check_apart(const tfd__network *n) {
  int p;
  int q;

  for (q = 0; q < n->processes; q++) {
    for (p = 0; p < q && tfd__is_loopback(n->addresses[q]); p++) {
      if (tfd__is_loopback(n->addresses[p]) &&
          strcmp(strrchr(n->addresses[p], ':'),
                 strrchr(n->addresses[q], ':')) == 0) {
        TFD_TRY(check_two(n, p, q));
      }
    }
  }
  return TFD_OK;
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
