/* What assignments replaced. A queued assignment puts a buffer behind a
** variable whose values are still to be computed. The replaced buffer stays
** until they are, and comes back if the computation fails: variables then stand
** at their last complete update.
**
** Cost: one small block for each replacement whose value is pending, and the
** replaced buffer's memory until the queue has come that far. */
#include "tensor/tensor.h"

typedef struct tfd__replaced {
  tfd__buffer *buffer; /* owned */
  struct tfd__replaced *older;
} replaced;

/* Variables with a history, the one that got its first entry last at the end.
** Rank 4: under it buffers are asked for their state and released. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tfd_variable *first;
static tfd_variable *last;

static void release_all(replaced *r) {
  while (r != NULL) {
    replaced *older = r->older;

    tfd__release(r->buffer);
    tfd__free(r);
    r = older;
  }
}

/* The mutex is held. */
static void link_variable(tfd_variable *v) {
  v->unsettled_next = NULL;
  v->unsettled_prev = last;
  *(last != NULL ? &last->unsettled_next : &first) = v;
  last = v;
  tfd__unsettled_add(1);
}

static void unlink_variable(tfd_variable *v) {
  tfd_variable *prev = v->unsettled_prev;
  tfd_variable *next = v->unsettled_next;

  *(prev != NULL ? &prev->unsettled_next : &first) = next;
  *(next != NULL ? &next->unsettled_prev : &last) = prev;
  tfd__unsettled_add(-1);
}

static void forget(tfd_variable *v) {
  if (v->replaced == NULL) return;
  unlink_variable(v);
  release_all(v->replaced);
  v->replaced = NULL;
}

/* The newest values that were computed take the place of lost ones. */
static void restore(tfd_variable *v) {
  replaced *r = v->replaced;

  while (r != NULL && tfd__buffer_state_of(r->buffer) != TFD_BUFFER_GOOD) {
    r = r->older;
  }
  if (r == NULL) return; /* it never had values: reading raises the error */
  tfd__release(v->value->buffer);
  tfd__retain(r->buffer);
  v->value->buffer = r->buffer;
  v->value->view.data = r->buffer->data;
  v->version++;
}

/* Without a report a lost value stays until its error was seen, and the first
** pending one ends the walk: those behind it are mostly pending too. */
static void settle(bool reported) {
  tfd_variable *v = NULL;
  tfd_variable *next = NULL;

  pthread_mutex_lock(&lock);
  for (v = first; v != NULL; v = next) {
    tfd__buffer_state state = tfd__buffer_state_of(v->value->buffer);

    next = v->unsettled_next;
    if (state == TFD_BUFFER_PENDING && !reported) break;
    if (state == TFD_BUFFER_PENDING) continue;
    if (state == TFD_BUFFER_LOST && !reported) continue;
    if (state == TFD_BUFFER_LOST) restore(v);
    forget(v);
  }
  pthread_mutex_unlock(&lock);
}

/* Takes over the reference to the old buffer. */
static void keep(tfd_variable *v, tfd__buffer *old) {
  replaced *r = tfd__alloc(sizeof *r);

  if (r == NULL) { /* no memory: the old values go, as after any assignment */
    tfd__release(old);
    return;
  }
  /* What is older than good values will not be needed. */
  if (tfd__buffer_state_of(old) == TFD_BUFFER_GOOD) forget(v);
  r->buffer = old;
  r->older = v->replaced;
  if (v->replaced == NULL) link_variable(v);
  v->replaced = r;
}

void tfd__history_replace(tfd_variable *v, tfd__buffer *next) {
  tfd__buffer *old = v->value->buffer;

  if (TFD_LIKELY(v->replaced == NULL &&
                 tfd__buffer_state_of(next) == TFD_BUFFER_GOOD)) {
    tfd__release(old);
    return;
  }
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
