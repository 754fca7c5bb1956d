/* Frames of collectives: posts are served in order for each peer and direction.
** A frame's header is read when a post waits for that peer, and must be the
** very one that the post expects: another collective there means that the
** processes run apart. Who waits for data moves it itself: that saves the
** thread's wake-up and its own. The thread moves what nobody waits for at the
** moment. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/failpoint.h"
#include "comm/tcp/peers.h"

#define DATA_GRACE_NS 500000000

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
}

void tfd__mesh_send(tfd__mesh *m, tfd__post *p) {
  p->frame.type = TFD_FRAME_DATA;
  p->written = false;
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

/* The group has failed: nobody gets anything any more. */
void tfd__data_drop(tfd__mesh *m) {
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

/* Who moves data lets go at once, now that the group has failed. */
void tfd__mesh_settle(tfd__mesh *m) {
  bool dropped = false;

  while (!dropped) {
    if (tfd__data_take(m)) {
      tfd__data_drop(m);
      tfd__data_leave(m);
    }
    tfd__lock(&m->lock);
    if (!m->dropped) {
      (void)tfd__cond_wait(&m->moved, &m->lock, tfd__deadline_in(0.02));
    }
    dropped = m->dropped;
    tfd__unlock(&m->lock);
  }
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

/* Whether that is a failure the control connection tells: the peer's farewell,
** or its end, may be on the way. */
static void data_ended(tfd__peer *it, int error) {
  (void)close(it->socket[TFD_CHANNEL_DATA]);
  it->socket[TFD_CHANNEL_DATA] = -1;
  it->data_end = tfd__now_ns();
  it->data_error = error;
}

/* Nothing was heard on the other connection that would explain it. */
static void check_data(tfd__mesh *m, int process) {
  const tfd__peer *it = &m->peers[process];
  char how[160];

  if (it->data_end == 0 || it->left || it->socket[TFD_CHANNEL_CONTROL] < 0 ||
      tfd__now_ns() - it->data_end < DATA_GRACE_NS) {
    return;
  }
  (void)snprintf(how, sizeof how, "cannot be reached: its connection broke: %s",
                 it->data_error == 0 ? "closed by the other side"
                                     : strerror(it->data_error));
  tfd__mesh_lost(m, process, how);
}

/* Bytes are summed up just before they are sent, which finds them in the
** caches. */
static void write_header(tfd__post *p) {
  if (p->written) return;
  p->frame.sum = tfd__crc32c(0, p->data, (size_t)p->frame.length);
  tfd__frame_write(&p->frame, p->header);
  p->written = true;
}

/* A fault that was ordered for a frame about to be sent. */
static bool is_spoilt(tfd__peer *it, tfd__post *p) {
  int fault = p->moved == 0 ? TFD_FAIL(NET_SEND) : 0;

  if (fault == TFD_FLIP) p->header[TFD_FRAME_BYTES - 1] ^= 1;
  if (fault > 0) data_ended(it, fault);
  return fault > 0;
}

static void send_data(tfd__mesh *m, tfd__peer *it) {
  for (;;) {
    tfd__post *p = first(m, &it->sends);
    size_t skip = 0;
    struct iovec parts[2];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = 0;

    if (p == NULL) return;
    write_header(p);
    if (is_spoilt(it, p)) return;
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
      if (!tfd__is_for_later(errno)) data_ended(it, errno);
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
  tfd__mesh_fail(m);
  return false;
}

/* Bytes into p[*n_p..size); false when there are no more for now. */
bool tfd__peer_read(tfd__peer *it, tfd__channel c, void *p, size_t *n_p,
                    size_t size) {
  while (*n_p < size) {
    ssize_t n = recv(it->socket[c], (char *)p + *n_p, size - *n_p, 0);

    if (n > 0) {
      *n_p += (size_t)n;
      continue;
    }
    if (n < 0 && tfd__is_for_later(errno)) return false;
    if (c == TFD_CHANNEL_DATA) {
      data_ended(it, n == 0 ? 0 : errno);
    } else {
      it->control_error = n == 0 ? 0 : errno;
      (void)close(it->socket[c]);
      it->socket[c] = -1;
    }
    return false;
  }
  return true;
}

static void receive_data(tfd__mesh *m, int process) {
  tfd__peer *it = &m->peers[process];

  for (;;) {
    tfd__post *p = first(m, &it->receives);
    int fault = 0;

    if (p == NULL || it->socket[TFD_CHANNEL_DATA] < 0) return;
    if (it->header_n < TFD_FRAME_BYTES) {
      if (!tfd__peer_read(it, TFD_CHANNEL_DATA, it->header, &it->header_n,
                          TFD_FRAME_BYTES)) {
        return;
      }
      if (!tfd__frame_read(it->header, &it->frame)) {
        tfd__mesh_damaged(m, process);
        return;
      }
    }
    if (p->moved == 0 && !fits(m, process, p)) return;
    if (!tfd__peer_read(it, TFD_CHANNEL_DATA, p->data, &p->moved,
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
      tfd__mesh_damaged(m, process);
      return;
    }
    it->header_n = 0;
    finish(m, &it->receives);
  }
}

/* Somebody waits for a process that has ended in order. */
static void check_left(tfd__mesh *m, int process) {
  tfd__peer *it = &m->peers[process];
  tfd__post *p = first(m, &it->receives);

  if (p == NULL || !it->left || it->socket[TFD_CHANNEL_DATA] >= 0) return;
  (void)tfd__mesh_fail_left(m, process, p->frame.seq);
  tfd__mesh_fail(m);
}

void tfd__data_serve(tfd__mesh *m, int process, short events) {
  tfd__peer *it = &m->peers[process];

  if (it->socket[TFD_CHANNEL_DATA] >= 0 && !m->failed) {
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive_data(m, process);
    if ((events & POLLOUT) != 0 && it->socket[TFD_CHANNEL_DATA] >= 0 &&
        !m->failed) {
      send_data(m, it);
    }
  }
  if (!m->failed) check_left(m, process);
  if (!m->failed) check_data(m, process);
}

/* --- driving -------------------------------------------------------------- */

bool tfd__data_take(tfd__mesh *m) {
  return !atomic_exchange(&m->driven, true);
}

void tfd__data_leave(tfd__mesh *m) {
  atomic_store(&m->driven, false);
}

static bool are_done(tfd__mesh *m, tfd__post *const *posts, int n) {
  bool done = false;

  tfd__lock(&m->lock);
  done = all_done(posts, n);
  tfd__unlock(&m->lock);
  return done;
}

/* What a peer's data connection is to be polled for. */
short tfd__data_wanted(tfd__mesh *m, const tfd__peer *it) {
  short events = 0;

  tfd__lock(&m->lock);
  if (it->receives != NULL) events |= POLLIN;
  if (it->sends != NULL) events |= POLLOUT;
  tfd__unlock(&m->lock);
  return events;
}

/* All that can be moved at once. */
static void move_data(tfd__mesh *m) {
  int p;

  for (p = 0; p < m->processes && !m->failed; p++) {
    tfd__peer *it = &m->peers[p];

    if (it->socket[TFD_CHANNEL_DATA] >= 0) send_data(m, it);
    if (it->socket[TFD_CHANNEL_DATA] >= 0) receive_data(m, p);
  }
}

/* Does somebody who is waited for have no connection any more? What that means
** is the thread's to find. */
static bool is_cut(const tfd__mesh *m, tfd__post *const *posts, int n) {
  int i;

  for (i = 0; i < n; i++) {
    if (!posts[i]->done &&
        m->peers[posts[i]->process].socket[TFD_CHANNEL_DATA] < 0) {
      return true;
    }
  }
  return false;
}

static uint64_t moved_by_now(tfd__post *const *posts, int n) {
  uint64_t moved = 0;
  int i;

  for (i = 0; i < n; i++) moved += posts[i]->moved;
  return moved;
}

/* Until something can be moved or `until` has passed. */
static void sleep_on_data(tfd__mesh *m, tfd__deadline until) {
  struct pollfd polled[TFD_MAX_LOCAL_RANKS];
  int64_t left = until - tfd__now_ns();
  int ms = left > 100000000 ? 100 : (int)((left + 999999) / 1000000);
  nfds_t n = 0;
  int p;

  for (p = 0; p < m->processes; p++) {
    short events = tfd__data_wanted(m, &m->peers[p]);

    if (events == 0) continue;
    polled[n++] = (struct pollfd){.fd = m->peers[p].socket[TFD_CHANNEL_DATA],
                                  .events = events};
  }
  if (ms > 0) (void)poll(polled, n, ms);
}

/* Looks go on while there is something to move. Where cores are few, what the
** system wakes comes sooner than who gives its core away. */
static bool drive(tfd__mesh *m, tfd__post *const *posts, int n,
                  tfd__deadline until) {
  bool looking = !m->looks.crowded && tfd__looks_may(&m->looks);
  int64_t now = tfd__now_ns();
  int64_t stop = now + TFD_LOOK_NS;
  bool done = false;

  for (;;) {
    uint64_t before = moved_by_now(posts, n);

    move_data(m);
    done = are_done(m, posts, n);
    now = tfd__now_ns();
    if (done || m->failed || now >= until || is_cut(m, posts, n)) break;
    if (moved_by_now(posts, n) != before) {
      stop = now + TFD_LOOK_NS;
    } else if (looking && now >= stop) {
      looking = false;
      tfd__looks_tell(&m->looks, false);
    } else if (!looking) {
      sleep_on_data(m, until);
    }
  }
  if (looking && done) tfd__looks_tell(&m->looks, true);
  return done;
}

bool tfd__mesh_wait(tfd__mesh *m, tfd__post *const *posts, int n,
                    tfd__deadline until) {
  bool in_time = true;
  bool done = false;

  if (are_done(m, posts, n)) return true;
  if (tfd__data_take(m)) {
    done = drive(m, posts, n, until);
    tfd__data_leave(m);
    if (done) return true;
  }
  tfd__mesh_wake(m);
  tfd__lock(&m->lock);
  for (;;) {
    done = all_done(posts, n);
    if (done || m->failed || !in_time) break;
    in_time = tfd__cond_wait(&m->moved, &m->lock, until);
  }
  tfd__unlock(&m->lock);
  return done;
}
