/* The thread that moves frames between this process and all others.
**
** Data: posts are served in order for each peer and direction. A frame's header
** is read when a post waits for that peer, and must be the very one that the
** post expects: another collective there means that the processes run apart.
** Control: a heartbeat each second, or more often; silence, a connection that
*ends without a
** farewell, and aborts fail the group. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/failpoint.h"
#include "comm/tcp/tcp.h"

#define BEAT_NS 1000000000 /* or a fourth of the patience */
#define FAREWELL_SECONDS 2.0
#define DATA_GRACE_NS 500000000
/* The thread looks ten times a second: after longer than this the process was
** stopped, or had no core. */
#define PAUSE_NS 1000000000
enum { CONTROL_BYTES = TFD_FRAME_BYTES + TFD_NOTE_BYTES };

typedef struct peer {
  int socket[TFD_CHANNELS]; /* -1 = this process, or over */
  tfd__post *sends;         /* under the lock, as receives */
  tfd__post *receives;
  /* The thread's alone. */
  uint8_t header[TFD_FRAME_BYTES];
  size_t header_n;
  tfd__frame frame;
  int64_t heard;
  atomic_bool left; /* has said farewell */
  bool deaf;        /* its control frames make no sense: none is read */
  bool silent;      /* it is not waited for at the end */
  int64_t data_end; /* when the data connection ended; 0 = it has not */
  int data_error;   /* the system's errno; 0 = the other side closed it */
  uint8_t in[CONTROL_BYTES];
  size_t in_n;
  uint8_t out[CONTROL_BYTES];
  size_t out_n;
  size_t out_done;
} peer;

struct tfd__mesh {
  tfd__group *group; /* borrowed: it owns this */
  int process;
  int processes;
  int64_t patience; /* ns of silence */
  int64_t looked;   /* when the thread looked last; its own */
  tfd__mutex lock;  /* rank 3, below the group's */
  tfd__cond moved;
  int wake;
  bool stopping;
  bool dropped;       /* the thread touches no post any more */
  atomic_bool failed; /* set under the lock */
  /* Why the group failed, for the others. Who heard of it passes it on: it may
  ** be gone before the process where it began has told everybody. */
  int note_code; /* TFD_OK = not yet */
  int note_from; /* where it began */
  tfd__exit note_exit;
  char note[TFD_NOTE_BYTES + 1];
  tfd__thread thread;
  peer *peers;
};

static void wake(tfd__mesh *m) {
  uint64_t one = 1;

  if (write(m->wake, &one, sizeof one) < 0) return; /* full = awake already */
}

/* --- failures ------------------------------------------------------------- */

/* This thread's error is why. The lock is not held. */
static void fail(tfd__mesh *m) {
  (void)tfd__group_fail(m->group); /* comes back through tfd__mesh_abort */
}

/* Connections stay: the process may be there still, and should hear why. */
static void lost(tfd__mesh *m, int p, const char *how) {
  (void)tfd__fail(TFD_UNAVAILABLE, "process %d of %d %s", p, m->processes, how);
  fail(m);
}

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
  wake(m);
}

/* --- posts ---------------------------------------------------------------- */

static void append(tfd__post **list, tfd__post *p) {
  while (*list != NULL) list = &(*list)->next;
  p->next = NULL;
  *list = p;
}

static void post(tfd__mesh *m, tfd__post **list, tfd__post *p) {
  p->moved = 0;
  p->done = false;
  tfd__lock(&m->lock);
  if (!m->failed) append(list, p);
  tfd__unlock(&m->lock);
  wake(m);
}

void tfd__mesh_send(tfd__mesh *m, tfd__post *p) {
  p->frame.type = TFD_FRAME_DATA;
  p->frame.sum = tfd__crc32c(0, p->data, (size_t)p->frame.length);
  tfd__frame_write(&p->frame, p->header);
  post(m, &m->peers[p->process].sends, p);
}

void tfd__mesh_receive(tfd__mesh *m, tfd__post *p) {
  post(m, &m->peers[p->process].receives, p);
}

static bool all_done(tfd__post *const *posts, int n) {
  int i;

  for (i = 0; i < n; i++) {
    if (!posts[i]->done) return false;
  }
  return true;
}

bool tfd__mesh_wait(tfd__mesh *m, tfd__post *const *posts, int n,
                    tfd__deadline until) {
  bool in_time = true;
  bool done = false;

  tfd__lock(&m->lock);
  for (;;) {
    done = all_done(posts, n);
    if (done || m->failed || !in_time) break;
    in_time = tfd__cond_wait(&m->moved, &m->lock, until);
  }
  tfd__unlock(&m->lock);
  return done;
}

void tfd__mesh_settle(tfd__mesh *m) {
  tfd__lock(&m->lock);
  while (!m->dropped) (void)tfd__cond_wait(&m->moved, &m->lock, TFD_FOREVER);
  tfd__unlock(&m->lock);
}

/* The group has failed: nobody gets anything any more. */
static void drop_posts(tfd__mesh *m) {
  int p;

  tfd__lock(&m->lock);
  for (p = 0; p < m->processes; p++) {
    m->peers[p].sends = NULL;
    m->peers[p].receives = NULL;
  }
  m->dropped = true;
  tfd__cond_broadcast(&m->moved);
  tfd__unlock(&m->lock);
}

static void finish(tfd__mesh *m, tfd__post **list) {
  tfd__post *p = *list;

  tfd__lock(&m->lock);
  *list = p->next;
  p->done = true;
  tfd__cond_broadcast(&m->moved);
  tfd__unlock(&m->lock);
}

static tfd__post *first(tfd__mesh *m, tfd__post *const *list) {
  tfd__post *p = NULL;

  tfd__lock(&m->lock);
  p = *list;
  tfd__unlock(&m->lock);
  return p;
}

/* --- data ----------------------------------------------------------------- */

static bool is_for_later(int error) {
  return error == EAGAIN || error == EINTR;
}

/* Whether that is a failure the control connection tells: the peer's farewell,
** or its end, may be on the way. */
static void data_ended(peer *it, int error) {
  (void)close(it->socket[TFD_CHANNEL_DATA]);
  it->socket[TFD_CHANNEL_DATA] = -1;
  it->data_end = tfd__now_ns();
  it->data_error = error;
}

/* Nothing was heard on the other connection that would explain it. */
static void check_data(tfd__mesh *m, int process) {
  const peer *it = &m->peers[process];
  char how[160];

  if (it->data_end == 0 || it->left || it->socket[TFD_CHANNEL_CONTROL] < 0 ||
      tfd__now_ns() - it->data_end < DATA_GRACE_NS) {
    return;
  }
  (void)snprintf(how, sizeof how, "cannot be reached: its connection broke: %s",
                 it->data_error == 0 ? "closed by the other side"
                                     : strerror(it->data_error));
  lost(m, process, how);
}

/* A fault that was ordered for a frame about to be sent. */
static bool is_spoilt(peer *it, tfd__post *p) {
  int fault = p->moved == 0 ? TFD_FAIL(NET_SEND) : 0;

  if (fault == TFD_FLIP) p->header[TFD_FRAME_BYTES - 1] ^= 1;
  if (fault > 0) data_ended(it, fault);
  return fault > 0;
}

static void send_data(tfd__mesh *m, peer *it) {
  for (;;) {
    tfd__post *p = first(m, &it->sends);
    size_t skip = 0;
    struct iovec parts[2];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = 0;

    if (p == NULL || is_spoilt(it, p)) return;
    parts[0] = (struct iovec){p->header, TFD_FRAME_BYTES};
    parts[1] = (struct iovec){p->data, (size_t)p->frame.length};
    skip = p->moved < TFD_FRAME_BYTES ? p->moved : TFD_FRAME_BYTES;
    parts[0].iov_base = p->header + skip;
    parts[0].iov_len -= skip;
    skip = p->moved - skip;
    parts[1].iov_base = (char *)p->data + skip;
    parts[1].iov_len -= skip;
    n = sendmsg(it->socket[TFD_CHANNEL_DATA], &message, MSG_NOSIGNAL);
    if (n < 0) {
      if (!is_for_later(errno)) data_ended(it, errno);
      return;
    }
    p->moved += (size_t)n;
    if (p->moved < TFD_FRAME_BYTES + p->frame.length) return;
    finish(m, &it->sends);
  }
}

/* Is the frame what the post waits for? */
static bool fits(tfd__mesh *m, int process, const tfd__post *p) {
  if (tfd__frame_fits(&p->frame, &m->peers[process].frame, m->process,
                      process) == TFD_OK) {
    return true;
  }
  fail(m);
  return false;
}

/* Bytes into p[*n_p..size); false when there are no more for now. */
static bool take(peer *it, tfd__channel c, void *p, size_t *n_p, size_t size) {
  while (*n_p < size) {
    ssize_t n = recv(it->socket[c], (char *)p + *n_p, size - *n_p, 0);

    if (n > 0) {
      *n_p += (size_t)n;
      continue;
    }
    if (n < 0 && is_for_later(errno)) return false;
    if (c == TFD_CHANNEL_DATA) {
      data_ended(it, n == 0 ? 0 : errno);
    } else {
      (void)close(it->socket[c]);
      it->socket[c] = -1;
    }
    return false;
  }
  return true;
}

static void damaged(tfd__mesh *m, int process) {
  lost(m, process, "sent bytes that are damaged or no frame");
}

static void receive_data(tfd__mesh *m, int process) {
  peer *it = &m->peers[process];

  for (;;) {
    tfd__post *p = first(m, &it->receives);
    int fault = 0;

    if (p == NULL || it->socket[TFD_CHANNEL_DATA] < 0) return;
    if (it->header_n < TFD_FRAME_BYTES) {
      if (!take(it, TFD_CHANNEL_DATA, it->header, &it->header_n,
                TFD_FRAME_BYTES)) {
        return;
      }
      if (!tfd__frame_read(it->header, &it->frame)) {
        damaged(m, process);
        return;
      }
    }
    if (p->moved == 0 && !fits(m, process, p)) return;
    if (!take(it, TFD_CHANNEL_DATA, p->data, &p->moved,
              (size_t)p->frame.length)) {
      return;
    }
    fault = TFD_FAIL(NET_RECEIVE);
    if (fault == TFD_FLIP) it->frame.sum ^= 1;
    if (fault > 0) {
      data_ended(it, fault);
      return;
    }
    if (tfd__crc32c(0, p->data, p->moved) != it->frame.sum) {
      damaged(m, process);
      return;
    }
    it->header_n = 0;
    finish(m, &it->receives);
  }
}

/* --- control -------------------------------------------------------------- */

/* Put a frame behind what waits to be sent; beats give way when there is no
** room. */
static void say(peer *it, const tfd__frame *head, const char *text) {
  size_t n = text == NULL ? 0 : strlen(text);
  tfd__frame f = *head;

  f.length = n;
  f.sum = text == NULL ? 0 : tfd__crc32c(0, text, n);
  if (it->out_done > 0) {
    memmove(it->out, it->out + it->out_done, it->out_n - it->out_done);
    it->out_n -= it->out_done;
    it->out_done = 0;
  }
  if (it->out_n + TFD_FRAME_BYTES + n > CONTROL_BYTES) return;
  tfd__frame_write(&f, it->out + it->out_n);
  if (n > 0) memcpy(it->out + it->out_n + TFD_FRAME_BYTES, text, n);
  it->out_n += TFD_FRAME_BYTES + n;
}

static void send_control(peer *it) {
  ssize_t n = 0;

  if (it->socket[TFD_CHANNEL_CONTROL] < 0 || it->out_done == it->out_n) return;
  n = send(it->socket[TFD_CHANNEL_CONTROL], it->out + it->out_done,
           it->out_n - it->out_done, MSG_NOSIGNAL);
  if (n > 0) it->out_done += (size_t)n;
}

static void hear_abort(tfd__mesh *m, int process, const tfd__frame *f) {
  int code = f->tag > 0 && f->tag < TFD_STATUS_END ? (int)f->tag : TFD_ABORTED;
  size_t n = (size_t)f->length;

  tfd__lock(&m->lock);
  if (m->note_code == TFD_OK) {
    m->note_code = code;
    m->note_exit = f->count == TFD_EXIT_DESYNC ? TFD_EXIT_DESYNC : TFD_EXIT_ANY;
    m->note_from = f->what < (uint64_t)m->processes ? (int)f->what : process;
    memcpy(m->note, m->peers[process].in + TFD_FRAME_BYTES, n);
    m->note[n] = '\0';
  }
  tfd__unlock(&m->lock);
  (void)tfd__fail((tfd_status)code, "stopped because of process %d: %s",
                  m->note_from, m->note);
  (void)tfd__exit_with(m->note_exit);
  fail(m);
}

/* One whole frame lies in `in`. */
static void hear(tfd__mesh *m, int process, const tfd__frame *f) {
  peer *it = &m->peers[process];

  it->heard = tfd__now_ns();
  if (f->type == TFD_FRAME_BYE) it->left = true;
  if (f->type == TFD_FRAME_ABORT) hear_abort(m, process, f);
  it->in_n = 0;
}

static void receive_control(tfd__mesh *m, int process) {
  peer *it = &m->peers[process];
  tfd__frame f;

  while (it->socket[TFD_CHANNEL_CONTROL] >= 0 && !it->deaf) {
    size_t whole = TFD_FRAME_BYTES;

    if (it->in_n >= TFD_FRAME_BYTES) {
      if (!tfd__frame_read(it->in, &f) || f.length > TFD_NOTE_BYTES ||
          f.type == TFD_FRAME_DATA) {
        it->deaf = true;
        damaged(m, process);
        return;
      }
      whole += (size_t)f.length;
      if (it->in_n == whole) {
        hear(m, process, &f);
        continue;
      }
    }
    if (!take(it, TFD_CHANNEL_CONTROL, it->in, &it->in_n, whole)) break;
  }
  if (it->socket[TFD_CHANNEL_CONTROL] < 0 && !it->left && !m->failed) {
    lost(m, process, "is gone: its connection ended without a farewell");
  }
}

bool tfd__mesh_has_left(const tfd__mesh *m, int process) {
  return m->peers[process].left;
}

int tfd__fail_left(int here, int process, uint64_t collective) {
  (void)tfd__fail(TFD_RUNTIME_ERROR,
                  "process %d has ended while process %d waits for it in "
                  "collective %llu",
                  process, here, (unsigned long long)collective);
  return tfd__exit_with(TFD_EXIT_DESYNC);
}

/* Somebody waits for a process that has ended in order. */
static void check_left(tfd__mesh *m, int process) {
  peer *it = &m->peers[process];
  tfd__post *p = first(m, &it->receives);

  if (p == NULL || !it->left || it->socket[TFD_CHANNEL_DATA] >= 0) return;
  (void)tfd__fail_left(m->process, process, p->frame.seq);
  fail(m);
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

/* Those who are only silent; called when all that had come was read. */
static void check_silence(tfd__mesh *m, int64_t now) {
  char how[80];
  int p;

  forgive_pause(m, now);

  for (p = 0; p < m->processes; p++) {
    peer *it = &m->peers[p];

    if (it->socket[TFD_CHANNEL_CONTROL] < 0 || it->left) continue;
    if (now - it->heard < m->patience) continue;
    (void)snprintf(how, sizeof how, "has not been heard of for %.1f s",
                   (double)(now - it->heard) * 1e-9);
    it->silent = true;
    lost(m, p, how);
    return;
  }
}

/* --- the thread ----------------------------------------------------------- */

static void watch(tfd__mesh *m, int process, struct pollfd *polled) {
  const peer *it = &m->peers[process];
  bool talks = it->out_done < it->out_n;
  short data = 0;

  tfd__lock(&m->lock);
  if (it->receives != NULL) data |= POLLIN;
  if (it->sends != NULL) data |= POLLOUT;
  tfd__unlock(&m->lock);
  polled[0] = (struct pollfd){
      .fd = data != 0 ? it->socket[TFD_CHANNEL_DATA] : -1, .events = data};
  polled[1] = (struct pollfd){
      .fd = it->deaf && !talks ? -1 : it->socket[TFD_CHANNEL_CONTROL],
      .events = (short)((it->deaf ? 0 : POLLIN) | (talks ? POLLOUT : 0))};
}

static void serve(tfd__mesh *m, int process, const struct pollfd *polled) {
  peer *it = &m->peers[process];

  if (polled[1].revents != 0) receive_control(m, process);
  if (it->socket[TFD_CHANNEL_DATA] >= 0 && !m->failed) {
    if ((polled[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      receive_data(m, process);
    }
    if ((polled[0].revents & POLLOUT) != 0 &&
        it->socket[TFD_CHANNEL_DATA] >= 0 && !m->failed) {
      send_data(m, it);
    }
  }
  send_control(it);
  if (!m->failed) check_left(m, process);
  if (!m->failed) check_data(m, process);
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
static bool is_parted(peer *it, bool *told) {
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
  return n == 0 || it->silent || !is_for_later(errno);
}

static void say_farewell(tfd__mesh *m) {
  tfd__deadline until = tfd__deadline_in(FAREWELL_SECONDS);
  bool told[TFD_MAX_LOCAL_RANKS] = {false};
  bool waiting = true;
  int p;

  for (p = 0; p < m->processes && !m->failed; p++) {
    say(&m->peers[p], &(tfd__frame){.type = TFD_FRAME_BYE}, NULL);
  }
  while (waiting && tfd__now_ns() < until) {
    waiting = false;
    for (p = 0; p < m->processes; p++) {
      waiting = !is_parted(&m->peers[p], &told[p]) || waiting;
    }
    if (waiting) (void)poll(NULL, 0, 1);
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
  int p;

  if (polled == NULL) {
    (void)tfd__no_memory((size_t)n * sizeof *polled, "group");
    fail(m);
    drop_posts(m);
    return;
  }
  while (!is_stopping(m)) {
    int64_t now = tfd__now_ns();

    if (now >= beat) {
      for (p = 0; p < m->processes; p++) {
        if (m->peers[p].out_n == m->peers[p].out_done &&
            TFD_FAIL(NET_BEAT) == 0) {
          say(&m->peers[p], &(tfd__frame){.type = TFD_FRAME_BEAT}, NULL);
        }
      }
      beat = now + (m->patience / 4 < BEAT_NS ? m->patience / 4 : BEAT_NS);
    }
    for (p = 0; p < m->processes; p++) watch(m, p, &polled[2 * p]);
    polled[n] = (struct pollfd){.fd = m->wake, .events = POLLIN};
    (void)poll(polled, (nfds_t)n + 1, 100);
    drain_wake(m, &polled[n]);
    for (p = 0; p < m->processes; p++) serve(m, p, &polled[2 * p]);
    if (!m->failed) check_silence(m, tfd__now_ns());
    if (m->failed && !m->dropped) drop_posts(m);
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
  }
  if (m->wake >= 0) (void)close(m->wake);
  tfd__cond_destroy(&m->moved);
  tfd__mutex_destroy(&m->lock);
  tfd__free(m->peers);
  tfd__free(m);
}

static int prepare(tfd__mesh *m, const tfd__peer_sockets *sockets) {
  int64_t now = tfd__now_ns();
  int p;

  m->looked = now;
  for (p = 0; p < m->processes; p++) {
    memcpy(m->peers[p].socket, sockets[p].socket, sizeof sockets[p].socket);
    m->peers[p].heard = now;
  }
  m->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (m->wake < 0) {
    return tfd__fail(TFD_UNAVAILABLE, "group: no event: %s", strerror(errno));
  }
  return tfd__thread_start(&m->thread, "tfdist-comm", run, m);
}

/* Takes the sockets, also when it fails. */
static int mesh_new(tfd__group *g, const tfd__network *network,
                    const tfd__peer_sockets *sockets, tfd__mesh **mesh_p) {
  double patience = network->beat_timeout > 0 ? network->beat_timeout : 10;
  tfd__mesh *m = tfd__calloc(1, sizeof *m);
  int rc;

  if (m == NULL) return tfd__no_memory(sizeof *m, "group");
  m->peers = tfd__calloc((size_t)network->processes, sizeof *m->peers);
  if (m->peers == NULL) {
    tfd__free(m);
    return tfd__no_memory(sizeof *m->peers, "group");
  }
  m->group = g;
  m->process = network->process;
  m->processes = network->processes;
  m->patience = (int64_t)(patience * 1e9);
  m->wake = -1;
  TFD_TRY_OR(rc = tfd__mutex_init(&m->lock, 3), clear);
  TFD_TRY_OR(rc = tfd__cond_init(&m->moved), clear);
  *mesh_p = m; /* before the thread, which may fail the group at once */
  TFD_TRY_OR(rc = prepare(m, sockets), clear);
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

int tfd__mesh_open(tfd__group *g, const tfd__group_config *config,
                   tfd__mesh **mesh_p) {
  const tfd__network *n = config->network;
  tfd__peer_sockets *sockets =
      tfd__calloc((size_t)n->processes, sizeof *sockets);
  int rc;

  if (sockets == NULL) return tfd__no_memory(sizeof *sockets, "group");
  tfd__failpoints_rank(n->process);
  rc = tfd__meet(n, config->local, sockets);
  if (rc == TFD_OK) rc = mesh_new(g, n, sockets, mesh_p);
  tfd__free(sockets);
  return rc;
}

void tfd__mesh_free(tfd__mesh *m) {
  tfd__lock(&m->lock);
  m->stopping = true;
  tfd__unlock(&m->lock);
  wake(m);
  tfd__thread_join(m->thread);
  mesh_clear(m);
}
