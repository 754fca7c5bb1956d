/* What processes say to each other beside their collectives, and the thread
** that hears it: a heartbeat each second, or more often; silence, a connection
** that ends without a farewell, and aborts fail the group. The frames of
** collectives are data.c's. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/failpoint.h"
#include "base/late.h"
#include "comm/tcp/peers.h"

#define BEAT_NS 1000000000 /* or a fourth of the patience */
#define FAREWELL_SECONDS 2.0

/* The thread looks ten times a second: after longer than this the process was
** stopped, or had no core. */
#define PAUSE_NS 1000000000

/* --- failures ------------------------------------------------------------- */

void tfd__mesh_abort(tfd__mesh *m, const tfd__error *cause) {
  tfd__lock(&m->lock);
  if (m->note_code == TFD_OK) {
    m->note_code = (int)cause->code;
    m->note_exit = cause->exit;
    m->note_from = m->process;
    (void)snprintf(m->note, sizeof m->note, "%s",
                   cause->message == NULL ? "" : cause->message);
  }
  m->failed = true;
  tfd__cond_broadcast(&m->moved);
  tfd__unlock(&m->lock);
  tfd__mesh_wake(m);
}

/* --- control -------------------------------------------------------------- */

/* Put a frame behind what waits to be sent: that is one beat at the most, for
** others give way. */
static void say(tfd__peer *it, const tfd__frame *head, const char *text) {
  size_t n = text == NULL ? 0 : strlen(text);
  tfd__frame f = *head;

  f.length = n;
  f.sum = text == NULL ? 0 : tfd__crc32c(0, text, n);
  if (it->out_done > 0) {
    memmove(it->out, it->out + it->out_done, it->out_n - it->out_done);
    it->out_n -= it->out_done;
    it->out_done = 0;
  }
  if (it->out_n + TFD_FRAME_BYTES + n > sizeof it->out) return;
  tfd__frame_write(&f, it->out + it->out_n);
  if (n > 0) memcpy(it->out + it->out_n + TFD_FRAME_BYTES, text, n);
  it->out_n += TFD_FRAME_BYTES + n;
}

static void send_control(tfd__peer *it) {
  ssize_t n = 0;

  if (it->socket[TFD_CHANNEL_CONTROL] < 0 || it->out_done == it->out_n) return;
  n = send(it->socket[TFD_CHANNEL_CONTROL], it->out + it->out_done,
           it->out_n - it->out_done, MSG_NOSIGNAL);
  if (n > 0) it->out_done += (size_t)n;
}

/* Only these are the same for who hears of the failure. */
static tfd__exit exit_for_all(uint64_t given) {
  if (given == TFD_EXIT_DESYNC) return TFD_EXIT_DESYNC;
  return given == TFD_EXIT_CHIEF_LOST ? TFD_EXIT_CHIEF_LOST : TFD_EXIT_ANY;
}

static void hear_abort(tfd__mesh *m, int process, const tfd__frame *f) {
  int code = f->tag > 0 && f->tag < TFD_STATUS_END ? (int)f->tag : TFD_ABORTED;
  size_t n = (size_t)f->length;

  tfd__lock(&m->lock);
  if (m->note_code == TFD_OK) {
    m->note_code = code;
    m->note_exit = exit_for_all(f->count);
    m->note_from = f->what < (uint64_t)m->processes ? (int)f->what : process;
    memcpy(m->note, m->peers[process].in + TFD_FRAME_BYTES, n);
    m->note[n] = '\0';
  }
  tfd__unlock(&m->lock);
  (void)tfd__fail((tfd_status)code, "stopped because of process %d: %s",
                  m->note_from, m->note);
  (void)tfd__exit_with(m->note_exit);
  tfd__mesh_fail(m);
}

/* One whole frame lies in `in`. */
static void hear(tfd__mesh *m, int process, const tfd__frame *f) {
  tfd__peer *it = &m->peers[process];

  it->heard = tfd__now_ns();
  if (f->type == TFD_FRAME_BEAT) {
    tfd__lock(&m->lock);
    it->beat = *f;
    tfd__unlock(&m->lock);
  }
  if (f->type == TFD_FRAME_BYE) {
    it->status = (int)f->count;
    it->left = true;
  }
  if (f->type == TFD_FRAME_ABORT || f->type == TFD_FRAME_REFUSAL) {
    hear_abort(m, process, f);
  }
  it->in_n = 0;
}

/* The system may give a connection up before we do: that is silence, too. */
static void tell_end(tfd__mesh *m, int process, const tfd__peer *it) {
  int error = it->control_error;
  char how[160];

  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
    (void)snprintf(how, sizeof how, "has not been heard of for %.1f s (%s)",
                   (double)(tfd__now_ns() - it->heard) * 1e-9, strerror(error));
  } else {
    (void)snprintf(how, sizeof how,
                   "is gone: its connection ended without a farewell%s%s%s",
                   error == 0 ? "" : " (", error == 0 ? "" : strerror(error),
                   error == 0 ? "" : ")");
  }
  tfd__mesh_lost(m, process, how);
}

static bool is_sound(const tfd__peer *it, const tfd__frame *f) {
  return f->sum == tfd__crc32c(0, it->in + TFD_FRAME_BYTES, (size_t)f->length);
}

static void receive_control(tfd__mesh *m, int process) {
  tfd__peer *it = &m->peers[process];
  tfd__frame f;

  while (it->socket[TFD_CHANNEL_CONTROL] >= 0 && !it->deaf) {
    size_t whole = TFD_FRAME_BYTES;

    if (it->in_n >= TFD_FRAME_BYTES) {
      bool good = tfd__frame_read(it->in, &f) && f.length <= TFD_NOTE_BYTES &&
                  f.type != TFD_FRAME_DATA;

      if (good) whole += (size_t)f.length;
      if (good && it->in_n == whole) good = is_sound(it, &f);
      if (!good) {
        it->deaf = true;
        tfd__mesh_damaged(m, process);
        return;
      }
      if (it->in_n == whole) {
        hear(m, process, &f);
        continue;
      }
    }
    if (!tfd__peer_read(it, TFD_CHANNEL_CONTROL, it->in, &it->in_n, whole))
      break;
  }
  if (it->socket[TFD_CHANNEL_CONTROL] < 0 && !it->left && !m->failed) {
    tell_end(m, process, it);
  }
}

bool tfd__mesh_has_left(const tfd__mesh *m, int process) {
  return m->peers[process].left;
}

void tfd__mesh_late(tfd__mesh *m, uint64_t number, char *text, size_t bytes) {
  size_t n = 0;
  int p;

  text[0] = '\0';
  for (p = 0; p < m->processes && n + 1 < bytes; p++) {
    tfd__frame beat = tfd__last_beat(m, p);
    char where[256];

    if (p == m->process || beat.seq >= number) continue;
    tfd__say_where(&beat, TFD_LAST_HEARD, where, sizeof where);
    (void)snprintf(text + n, bytes - n, "%sprocess %d %s", n == 0 ? "" : "; ",
                   p, where);
    n = strlen(text);
  }
}

int tfd__mesh_compare(tfd__mesh *m, const tfd__progress *mine) {
  tfd__collective place = {.line = mine->line, .file = mine->file};
  tfd__frame want = {.type = TFD_FRAME_DATA,
                     .seq = mine->number,
                     .what = mine->what,
                     .count = mine->count};
  int p;

  tfd__frame_set_place(&want, &place);
  for (p = 0; p < m->processes; p++) {
    tfd__frame got = tfd__last_beat(m, p);

    if (p == m->process) continue;
    if (got.seq != want.seq) continue;
    got.type = TFD_FRAME_DATA;
    got.tag = 0;
    if ((want.what & 0xf) != TFD_COLLECTIVE_ALL_REDUCE) got.count = want.count;
    TFD_TRY(tfd__frame_fits(&want, &got, m->process, p));
  }
  return TFD_OK;
}

/* Time in which this process did not run is nobody's silence: where all of a
** job are stopped together, it goes on together. */
static void forgive_pause(tfd__mesh *m, int64_t now) {
  int64_t most = m->patience / 2 < PAUSE_NS ? m->patience / 2 : PAUSE_NS;
  bool paused = now - m->looked > most;
  int p;

  m->looked = now;
  for (p = 0; paused && p < m->processes; p++) m->peers[p].heard = now;
}

/* Who waits in a collective that has not begun here? -1 = nobody. */
static int find_waiting(tfd__mesh *m, tfd__frame *beat_p) {
  uint64_t begun = tfd__group_progress(m->group).number;
  int p;

  for (p = 0; p < m->processes; p++) {
    *beat_p = tfd__last_beat(m, p);
    if (beat_p->tag != 0 && beat_p->seq > begun) return p;
  }
  return -1;
}

/* This process keeps others waiting: it says so where its own reader sees it,
** and where its script is, which only it knows. */
static void check_late(tfd__mesh *m, int64_t now) {
  tfd__frame beat = {0};
  char words[192];
  int p = find_waiting(m, &beat);

  if (p < 0) {
    m->late_from = 0;
    return;
  }
  if (m->late_from == 0) {
    m->late_from = now;
    m->late_said = now + (int64_t)(m->group->stall * 1e9);
  }
  if (now < m->late_said) return;
  m->late_said = now + (now - m->late_from);
  tfd__frame_text(&beat, words, sizeof words);
  tfd__log(TFD_LOG_WARNING,
           "process %d has kept process %d waiting for %.0f s, in collective "
           "%llu, %s",
           m->process, p, (double)(now - m->late_from) * 1e-9,
           (unsigned long long)beat.seq, words);
  tfd__be_late();
}

/* Those who are only silent; called when all that had come was read. */
static void check_silence(tfd__mesh *m, int64_t now) {
  char how[80];
  int p;

  forgive_pause(m, now);

  for (p = 0; p < m->processes; p++) {
    tfd__peer *it = &m->peers[p];

    if (it->socket[TFD_CHANNEL_CONTROL] < 0 || it->left) continue;
    if (now - it->heard < m->patience) continue;
    (void)snprintf(how, sizeof how, "has not been heard of for %.1f s",
                   (double)(now - it->heard) * 1e-9);
    it->silent = true;
    tfd__mesh_lost(m, p, how);
    return;
  }
}

/* --- the thread ----------------------------------------------------------- */

/* `mine`: nobody else moves data. */
static void watch(tfd__mesh *m, int process, bool mine, struct pollfd *polled) {
  const tfd__peer *it = &m->peers[process];
  bool talks = it->out_done < it->out_n;
  short data = mine ? tfd__data_wanted(m, it) : 0;

  polled[0] = (struct pollfd){
      .fd = data != 0 ? it->socket[TFD_CHANNEL_DATA] : -1, .events = data};
  polled[1] = (struct pollfd){
      .fd = it->deaf && !talks ? -1 : it->socket[TFD_CHANNEL_CONTROL],
      .events = (short)((it->deaf ? 0 : POLLIN) | (talks ? POLLOUT : 0))};
}

static void serve(tfd__mesh *m, const struct pollfd *polled) {
  bool mine = false;
  int p;

  for (p = 0; p < m->processes; p++) {
    if (polled[2 * p + 1].revents != 0) receive_control(m, p);
    send_control(&m->peers[p]);
  }
  mine = tfd__data_take(m);
  for (p = 0; p < m->processes && mine; p++) {
    tfd__data_serve(m, p, polled[2 * p].revents);
  }
  if (!m->failed) check_silence(m, tfd__now_ns());
  if (m->failed && mine && !m->dropped) tfd__data_drop(m);
  if (mine) tfd__data_leave(m);
}

/* Tell the others what failed here, once. */
static void spread_note(tfd__mesh *m, bool *spread_p) {
  tfd__frame head;
  bool tell = false;
  int p;

  tfd__lock(&m->lock);
  tell = m->note_code != TFD_OK && !*spread_p;
  tfd__unlock(&m->lock);
  if (!tell) return;
  *spread_p = true;
  head = (tfd__frame){.type = TFD_FRAME_ABORT,
                      .tag = (uint32_t)m->note_code,
                      .what = (uint64_t)m->note_from,
                      .count = (uint64_t)m->note_exit};
  for (p = 0; p < m->processes; p++) {
    say(&m->peers[p], &head, m->note);
    send_control(&m->peers[p]);
  }
}

static bool is_stopping(tfd__mesh *m) {
  bool stopping = false;

  tfd__lock(&m->lock);
  stopping = m->stopping;
  tfd__unlock(&m->lock);
  return stopping;
}

/* Has everything gone out and the other side hung up? What is not read before
** a socket is closed would have the system take back what was sent last. */
static bool is_parted(tfd__peer *it, bool *told) {
  char rest[256];
  ssize_t n = 0;
  int s = it->socket[TFD_CHANNEL_CONTROL];

  if (s < 0) return true;
  send_control(it);
  if (it->out_done == it->out_n && !*told) {
    *told = true;
    (void)shutdown(s, SHUT_WR);
  }
  do {
    n = recv(s, rest, sizeof rest, 0);
  } while (n > 0);
  return n == 0 || it->silent || !tfd__is_for_later(errno);
}

static void say_farewell(tfd__mesh *m) {
  tfd__deadline until = tfd__deadline_in(FAREWELL_SECONDS);
  bool told[TFD_MAX_LOCAL_RANKS] = {false};
  bool waiting = true;
  tfd__frame bye = {.type = TFD_FRAME_BYE,
                    .count = (uint64_t)tfd__leaving_status()};
  int p;

  for (p = 0; p < m->processes && !m->failed; p++) {
    say(&m->peers[p], &bye, NULL);
  }
  while (waiting && tfd__now_ns() < until) {
    waiting = false;
    for (p = 0; p < m->processes; p++) {
      waiting = !is_parted(&m->peers[p], &told[p]) || waiting;
    }
    if (waiting) (void)poll(NULL, 0, 1);
  }
}

/* A heartbeat to all, with how far this process is. */
static void say_beats(tfd__mesh *m) {
  tfd__frame f = tfd__my_beat(m);
  int p;

  for (p = 0; p < m->processes; p++) {
    tfd__peer *it = &m->peers[p];

    if (it->out_n == it->out_done && TFD_FAIL(NET_BEAT) == 0) say(it, &f, NULL);
  }
}

static void drain_wake(tfd__mesh *m, const struct pollfd *polled) {
  uint64_t count = 0;

  if (polled->revents != 0 && read(m->wake, &count, sizeof count) < 0) return;
}

static void run(void *arg) {
  tfd__mesh *m = arg;
  int n = 2 * m->processes;
  struct pollfd *polled = tfd__calloc((size_t)n + 1, sizeof *polled);
  int64_t beat = tfd__now_ns();
  bool spread = false;
  bool mine = false;
  int p;

  if (polled == NULL) {
    (void)tfd__no_memory((size_t)n * sizeof *polled, "group");
    tfd__mesh_fail(m);
    while (!tfd__data_take(m)) tfd__relax();
    tfd__data_drop(m);
    return;
  }
  while (!is_stopping(m)) {
    int64_t now = tfd__now_ns();

    if (now >= beat) {
      check_late(m, now);
      say_beats(m);
      beat = now + (m->patience / 4 < BEAT_NS ? m->patience / 4 : BEAT_NS);
    }
    mine = tfd__data_take(m);
    for (p = 0; p < m->processes; p++) watch(m, p, mine, &polled[2 * p]);
    if (mine) tfd__data_leave(m);
    polled[n] = (struct pollfd){.fd = m->wake, .events = POLLIN};
    tfd__poll(polled, n + 1, m->failed && !m->dropped ? 1 : 100);
    drain_wake(m, &polled[n]);
    serve(m, polled);
    spread_note(m, &spread);
  }
  spread_note(m, &spread);
  say_farewell(m);
  tfd__free(polled);
}

/* --- life ----------------------------------------------------------------- */

static void mesh_clear(tfd__mesh *m) {
  int p;
  int c;

  for (p = 0; p < m->processes; p++) {
    for (c = 0; c < TFD_CHANNELS; c++) {
      if (m->peers[p].socket[c] >= 0) (void)close(m->peers[p].socket[c]);
    }
    tfd__free(m->peers[p].address);
  }
  if (m->wake >= 0) (void)close(m->wake);
  tfd__cond_destroy(&m->moved);
  tfd__mutex_destroy(&m->lock);
  tfd__free(m->peers);
  tfd__free(m);
}

static int prepare(tfd__mesh *m, const char *const *addresses) {
  int64_t now = tfd__now_ns();
  int p;

  m->looked = now;
  for (p = 0; p < m->processes; p++) {
    tfd__peer *it = &m->peers[p];

    it->heard = now;
    it->address = tfd__strdup(addresses[p]);
    if (it->address == NULL) return tfd__no_memory(TFD_ADDRESS_BYTES, "group");
  }
  m->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (m->wake < 0) {
    return tfd__fail(TFD_UNAVAILABLE, "group: no event: %s", strerror(errno));
  }
  return tfd__thread_start(&m->thread, "tfdist-comm", run, m);
}

static tfd__mesh *mesh_alloc(int processes, const tfd__peer_sockets *sockets) {
  tfd__mesh *m = tfd__calloc(1, sizeof *m);
  int p;

  if (m != NULL) m->peers = tfd__calloc((size_t)processes, sizeof *m->peers);
  if (m == NULL || m->peers == NULL) {
    tfd__free(m);
    return NULL;
  }
  m->processes = processes;
  for (p = 0; p < processes; p++) {
    memcpy(m->peers[p].socket, sockets[p].socket, sizeof sockets[p].socket);
    m->peers[p].pid = sockets[p].pid;
  }
  return m;
}

static int mesh_new(tfd__group *g, const tfd__network *network,
                    tfd__peer_sockets *sockets, tfd__mesh **mesh_p) {
  double patience = network->beat_timeout > 0 ? network->beat_timeout : 10;
  tfd__mesh *m = mesh_alloc(network->processes, sockets);
  int rc;

  if (m == NULL) {
    tfd__hang_up(sockets, network->processes);
    return tfd__no_memory(sizeof *m, "group");
  }
  m->group = g;
  m->process = network->process;
  m->patience = (int64_t)(patience * 1e9);
  m->wake = -1;
  m->looks.crowded = g->size > tfd__cores();
  TFD_TRY_OR(rc = tfd__mutex_init(&m->lock, 3), clear);
  TFD_TRY_OR(rc = tfd__cond_init(&m->moved), clear);
  *mesh_p = m; /* before the thread, which may fail the group at once */
  TFD_TRY_OR(rc = prepare(m, network->addresses), clear);
  return TFD_OK;

clear:
  *mesh_p = NULL;
  mesh_clear(m);
  return rc;
}

int tfd__mesh_can(const tfd__group_config *c, const char *name) {
  const tfd__network *n = c->network;
  int i;

  if (n == NULL || c->size != n->processes * c->local ||
      c->base != n->process * c->local) {
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"%s\" needs the addresses of all "
                     "processes, each with as many ranks",
                     name);
  }
  if (n->processes > TFD_MAX_LOCAL_RANKS) {
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"%s\" serves up to %d processes, not "
                     "%d",
                     name, TFD_MAX_LOCAL_RANKS, n->processes);
  }
  for (i = 0; i < c->local; i++) {
    if (c->devices[i]->backend->host_visible) continue;
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"%s\" does not reach the memory of %s",
                     name, c->devices[i]->short_name);
  }
  return TFD_OK;
}

int tfd__mesh_meet(const tfd__network *network, int local,
                   tfd__peer_sockets **sockets_p) {
  tfd__peer_sockets *sockets =
      tfd__calloc((size_t)network->processes, sizeof *sockets);
  int rc;

  if (sockets == NULL) return tfd__no_memory(sizeof *sockets, "group");
  tfd__failpoints_rank(network->process);
  rc = tfd__meet(network, local, sockets);
  if (rc == TFD_OK) {
    *sockets_p = sockets;
  } else {
    tfd__free(sockets);
  }
  return rc;
}

void tfd__mesh_part(const tfd__network *network, tfd__peer_sockets *sockets) {
  tfd__hang_up(sockets, network->processes);
  tfd__free(sockets);
  tfd__door_leave();
}

int tfd__mesh_new(tfd__group *g, const tfd__network *network,
                  tfd__peer_sockets *sockets, tfd__mesh **mesh_p) {
  int rc = mesh_new(g, network, sockets, mesh_p);

  if (rc != TFD_OK) tfd__door_leave();
  tfd__free(sockets);
  return rc;
}

int tfd__mesh_open(tfd__group *g, const tfd__group_config *config,
                   tfd__mesh **mesh_p) {
  tfd__network network = *config->network;
  tfd__peer_sockets *sockets = NULL;

  network.transport = TFD_FAIL(NET_TRANSPORT) == 0 ? g->provider->name : NULL;
  TFD_TRY(tfd__mesh_meet(&network, config->local, &sockets));
  return tfd__mesh_new(g, config->network, sockets, mesh_p);
}

tfd__group *tfd__mesh_group(const tfd__mesh *m) {
  return m->group;
}

int tfd__circle_open(tfd__group *g, const tfd__group_config *config,
                     tfd__circle *circle) {
  const tfd__network *n = config->network;
  int p;

  if (n->within != NULL) {
    *circle = *n->within;
    return TFD_OK;
  }
  circle->owned = true;
  circle->process = n->process;
  circle->processes = n->processes;
  for (p = 0; p < n->processes; p++) circle->numbers[p] = p;
  return tfd__mesh_open(g, config, &circle->mesh);
}

void tfd__circle_close(tfd__circle *circle) {
  if (circle->owned) tfd__mesh_free(circle->mesh);
}

void tfd__mesh_free(tfd__mesh *m) {
  tfd__lock(&m->lock);
  m->stopping = true;
  tfd__unlock(&m->lock);
  tfd__mesh_wake(m);
  tfd__thread_join(m->thread);
  mesh_clear(m);
  tfd__door_leave();
}
