/* What assignments replaced. A queued assignment puts a buffer behind a
** variable whose values are still to be computed. The replaced buffer stays
** until they are, and comes back if the computation fails: variables then stand
** at their last complete update.
**
** Cost: one small block for each replacement whose value is pending, and the
** replaced buffers' memory until the queue has come that far. How far the host
** may run ahead of a variable is limited by that memory. */
#include "tensor/tensor.h"

typedef struct tfd__replaced {
  tfd__buffer *buffer; /* owned */
  struct tfd__replaced *newer;
} replaced;

/* Pending replacements of one variable: few when they are large. */
#define AHEAD_SMALL 32
#define AHEAD_LARGE 2
#define LARGE_BYTES ((size_t)1 << 20)

/* Pending variables that a wait looks at. */
#define LOOK_AT 8

/* Variables with a history. Under the mutex buffers are asked for their state
** and released. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tfd_variable *first;
static tfd_variable *last;

/* --- all below: the mutex is held ----------------------------------------- */

static void link_variable(tfd_variable *v) {
  v->unsettled_next = NULL;
  v->unsettled_prev = last;
  *(last != NULL ? &last->unsettled_next : &first) = v;
  last = v;
}

static void unlink_variable(tfd_variable *v) {
  tfd_variable *prev = v->unsettled_prev;
  tfd_variable *next = v->unsettled_next;

  *(prev != NULL ? &prev->unsettled_next : &first) = next;
  *(next != NULL ? &next->unsettled_prev : &last) = prev;
}

static void drop_oldest(tfd_variable *v) {
  replaced *r = v->replaced;

  v->replaced = r->newer;
  v->replaced_n--;
  tfd__release(r->buffer);
  tfd__free(r);
}

static void forget(tfd_variable *v) {
  if (v->replaced == NULL) return;
  while (v->replaced != NULL) drop_oldest(v);
  unlink_variable(v);
  tfd__unsettled_add(-1);
}

/* What is older than good values will not be needed. */
static void prune(tfd_variable *v) {
  while (v->replaced_n > 1 &&
         tfd__buffer_state_of(v->replaced->newer->buffer) == TFD_BUFFER_GOOD) {
    drop_oldest(v);
  }
}

/* The newest values that were computed take the place of lost ones. */
static void restore(tfd_variable *v) {
  tfd__buffer *good = NULL;
  replaced *r;

  for (r = v->replaced; r != NULL; r = r->newer) {
    if (tfd__buffer_state_of(r->buffer) == TFD_BUFFER_GOOD) good = r->buffer;
  }
  if (good == NULL) return; /* it never had values: reading raises the error */
  tfd__retain(good);
  tfd__release(v->value->buffer);
  v->value->buffer = good;
  v->value->view.data = good->data;
  v->version++;
}

/* `v` keeps the reference to the buffer that it shows until now. */
static void keep(tfd_variable *v, tfd__buffer *old) {
  replaced *r = tfd__alloc(sizeof *r);
  replaced **end = &v->replaced;

  if (r == NULL) { /* no memory: the old values go, as after any assignment */
    tfd__release(old);
    return;
  }
  r->buffer = old;
  r->newer = NULL;
  if (v->replaced == NULL) {
    link_variable(v);
    tfd__unsettled_add(1);
  }
  while (*end != NULL) end = &(*end)->newer;
  *end = r;
  v->replaced_n++;
  prune(v);
}

/* -------------------------------------------------------------------------- */

/* Without a report a lost value stays until its error was seen. Pending ones
** go to the end, so that those behind them have their turn. */
static void settle(bool reported) {
  tfd_variable *v = NULL;
  tfd_variable *next = NULL;
  tfd_variable *end = NULL;
  int pending = 0;

  pthread_mutex_lock(&lock);
  end = last;
  for (v = first; v != NULL && pending < LOOK_AT; v = next) {
    tfd__buffer_state state = tfd__buffer_state_of(v->value->buffer);

    next = v == end ? NULL : v->unsettled_next;
    if (state == TFD_BUFFER_PENDING ||
        (state == TFD_BUFFER_LOST && !reported)) {
      pending += reported ? 0 : 1;
      unlink_variable(v);
      link_variable(v);
      continue;
    }
    if (state == TFD_BUFFER_LOST) restore(v);
    forget(v);
  }
  pthread_mutex_unlock(&lock);
}

/* The host waits here when it is too far ahead. */
static void limit_ahead(tfd_variable *v) {
  int most = v->value->buffer->bytes >= LARGE_BYTES ? AHEAD_LARGE : AHEAD_SMALL;
  tfd__buffer *b = NULL;

  pthread_mutex_lock(&lock);
  if (v->replaced_n >= most) {
    b = v->replaced->newer->buffer;
    tfd__retain(b);
  }
  pthread_mutex_unlock(&lock);
  if (b == NULL) return;
  tfd__buffer_finish(b);
  tfd__release(b);
}

void tfd__history_replace(tfd_variable *v, tfd__buffer *next) {
  tfd__buffer *old = v->value->buffer;

  if (TFD_LIKELY(v->replaced == NULL &&
                 tfd__buffer_state_of(next) == TFD_BUFFER_GOOD)) {
    tfd__release(old);
    return;
  }
  limit_ahead(v);
  pthread_mutex_lock(&lock);
  tfd__set_settle_hook(settle);
  if (tfd__buffer_state_of(next) == TFD_BUFFER_GOOD) {
    forget(v);
    tfd__release(old);
  } else {
    keep(v, old);
  }
  pthread_mutex_unlock(&lock);
}

void tfd__history_drop(tfd_variable *v) {
  if (v->replaced == NULL) return;
  pthread_mutex_lock(&lock);
  forget(v);
  pthread_mutex_unlock(&lock);
}
