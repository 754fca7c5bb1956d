/* The door: after processes have met, one thread goes on listening at this
** process's address, tells tasks that come late why nobody waits for them, and
** shuts strangers out. There is one for each process, with the address of the
** meeting that opened it, as long as a group has it open; the next meeting
** takes its listener over meanwhile.
** D1 Nothing is allocated for who knocks, and no more than SLOTS are heard at
**    once: a new one has the place of the oldest.
** D2 Nobody is heard for longer than a talk takes, or further than hello.c
**    hears one who has proved nothing.
** D3 So many are let in at once, then none for a moment: the rest waits in the
**    kernel, which has only so much patience either. The thread is nice. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/hello.h"

enum { SLOTS = 64, AT_ONCE = 16, PAUSE_MS = 50, LOOK_MS = 1000, NICE = 19 };

static struct {
  pthread_mutex_t lock;
  int users;     /* groups; under the lock */
  bool stopping; /* under the lock */
  bool lent;     /* a meeting listens itself; under the lock */
  int listener;  /* -1 = closed */
  int wake;
  uint32_t meetings; /* good ones of this process; under the lock */
  char *address;
  char *secret;
  tfd__network network; /* its secret */
  tfd__hello mine;
  tfd__thread thread;
} door = {.lock = PTHREAD_MUTEX_INITIALIZER, .listener = -1, .wake = -1};

/* --- refusals ------------------------------------------------------------- */

#define QUIET_NS INT64_C(10000000000)

/* Hosts that were spoken of last. One that finds no room, as all others were
** spoken of a moment ago, is counted in nobody's line: there are no more than
** HOSTS lines in QUIET_NS. */
enum { HOSTS = 64 };

typedef struct refusals {
  char host[TFD_FAR_BYTES];
  int64_t said;  /* 0 = never */
  unsigned more; /* since then */
} refusals;

static struct {
  pthread_mutex_t lock;
  refusals of[HOSTS]; /* under the lock */
} refused = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Its entry, or the one that has been silent for longest. */
static refusals *refusals_of(const char *host, bool *known_p) {
  refusals *oldest = &refused.of[0];
  int i;

  for (i = 0; i < HOSTS; i++) {
    refusals *r = &refused.of[i];

    *known_p = r->said != 0 && strcmp(r->host, host) == 0;
    if (*known_p) return r;
    if (r->said < oldest->said) oldest = r;
  }
  return oldest;
}

/* Is it time for a line, and how many others is it for? */
static bool is_to_be_said(const char *host, unsigned *others_p) {
  int64_t now = tfd__now_ns();
  refusals *r = NULL;
  bool known = false;
  bool say = false;

  pthread_mutex_lock(&refused.lock);
  r = refusals_of(host, &known);
  say = r->said == 0 || now - r->said >= QUIET_NS;
  if (say) {
    *others_p = known ? r->more : 0;
    *r = (refusals){.said = now};
    (void)snprintf(r->host, sizeof r->host, "%s", host);
  } else if (known) {
    r->more++;
  }
  pthread_mutex_unlock(&refused.lock);
  return say;
}

void tfd__say_refused(const char *address, const char *host, tfd__verdict v,
                      const char *who) {
  char more[80] = "";
  unsigned others = 0;

  if (!is_to_be_said(host, &others)) return;
  if (others > 0) {
    (void)snprintf(more, sizeof more,
                   " (as were %u others from there since the last such line)",
                   others);
  }
  tfd__log(TFD_LOG_WARNING, "a connection from %s to %s was refused: %s%s%s",
           host, address, tfd__verdict_text(v), who, more);
}

/* --- the thread ----------------------------------------------------------- */

/* Groups' meetings have numbers: who is ahead is one of ours, whose next
** meeting has not begun here; who is not has begun anew. */
static tfd__verdict judge(void *arg, tfd__talk *t) {
  uint32_t meetings;

  (void)arg;
  pthread_mutex_lock(&door.lock);
  meetings = door.meetings;
  pthread_mutex_unlock(&door.lock);
  return t->theirs.meeting > meetings ? TFD_VERDICT_LATER
                                      : TFD_VERDICT_UNDER_WAY;
}

static void close_talk(tfd__talk *t) {
  if (t->socket >= 0) (void)close(t->socket);
  t->socket = -1;
}

static tfd__talk *free_slot(tfd__talk *talks) {
  tfd__talk *oldest = &talks[0];
  int i;

  for (i = 0; i < SLOTS; i++) {
    if (talks[i].socket < 0) return &talks[i];
    if (talks[i].until < oldest->until) oldest = &talks[i];
  }
  close_talk(oldest);
  return oldest;
}

/* Under the lock: who knocks after a meeting has borrowed the listener is that
** meeting's to hear. */
static void let_in(tfd__talk *talks) {
  int i;

  pthread_mutex_lock(&door.lock);
  for (i = 0; i < AT_ONCE && !door.lent; i++) {
    char host[TFD_FAR_BYTES];
    int s = tfd__accept(door.listener, host);
    tfd__talk *t = s < 0 ? NULL : free_slot(talks);

    if (s < 0) break;
    if (tfd__talk_begin(t, s, false, &door.mine, &door.network) != TFD_OK) {
      close_talk(t);
      break;
    }
    t->judge = judge;
    memcpy(t->host, host, sizeof host);
  }
  pthread_mutex_unlock(&door.lock);
}

static void hear(tfd__talk *t) {
  bool over = false;

  if (tfd__talk_go_on(t, &over) == TFD_OK && !over) return;
  if (t->verdict != TFD_VERDICT_GOOD && t->verdict != TFD_VERDICT_LATER) {
    tfd__say_refused(door.address, t->host, t->verdict, "");
  }
  close_talk(t);
}

static bool look(bool *lent_p) {
  bool stopping = false;

  pthread_mutex_lock(&door.lock);
  stopping = door.stopping;
  *lent_p = door.lent;
  pthread_mutex_unlock(&door.lock);
  return !stopping;
}

static void run(void *unused) {
  static tfd__talk talks[SLOTS];
  struct pollfd polled[SLOTS + 2];
  int64_t next = 0; /* nobody is let in before */
  bool lent = false;
  int i;

  (void)unused;
  (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
  for (i = 0; i < SLOTS; i++) talks[i].socket = -1;
  while (look(&lent)) {
    int64_t now = tfd__now_ns();
    bool open = !lent && now >= next;
    int ms = open || lent ? LOOK_MS : PAUSE_MS;

    for (i = 0; i < SLOTS; i++) {
      bool talks_on = talks[i].out_done < talks[i].out_n;

      polled[i] =
          (struct pollfd){.fd = talks[i].socket,
                          .events = (short)(POLLIN | (talks_on ? POLLOUT : 0))};
      if (talks[i].socket >= 0) ms = PAUSE_MS;
    }
    polled[SLOTS] =
        (struct pollfd){.fd = open ? door.listener : -1, .events = POLLIN};
    polled[SLOTS + 1] = (struct pollfd){.fd = door.wake, .events = POLLIN};
    tfd__poll(polled, SLOTS + 2, ms);
    now = tfd__now_ns();
    for (i = 0; i < SLOTS; i++) {
      if (talks[i].socket < 0) continue;
      if (polled[i].revents != 0 || now > talks[i].until) hear(&talks[i]);
    }
    if (polled[SLOTS].revents != 0) {
      let_in(talks);
      next = now + PAUSE_MS * INT64_C(1000000);
    }
    if (polled[SLOTS + 1].revents != 0) {
      uint64_t count = 0;

      if (read(door.wake, &count, sizeof count) < 0) continue;
    }
  }
  for (i = 0; i < SLOTS; i++) close_talk(&talks[i]);
}

static void wake(void) {
  uint64_t one = 1;

  if (write(door.wake, &one, sizeof one) < 0) return; /* full = awake */
}

/* No thread uses it. */
static void clear(void) {
  if (door.listener >= 0) (void)close(door.listener);
  if (door.wake >= 0) (void)close(door.wake);
  door.listener = -1;
  door.wake = -1;
  tfd__free(door.address);
  tfd__free(door.secret);
  door.address = NULL;
  door.secret = NULL;
  door.lent = false;
  door.stopping = false;
}

static void shut(void) {
  pthread_mutex_lock(&door.lock);
  door.stopping = true;
  pthread_mutex_unlock(&door.lock);
  wake();
  tfd__thread_join(door.thread);
  clear();
}

/* --- a door that is made ---------------------------------------------------
 */

static struct {
  int listener; /* -1 = none */
  char address[TFD_ADDRESS_BYTES];
} made = {.listener = -1};

static void lend(void) {
  pthread_mutex_lock(&door.lock);
  door.lent = true;
  pthread_mutex_unlock(&door.lock);
}

/* True when all groups have left meanwhile. */
static bool give_back(void) {
  bool left = false;

  pthread_mutex_lock(&door.lock);
  door.lent = false;
  left = door.users == 0;
  pthread_mutex_unlock(&door.lock);
  return left;
}

/* A door hears nobody from here on: who is told the address may be ahead of
** this process, and the door knows nothing of the meeting to come. */
int tfd__door_make(const char *host, char address[TFD_ADDRESS_BYTES]) {
  int port = 0;

  tfd__door_unmake();
  if (door.listener >= 0 && door.address != NULL) {
    lend();
    (void)snprintf(address, TFD_ADDRESS_BYTES, "%s", door.address);
    return TFD_OK;
  }
  /* A machine's own name is often that of its loopback, to itself. */
  TFD_TRY(tfd__listen_any(tfd__is_loopback(host) ? host : "0.0.0.0",
                          &made.listener, &port));
  (void)snprintf(made.address, sizeof made.address, "%.255s:%d", host, port);
  memcpy(address, made.address, sizeof made.address);
  return TFD_OK;
}

void tfd__door_unmake(void) {
  if (made.listener >= 0) (void)close(made.listener);
  made.listener = -1;
  if (door.listener < 0) return;
  if (give_back()) {
    shut();
  } else {
    wake();
  }
}

static bool take_made(const char *address, int *listener_p) {
  if (made.listener < 0 || strcmp(made.address, address) != 0) return false;
  *listener_p = made.listener;
  made.listener = -1;
  return true;
}

/* --- opening and closing -------------------------------------------------- */

/* Another cluster's meeting ends the door of the one before. */
int tfd__door_lend(const char *address, int *listener_p) {
  bool there = door.listener >= 0 && door.address != NULL;

  if (there && strcmp(door.address, address) != 0) {
    shut();
    there = false;
  }
  if (!there && take_made(address, listener_p)) return TFD_OK;
  if (!there) return tfd__listen(address, listener_p);
  lend();
  *listener_p = door.listener;
  return TFD_OK;
}

/* Errors of these leave the port closed, and are nobody's. */
static void open_door(const tfd__network *network, const tfd__hello *mine,
                      int listener) {
  door.listener = listener;
  door.address = tfd__strdup(network->addresses[network->process]);
  door.mine = *mine;
  door.network = (tfd__network){.secret_bytes = network->secret_bytes,
                                .transport = network->transport};
  if (network->secret_bytes > 0) {
    door.secret = tfd__alloc(network->secret_bytes);
    if (door.secret != NULL) {
      memcpy(door.secret, network->secret, network->secret_bytes);
    }
    door.network.secret = door.secret;
  }
  door.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (door.address == NULL || door.wake < 0 ||
      (network->secret_bytes > 0 && door.secret == NULL) ||
      tfd__thread_start(&door.thread, "tfdist-door", run, NULL) != TFD_OK) {
    clear();
  }
}

void tfd__door_return(const tfd__network *network, const tfd__hello *mine,
                      int listener, bool met) {
  bool is_door = listener >= 0 && listener == door.listener;
  bool left = false;

  pthread_mutex_lock(&door.lock);
  if (met) {
    door.meetings++;
    door.users++;
    if (is_door) {
      door.mine = *mine;
      door.network.transport = network->transport;
    }
  }
  door.lent = false;
  left = door.users == 0;
  pthread_mutex_unlock(&door.lock);
  if (is_door && left) {
    shut();
  } else if (is_door) {
    wake();
  } else if (met) {
    open_door(network, mine, listener);
  } else if (listener >= 0) {
    (void)close(listener);
  }
}

void tfd__door_leave(void) {
  bool last = false;

  pthread_mutex_lock(&door.lock);
  last = --door.users == 0 && !door.lent;
  pthread_mutex_unlock(&door.lock);
  if (last && door.listener >= 0) shut();
}

uint32_t tfd__door_meetings(void) {
  uint32_t meetings;

  pthread_mutex_lock(&door.lock);
  meetings = door.meetings;
  pthread_mutex_unlock(&door.lock);
  return meetings;
}
