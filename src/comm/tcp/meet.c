/* Every process connects to those below it and listens for those above; one
** loop over all sockets, so that nobody who is silent holds up the others. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm/tcp/hello.h"

enum {
  STRANGERS = 64, /* connections that have not proved who they are */
  AT_ONCE = 16    /* of them that are let in at once */
};
#define FIRST_RETRY_NS 50000000     /* grows by 1.6 each time, */
#define LONGEST_RETRY_NS 2000000000 /* up to here */
#define SAY_NS 10000000000
#define DEAF_NS 100000000
/* Who has found that processes differ tells those who come within this. */
#define LINGER_NS (LONGEST_RETRY_NS + INT64_C(500000000))

typedef enum stage {
  STAGE_IDLE = 0, /* connects again at `retry` */
  STAGE_NAMING,
  STAGE_CONNECTING,
  STAGE_TALKING,
  STAGE_DONE
} stage;

typedef struct line {
  stage stage;
  int process;
  int channel;
  int64_t retry;
  int64_t pause;
  int error; /* of the last try (tfd__connect_error); 0 = none yet,
                     ** EALREADY = the verdict put it off */
  tfd__verdict put_off;
  int turn;          /* tries so far: a host may have several addresses */
  int64_t late;      /* since when the job is under way without this; 0 = not */
  tfd__lookup *name; /* while it is STAGE_NAMING */
  tfd__talk talk;
} line;

/* What is known of a process that has not met this one. */
typedef struct told {
  bool apart;           /* it has heard that it differs */
  tfd__verdict verdict; /* on one that says it is this, GOOD = there is none; */
  char host[TFD_FAR_BYTES]; /* and knocked from there */
} told;

typedef struct meeting {
  const tfd__network *network;
  tfd__hello mine;
  tfd__peer_sockets *sockets;
  int listener;
  line *out; /* to those below, channel by channel */
  int out_n;
  line in[STRANGERS];
  int left;     /* connections still to come */
  int64_t deaf; /* nobody is let in until then */
  told told[TFD_MAX_LOCAL_RANKS];
  tfd__error apart;              /* processes differ: how this meeting ends, */
  int64_t linger;                /* by when at the latest, */
  int from;                      /* who has found it, */
  char note[TFD_NOTE_BYTES + 1]; /* and in which words */
} meeting;

static void close_talk(line *l, stage next) {
  tfd__lookup_end(l->name);
  l->name = NULL;
  if (l->talk.socket >= 0) (void)close(l->talk.socket);
  l->talk.socket = -1;
  l->stage = next;
}

static void try_later(line *l, int error) {
  close_talk(l, STAGE_IDLE);
  l->error = error;
  l->retry = tfd__now_ns() + l->pause;
  l->pause = l->pause * 8 / 5;
  if (l->pause > LONGEST_RETRY_NS) l->pause = LONGEST_RETRY_NS;
}

/* This thread's error is what all have to hear: process `from` has found that
** they differ. */
static void part(meeting *m, int from, const char *note) {
  if (m->apart.code != TFD_OK) return;
  tfd__error_save(&m->apart);
  m->linger = tfd__now_ns() + LINGER_NS;
  m->from = from;
  (void)snprintf(m->note, sizeof m->note, "%s", note);
}

/* Process p may have been told by others. */
static void hear_of_others(meeting *m, int p) {
  char note[TFD_NOTE_BYTES + 1];
  tfd__frame f;
  int from;

  if (!tfd__refusal_hear(m->sockets[p].socket[TFD_CHANNEL_CONTROL], &f, note)) {
    return;
  }
  from = f.what < m->mine.processes ? (int)f.what : p;
  m->told[p].apart = true;
  if (m->apart.code != TFD_OK) return;
  (void)tfd__fail(TFD_FAILED_PRECONDITION, "stopped because of process %d: %s",
                  from, note);
  part(m, from, note);
}

/* Both connections of a process that has ended make room for the next one's. */
static void drop(meeting *m, int process) {
  int c;

  for (c = 0; c < TFD_CHANNELS; c++) {
    int *s = &m->sockets[process].socket[c];

    if (*s < 0) continue;
    (void)close(*s);
    *s = -1;
    m->left++;
    m->told[process].apart = m->apart.code != TFD_OK; /* it need not be told */
    if (process < m->network->process) {
      line *l = &m->out[process * TFD_CHANNELS + c];

      l->pause = FIRST_RETRY_NS;
      try_later(l, ECONNRESET);
    }
  }
}

static bool has_hung_up(int socket) {
  struct pollfd p = {.fd = socket, .events = POLLRDHUP};

  return socket >= 0 && poll(&p, 1, 0) > 0;
}

static bool has_said_something(int socket) {
  char c = 0;

  return socket >= 0 && recv(socket, &c, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Who has met all others says so at once, with a heartbeat: its end is the
** group's to hear. */
static void drop_the_dead(meeting *m) {
  int p;

  for (p = 0; p < m->network->processes; p++) {
    const int *s = m->sockets[p].socket;

    hear_of_others(m, p);
    if (!has_hung_up(s[TFD_CHANNEL_DATA]) &&
        !has_hung_up(s[TFD_CHANNEL_CONTROL])) {
      continue;
    }
    if (!has_said_something(s[TFD_CHANNEL_CONTROL])) drop(m, p);
  }
}

static tfd__verdict is_twice(tfd__talk *t, int kept) {
  char first[TFD_FAR_BYTES];
  char second[TFD_FAR_BYTES];

  tfd__far_end(kept, first, sizeof first);
  tfd__far_end(t->socket, second, sizeof second);
  (void)snprintf(t->why, sizeof t->why, " from %s, now %s", first, second);
  return TFD_VERDICT_DUPLICATE;
}

static tfd__verdict judge(void *arg, tfd__talk *t) {
  meeting *m = arg;
  const tfd__hello *theirs = &t->theirs;
  int kept = m->sockets[theirs->process].socket[theirs->channel];

  /* It has met all others, and knocks for the next group. */
  if (theirs->meeting > m->mine.meeting) return TFD_VERDICT_LATER;
  if (has_hung_up(kept)) {
    drop(m, (int)theirs->process);
  } else if (kept >= 0) {
    return is_twice(t, kept);
  }
  return theirs->meeting == m->mine.meeting ? TFD_VERDICT_GOOD
                                            : TFD_VERDICT_UNDER_WAY;
}

/* --- one connection ------------------------------------------------------- */

/* Once it is known where the process is. */
static void begin_connect(line *l) {
  const struct addrinfo *list = NULL;
  int error = 0;

  if (!tfd__lookup_over(l->name, &list, &error)) return;
  if (error == 0) l->talk.socket = tfd__connect(list, l->turn++, &error);
  if (l->talk.socket < 0) {
    try_later(l, error);
    return;
  }
  tfd__lookup_end(l->name);
  l->name = NULL;
  l->stage = STAGE_CONNECTING;
}

static int begin_out(const meeting *m, line *l) {
  TFD_TRY(
      tfd__lookup_begin(m->network->addresses[l->process], false, &l->name));
  l->stage = STAGE_NAMING;
  begin_connect(l);
  return TFD_OK;
}

static int begin_talk(meeting *m, line *l, bool connects) {
  tfd__hello mine = m->mine;

  mine.channel = (uint32_t)l->channel;
  tfd__tune(l->talk.socket);
  TFD_TRY(
      tfd__talk_begin(&l->talk, l->talk.socket, connects, &mine, m->network));
  if (TFD_FAIL(NET_HELLO) != 0) l->talk.out[0] ^= 1;
  if (!connects) {
    l->talk.judge = judge;
    l->talk.arg = m;
  }
  l->stage = STAGE_TALKING;
  return TFD_OK;
}

static int connected(meeting *m, line *l) {
  int error = 0;
  socklen_t bytes = sizeof error;

  if (getsockopt(l->talk.socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
    error = errno;
  }
  if (error == 0) return begin_talk(m, l, true);
  try_later(l, error);
  return TFD_OK;
}

static void keep(meeting *m, line *l, int process, int channel) {
  if (channel == TFD_CHANNEL_CONTROL) {
    tfd__tune_control(l->talk.socket, m->network->beat_timeout);
  }
  m->sockets[process].socket[channel] = l->talk.socket;
  m->sockets[process].pid = l->talk.theirs.pid;
  l->talk.socket = -1;
  l->stage = STAGE_DONE;
  m->left--;
}

static bool is_of_secrets(tfd__verdict v) {
  return v == TFD_VERDICT_SECRET || v == TFD_VERDICT_SECRET_MISSING;
}

#define SECRET_HINT                                               \
  "all need the same text in TFDIST_SECRET, or in the file that " \
  "TFDIST_SECRET_FILE names"

/* The process has heard of it on its side; others are told, too, before this
** one ends. */
static void part_from(meeting *m, line *l, int process) {
  m->told[process].apart = true;
  if (m->apart.code == TFD_OK) {
    (void)tfd__fail_apart(m->network, &l->talk, process);
    part(m, m->network->process, tfd_error_message());
  }
  close_talk(l, STAGE_DONE);
}

/* Who connects has the address from its own user: whatever is there instead of
** the process, to wait for it would be in vain. */
static int refused(meeting *m, line *l) {
  if (m->apart.code != TFD_OK) { /* which is how this meeting ends */
    close_talk(l, STAGE_DONE);
    return TFD_OK;
  }
  if (l->talk.proved && tfd__is_difference(l->talk.verdict)) {
    part_from(m, l, l->process);
    return TFD_OK;
  }
  (void)tfd__fail(TFD_FAILED_PRECONDITION,
                  "group: process %d does not agree with process %d (%s): %s%s",
                  m->network->process, l->process,
                  m->network->addresses[l->process],
                  tfd__verdict_text(l->talk.verdict), l->talk.told);
  switch (l->talk.verdict) {
  case TFD_VERDICT_UNDER_WAY: /* to start again may do */
    return tfd__exit_with(TFD_EXIT_PEER_FAILED);
  case TFD_VERDICT_DUPLICATE:
    return tfd__hint("two processes run as this task: end one of them, or give "
                     "it another index in TF_CONFIG");
  case TFD_VERDICT_SECRET:
  case TFD_VERDICT_SECRET_MISSING:
    return tfd__hint(SECRET_HINT);
  default:
    return TFD_FAILED_PRECONDITION;
  }
}

/* Is it one that this process waits for? In the place of one that is there it
** is of no matter here. */
static bool is_awaited(const meeting *m, const tfd__talk *t) {
  const int *s = m->sockets[t->theirs.process].socket;

  return s[TFD_CHANNEL_DATA] < 0 && s[TFD_CHANNEL_CONTROL] < 0;
}

/* Who was heard to its end, or hung up, is not let in. */
static void turn_away(meeting *m, line *l) {
  const tfd__talk *t = &l->talk;
  bool is_other = t->theirs.process < m->mine.processes &&
                  t->theirs.process != m->mine.process;

  if (t->verdict == TFD_VERDICT_GOOD || t->verdict == TFD_VERDICT_LATER) return;
  if (is_other && t->proved && tfd__is_within_cluster(t->verdict) &&
      is_awaited(m, t)) {
    part_from(m, l, (int)t->theirs.process);
    return;
  }
  if (is_other &&
      (is_of_secrets(t->verdict) || t->verdict == TFD_VERDICT_CLUSTER ||
       t->verdict == TFD_VERDICT_PROTOCOL)) {
    told *about = &m->told[t->theirs.process];

    about->verdict = t->verdict;
    memcpy(about->host, t->host, sizeof about->host);
  }
  tfd__say_refused(m->network->addresses[m->network->process], t->host,
                   t->verdict,
                   t->verdict == TFD_VERDICT_DUPLICATE ? t->why : "");
}

/* Who has met others without this process may not know yet that it is gone; and
** then they start again, too. */
static bool is_too_late(const meeting *m, line *l) {
  double patience =
      m->network->beat_timeout > 0 ? m->network->beat_timeout : 10;
  int64_t now = tfd__now_ns();

  if (l->late == 0) l->late = now;
  return (double)(now - l->late) * 1e-9 > 2 * patience;
}

static int out_is_over(meeting *m, line *l) {
  const tfd__talk *t = &l->talk;

  if (!t->agreed) {
    if (t->verdict == TFD_VERDICT_LATER ||
        (t->verdict == TFD_VERDICT_UNDER_WAY && !is_too_late(m, l))) {
      l->put_off = t->verdict;
      try_later(l, EALREADY);
      return TFD_OK;
    }
    if (t->verdict != TFD_VERDICT_GOOD) return refused(m, l);
    try_later(l, t->error == 0 ? ECONNRESET : t->error);
    return TFD_OK;
  }
  if ((int)t->theirs.process != l->process) {
    l->talk.verdict = TFD_VERDICT_PROCESS;
    return refused(m, l);
  }
  keep(m, l, l->process, l->channel);
  return TFD_OK;
}

static int talk(meeting *m, line *l, bool connects) {
  bool over = false;

  TFD_TRY(tfd__talk_go_on(&l->talk, &over));
  if (!over) return TFD_OK;
  if (connects) return out_is_over(m, l);
  if (l->talk.agreed) {
    int p = (int)l->talk.theirs.process;
    int c = (int)l->talk.theirs.channel;

    /* Of two that were judged at the same time the first one stays. */
    if (m->sockets[p].socket[c] < 0) keep(m, l, p, c);
  } else {
    turn_away(m, l);
  }
  close_talk(l, STAGE_IDLE);
  return TFD_OK;
}

/* It knows the secret, and may have heard already that it is let in. */
static bool is_let_in(const line *l) {
  return l->talk.wanted == TFD_TALK_BYTES &&
         l->talk.verdict == TFD_VERDICT_GOOD;
}

static bool goes_before(const line *a, const line *b) {
  if (is_let_in(a) != is_let_in(b)) return is_let_in(b);
  return a->talk.until < b->talk.until;
}

/* One that is free, else the oldest one's, of strangers if there are any. */
static line *free_line(meeting *m) {
  line *oldest = &m->in[0];
  int i;

  for (i = 0; i < STRANGERS; i++) {
    line *l = &m->in[i];

    if (l->stage != STAGE_TALKING) return l;
    if (goes_before(l, oldest)) oldest = l;
  }
  close_talk(oldest, STAGE_IDLE);
  return oldest;
}

static int let_in(meeting *m) {
  int i;

  for (i = 0; i < AT_ONCE; i++) {
    line *l = NULL;
    char host[TFD_FAR_BYTES];
    int s = tfd__accept(m->listener, host);

    if (s < 0) {
      /* Who waits there would wake the loop again and again. */
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
          errno == ENOBUFS) {
        m->deaf = tfd__now_ns() + DEAF_NS;
      }
      return TFD_OK;
    }
    if (TFD_FAIL(NET_ACCEPT) != 0) {
      (void)close(s);
      continue;
    }
    l = free_line(m);
    l->talk.socket = s;
    TFD_TRY(begin_talk(m, l, false));
    memcpy(l->talk.host, host, sizeof host);
  }
  return TFD_OK;
}

/* --- the loop ------------------------------------------------------------- */

static int go_on(meeting *m, line *l, bool connects, int events) {
  if (l->stage == STAGE_IDLE && connects && tfd__now_ns() >= l->retry) {
    return begin_out(m, l);
  }
  if (l->stage == STAGE_NAMING) begin_connect(l);
  if (l->stage == STAGE_CONNECTING && events != 0) return connected(m, l);
  if (l->stage == STAGE_TALKING) return talk(m, l, connects);
  return TFD_OK;
}

static void watch(const line *l, struct pollfd *p) {
  *p = (struct pollfd){.fd = -1};
  if (l->stage == STAGE_CONNECTING) {
    *p = (struct pollfd){.fd = l->talk.socket, .events = POLLOUT};
  } else if (l->stage == STAGE_TALKING) {
    *p = (struct pollfd){.fd = l->talk.socket, .events = POLLIN};
    if (l->talk.out_done < l->talk.out_n) p->events |= POLLOUT;
  }
}

/* Sockets are looked at at least this often, for retries and deadlines. */
enum { ROUND_MS = 20 };

static int one_round(meeting *m, struct pollfd *polled) {
  int n = m->out_n + STRANGERS;
  int i;

  for (i = 0; i < n; i++) {
    watch(i < m->out_n ? &m->out[i] : &m->in[i - m->out_n], &polled[i]);
  }
  polled[n] = (struct pollfd){.fd = tfd__now_ns() < m->deaf ? -1 : m->listener,
                              .events = POLLIN};
  tfd__poll(polled, n + 1, ROUND_MS);
  for (i = 0; i < n; i++) {
    bool connects = i < m->out_n;
    line *l = connects ? &m->out[i] : &m->in[i - m->out_n];

    TFD_TRY(go_on(m, l, connects, polled[i].revents));
  }
  drop_the_dead(m);
  return polled[n].revents != 0 ? let_in(m) : TFD_OK;
}

/* What one has that was not let in. */
static const char *what_else(const meeting *m, tfd__verdict v) {
  switch (v) {
  case TFD_VERDICT_PROTOCOL:
    return "another version of tfdist";
  case TFD_VERDICT_SECRET:
    return "another secret";
  case TFD_VERDICT_SECRET_MISSING:
    return m->network->secret_bytes > 0 ? "no secret, and this one has one"
                                        : "a secret, and this one has none";
  default:
    return "another list of addresses";
  }
}

/* "process 2 (host:port): Connection refused; process 3 (...)". Who was here
** and gave up, often for the same reason, is not the one that is missing. */
static void name_missing(const meeting *m, char *text, size_t bytes) {
  size_t used = 0;
  int p;

  text[0] = '\0';
  for (p = 0; p < m->network->processes && used < bytes; p++) {
    const int *s = m->sockets[p].socket;
    const line *l = &m->out[p * TFD_CHANNELS];
    const told *about = &m->told[p];
    char there[160];
    const char *why = "not heard of";

    if (p == m->network->process || (s[0] >= 0 && s[1] >= 0)) continue;
    if (m->sockets[p].pid != 0) {
      why = "was here and has ended";
    } else if (p < m->network->process && l->error != 0) {
      why = l->error == EALREADY ? tfd__verdict_text(l->put_off)
                                 : tfd__connect_error(l->error);
    } else if (p < m->network->process && l->stage == STAGE_NAMING) {
      why = "its host is being looked up";
    } else if (about->verdict != TFD_VERDICT_GOOD) {
      (void)snprintf(there, sizeof there,
                     "one that says it is this, at %s, has %s", about->host,
                     what_else(m, about->verdict));
      why = there;
    }
    used += (size_t)snprintf(text + used, bytes - used, "%sprocess %d (%s): %s",
                             used > 0 ? "; " : "", p, m->network->addresses[p],
                             why);
  }
}

/* Processes differ: have all been heard that are to hear of it? Then those that
** have been met are told. */
static bool has_parted(const meeting *m) {
  bool all = true;
  int p;

  for (p = 0; p < m->network->processes; p++) {
    const int *s = m->sockets[p].socket;

    all = all && (p == m->network->process || m->told[p].apart ||
                  (s[TFD_CHANNEL_DATA] >= 0 && s[TFD_CHANNEL_CONTROL] >= 0));
  }
  if (!all && tfd__now_ns() < m->linger) return false;
  (void)tfd__error_raise(&m->apart);
  for (p = 0; p < m->network->processes; p++) {
    int s = m->sockets[p].socket[TFD_CHANNEL_CONTROL];

    if (s >= 0) tfd__refusal_send(s, m->from, m->note);
  }
  return true;
}

/* Who was stopped for long looks once more before it gives up. */
static int meet(meeting *m, struct pollfd *polled) {
  double seconds =
      m->network->start_timeout > 0 ? m->network->start_timeout : 300;
  tfd__deadline until = tfd__deadline_in(seconds);
  int64_t say = tfd__now_ns() + SAY_NS;
  char missing[1024];

  while (m->left > 0 || m->apart.code != TFD_OK) {
    bool late = tfd__now_ns() >= until;

    TFD_TRY(one_round(m, polled));
    if (tfd__interrupt_get()) {
      return tfd__fail(TFD_CANCELLED,
                       "group: interrupted while waiting for processes");
    }
    if (m->apart.code != TFD_OK) {
      if (has_parted(m)) return (int)m->apart.code;
      continue;
    }
    if (m->left == 0) return TFD_OK;
    if (tfd__now_ns() < say && !late) continue;
    name_missing(m, missing, sizeof missing);
    if (late) {
      (void)tfd__fail(TFD_DEADLINE_EXCEEDED,
                      "group: not all of %d processes are there after %g s: %s",
                      m->network->processes, seconds, missing);
      return strstr(missing, " secret") == NULL ? TFD_DEADLINE_EXCEEDED
                                                : tfd__hint(SECRET_HINT);
    }
    tfd__log(TFD_LOG_WARNING, "waiting for %s", missing);
    say = tfd__now_ns() + SAY_NS;
  }
  return TFD_OK;
}

/* --- before and after ----------------------------------------------------- */

static uint64_t hash_text(uint64_t h, const char *text) {
  for (; *text != '\0'; text++) {
    h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
  }
  return (h ^ 0xff) * UINT64_C(0x100000001b3);
}

static uint64_t cluster_hash(const tfd__network *network) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  int p;

  for (p = 0; p < network->processes; p++) {
    h = hash_text(h, network->addresses[p]);
  }
  return h;
}

/* Who can be reached from other machines must have a secret. */
static int check_secret(const tfd__network *network) {
  int p;

  if (network->secret_bytes > 0 || network->insecure) return TFD_OK;
  for (p = 0; p < network->processes; p++) {
    if (tfd__is_loopback(network->addresses[p])) continue;
    (void)tfd__fail(TFD_FAILED_PRECONDITION,
                    "group: %s can be reached from other machines, and the "
                    "cluster has no secret",
                    network->addresses[p]);
    return tfd__hint("put the same text into TFDIST_SECRET, or its file's name "
                     "into TFDIST_SECRET_FILE, on all machines; "
                     "TFDIST_INSECURE=1 does without");
  }
  return TFD_OK;
}

static void prepare(meeting *m) {
  int i;

  for (i = 0; i < m->out_n; i++) {
    m->out[i] = (line){.process = i / TFD_CHANNELS,
                       .channel = i % TFD_CHANNELS,
                       .pause = FIRST_RETRY_NS,
                       .talk = {.socket = -1}};
  }
  for (i = 0; i < STRANGERS; i++) m->in[i].talk.socket = -1;
  for (i = 0; i < m->network->processes; i++) {
    m->sockets[i] = (tfd__peer_sockets){.socket = {-1, -1}};
  }
}

void tfd__hang_up(tfd__peer_sockets *sockets, int processes) {
  int i;
  int c;

  for (i = 0; i < processes; i++) {
    for (c = 0; c < TFD_CHANNELS; c++) {
      if (sockets[i].socket[c] >= 0) (void)close(sockets[i].socket[c]);
    }
  }
}

static void finish(meeting *m, int rc) {
  int i;

  for (i = 0; i < m->out_n; i++) close_talk(&m->out[i], STAGE_DONE);
  for (i = 0; i < STRANGERS; i++) close_talk(&m->in[i], STAGE_DONE);
  tfd__door_return(m->network, &m->mine, m->listener, rc == TFD_OK);
  if (rc != TFD_OK) tfd__hang_up(m->sockets, m->network->processes);
}

int tfd__meet(const tfd__network *network, int local,
              tfd__peer_sockets *sockets) {
  int out_n = network->process * TFD_CHANNELS;
  size_t polled_n = (size_t)out_n + STRANGERS + 1;
  meeting *m = NULL;
  struct pollfd *polled = NULL;
  int rc;

  TFD_TRY(check_secret(network));
  TFD_TRY(tfd__check_apart(network));
  m = tfd__calloc(1, sizeof *m);
  polled = tfd__calloc(polled_n, sizeof *polled);
  if (m != NULL) m->out = tfd__calloc((size_t)out_n + 1, sizeof *m->out);
  if (m == NULL || polled == NULL || m->out == NULL) {
    rc = tfd__no_memory(polled_n * sizeof *polled, "group");
    goto free_all;
  }
  m->network = network;
  m->sockets = sockets;
  m->listener = -1;
  m->out_n = out_n;
  m->left = (network->processes - 1) * TFD_CHANNELS;
  m->mine = (tfd__hello){.process = (uint32_t)network->process,
                         .processes = (uint32_t)network->processes,
                         .local = (uint32_t)local,
                         .meeting = tfd__door_meetings() + 1,
                         .pid = (uint32_t)getpid(),
                         .transport = tfd__transport_number(network->transport),
                         .cluster = cluster_hash(network)};
  prepare(m);
  (void)TFD_FAIL(MEET_BEGIN);
  rc = tfd__door_lend(network->addresses[network->process], &m->listener);
  if (rc == TFD_OK) rc = meet(m, polled);
  finish(m, rc);
  (void)TFD_FAIL(MEET_DONE);

free_all:
  if (m != NULL) tfd__error_free(&m->apart);
  if (m != NULL) tfd__free(m->out);
  tfd__free(polled);
  tfd__free(m);
  return rc;
}
