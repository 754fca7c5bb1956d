#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Tensors at least this large are listed, so that an out-of-memory message
** can name the worst of them; smaller ones pay nothing. */
#define BIG_BYTES ((size_t)1 << 20)
#define LARGEST_SHOWN 4

/* Headers are recycled per thread: a loop of small ops never reaches malloc.
** Sanitizer builds skip that, so that every use after release is seen. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEADER_CACHE 0
#else
#define HEADER_CACHE TFD_HEADERS_KEPT
#endif

static _Thread_local tfd_tensor *free_headers = NULL;
static _Thread_local int free_headers_n = 0;
static _Thread_local tfd__own_end own_end;

static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;
static tfd_tensor *big_head = NULL;

/* Threads take so many at once. */
enum { IDS_AT_ONCE = 1024 };

uint64_t tfd__next_id(void) {
  static atomic_uint_fast64_t taken;
  static _Thread_local uint64_t last;

  if (!TFD_LIKELY(last % IDS_AT_ONCE != 0)) {
    last = atomic_fetch_add_explicit(&taken, IDS_AT_ONCE, memory_order_relaxed);
  }
  return ++last;
}

static tfd_tensor *header_take(void) {
  tfd_tensor *t = free_headers;

  if (t != NULL) {
    free_headers = t->big_next;
    free_headers_n--;
    /* The next op's header has often left the cache. */
    if (TFD_LIKELY(free_headers != NULL)) {
      __builtin_prefetch((char *)free_headers, 1);
      __builtin_prefetch((char *)free_headers + 64, 1);
      __builtin_prefetch((char *)free_headers + 128, 1);
    }
    return t;
  }
  t = tfd__alloc_aligned(64, sizeof *t);
  if (t == NULL) (void)tfd__no_memory(sizeof *t, "tensor");
  return t;
}

static void free_headers_all(void) {
  while (free_headers != NULL) {
    tfd_tensor *t = free_headers;

    free_headers = t->big_next;
    tfd__free(t);
  }
  free_headers_n = 0;
}

static void header_give(tfd_tensor *t) {
  if (free_headers_n >= HEADER_CACHE) {
    tfd__free(t);
    return;
  }
  if (free_headers == NULL) tfd__at_end(&own_end, free_headers_all);
  t->big_next = free_headers;
  free_headers = t;
  free_headers_n++;
}

static void big_link(tfd_tensor *t) {
  t->is_big = true;
  t->big_prev = NULL;
  pthread_mutex_lock(&big_lock);
  t->big_next = big_head;
  if (big_head != NULL) big_head->big_prev = t;
  big_head = t;
  pthread_mutex_unlock(&big_lock);
}

static void big_unlink(tfd_tensor *t) {
  pthread_mutex_lock(&big_lock);
  if (t->big_prev != NULL) {
    t->big_prev->big_next = t->big_next;
  } else {
    big_head = t->big_next;
  }
  if (t->big_next != NULL) t->big_next->big_prev = t->big_prev;
  pthread_mutex_unlock(&big_lock);
}

static void tensor_destroy(void *self) {
  tfd_tensor *t = self;

  if (t->is_big) big_unlink(t);
  tfd__release(t->buffer != NULL ? (void *)t->buffer : (void *)t->tracer);
  header_give(t);
}

static tfd_tensor *tensor_operand(tfd_object *self) {
  return (tfd_tensor *)self;
}

const tfd__type tfd__tensor_type = {
    .name = "tensor",
    .kind = TFD_HANDLE_TENSOR,
    .destroy = tensor_destroy,
    .operand = tensor_operand,
};

int tfd__tensor_wrap(tfd_device *device, tfd__buffer *buffer,
                     const tfd__view *view, tfd_tensor **t_p) {
  tfd_tensor *t = header_take();

  if (t == NULL) {
    tfd__release(buffer);
    return TFD_RESOURCE_EXHAUSTED;
  }
  tfd__object_init(&t->object, &tfd__tensor_type);
  tfd__view_copy(&t->view, view);
  t->buffer = buffer;
  t->device = device;
  t->variable = NULL;
  t->id = tfd__next_id();
  t->is_big = false;
  if (buffer == NULL) {
    t->tracer = NULL;
  } else if (buffer->bytes >= BIG_BYTES) {
    big_link(t);
  }
  *t_p = t;
  return TFD_OK;
}

int tfd__tensor_new(tfd_device *device, int dtype, const int64_t *dims,
                    int rank, tfd_tensor **t_p) {
  tfd__view view;
  tfd__buffer *buffer = NULL;

  TFD_TRY(tfd__view_set(&view, dtype, dims, rank));
  TFD_TRY(tfd__buffer_new(device, tfd__view_bytes(&view), &buffer));
  view.data = buffer->data;
  return tfd__tensor_wrap(device, buffer, &view, t_p);
}

int tfd__tensor_alias(const tfd_tensor *t, const tfd__view *view,
                      tfd_tensor **alias_p) {
  tfd__retain(t->buffer);
  return tfd__tensor_wrap(t->device, t->buffer, view, alias_p);
}

int tfd__tensor_snapshot(tfd_tensor *t, tfd_tensor **snapshot_p) {
  tfd_tensor *s = NULL;

  if (t->variable == NULL) {
    tfd__retain(t);
    *snapshot_p = t;
    return TFD_OK;
  }
  TFD_TRY(tfd__tensor_alias(t, &t->view, &s));
  s->id = t->id;
  *snapshot_p = s;
  return TFD_OK;
}

int tfd__tensor_shape_only(const tfd_tensor *t, tfd_tensor **p) {
  tfd_tensor *s = NULL;
  tfd__view view = t->view;

  view.data = NULL;
  TFD_TRY(tfd__tensor_wrap(t->device, NULL, &view, &s));
  s->id = t->id;
  *p = s;
  return TFD_OK;
}

/* --- symbolic tensors ----------------------------------------------------- */

int tfd__tensor_symbolic(tfd__tracer *tracer, tfd_device *device, int dtype,
                         const int64_t *dims, int rank, const char *file,
                         int line, tfd_tensor **t_p) {
  tfd__view view = {.data = NULL};

  TFD_TRY(tfd__view_set_partial(&view, dtype, dims, rank));
  TFD_TRY(tfd__tensor_wrap(device, NULL, &view, t_p));
  tfd__retain(tracer);
  (*t_p)->tracer = tracer;
  (*t_p)->file = file;
  (*t_p)->line = line;
  return TFD_OK;
}

#define PLACE_TEXT 256

/* Where it comes from, behind `lead`; nothing where that is not known. */
static const char *origin(const tfd_tensor *t, const char *lead,
                          char text[PLACE_TEXT]) {
  text[0] = '\0';
  if (t->line == TFD_ARGUMENT_LINE) {
    (void)snprintf(text, PLACE_TEXT, "%sgiven as an argument", lead);
  } else if (t->file != NULL && t->file[0] != '\0') {
    (void)snprintf(text, PLACE_TEXT, "%smade at %s:%d", lead, t->file, t->line);
  }
  return text;
}

const char *tfd__refused(const tfd_tensor *t) {
  if (!tfd__is_symbolic(t) || t->tracer->refused == NULL) return NULL;
  return t->tracer->refused(t->tracer, t);
}

int tfd__no_values(const tfd_tensor *t, const char *what) {
  char shape[TFD_SHAPE_TEXT];
  char place[PLACE_TEXT];

  const char *refused = NULL;

  if (!tfd__is_symbolic(t)) {
    return tfd__fail(TFD_INTERNAL, "%s: a tensor that has no values", what);
  }
  refused = tfd__refused(t);
  if (refused != NULL) {
    tfd__fail(TFD_TYPE_ERROR,
              "%s: using a symbolic tensor as a value is not allowed: %s %s%s "
              "in the function \"%s\", has none: %s",
              what, tfd__dtype_name(t->view.dtype),
              tfd__shape_text(&t->view, shape), origin(t, ", ", place),
              t->tracer->name, refused);
    return tfd__hint("a branch and a loop's body may never run: a call that "
                     "gets there raises that");
  }
  tfd__fail(TFD_TYPE_ERROR,
            "%s: using a symbolic tensor as a value is not allowed: %s %s%s "
            "%s the function \"%s\", has one only when the traced function "
            "runs",
            what, tfd__dtype_name(t->view.dtype),
            tfd__shape_text(&t->view, shape), origin(t, ", ", place),
            t->line == TFD_ARGUMENT_LINE ? "to" : "in", t->tracer->name);
  return tfd__hint("tf.cond, tf.where and tf.while_loop decide by values, "
                   "tf.print shows them; or return the tensor");
}

int tfd__out_of_place(const tfd_tensor *t, const char *what, int i) {
  char shape[TFD_SHAPE_TEXT];
  char place[PLACE_TEXT];

  if (!tfd__is_symbolic(t)) return tfd__no_values(t, what);
  tfd__fail(TFD_TYPE_ERROR,
            "%s: input %d, %s %s%s, belongs to the function \"%s\" and is out "
            "of scope here",
            what, i, tfd__dtype_name(t->view.dtype),
            tfd__shape_text(&t->view, shape), origin(t, " ", place),
            t->tracer->name);
  return tfd__hint("a symbolic tensor leaves its function as a returned value");
}

/* -------------------------------------------------------------------------- */

int tfd__tensor_dense(tfd_tensor *t, tfd_tensor **p) {
  tfd_tensor *copy = NULL;
  tfd__view views[2];
  tfd__call call = {.name = "copy", .views = views, .in_n = 1, .out_n = 1};
  int rc;

  if (t->view.dense) {
    tfd__retain(t);
    *p = t;
    return TFD_OK;
  }
  TFD_TRY(tfd__tensor_new(t->device, t->view.dtype, t->view.dims, t->view.rank,
                          &copy));
  views[0] = t->view;
  views[1] = copy->view;
  call.kernel = t->device->backend->kernels[TFD_KERNEL_copy];
  call.replica = -1;
  rc = tfd__stream_submit(t->device, &call);
  if (rc != TFD_OK) {
    tfd__release(copy);
    return rc;
  }
  tfd__buffer_made(copy->buffer, tfd__stream_seq(t->device));
  *p = copy;
  return TFD_OK;
}

/* The stretch of memory that a view shows: its elements' number, gaps included,
** and how many lie before the view's first. */
static int64_t stretch_of(const tfd__view *v, int64_t *before_p) {
  int64_t before = 0;
  int64_t after = 0;
  int i;

  if (v->numel == 0) return 0;
  for (i = 0; i < v->rank; i++) {
    int64_t reach = (v->dims[i] - 1) * v->strides[i];

    *(reach < 0 ? &before : &after) += reach;
  }
  *before_p = -before;
  return after - before + 1;
}

/* Views go across as they lie in memory, gaps included: making them dense
** first would be work for the queue of the device they leave. */
int tfd__tensor_to_device(tfd_tensor *t, tfd_device *device, tfd_tensor **p) {
  int64_t before = 0;
  int64_t n = 0;
  int64_t offset = 0;
  tfd__view stretch;
  tfd__view view;
  tfd_tensor *copy = NULL;
  int rc;

  if (t->device == device) {
    tfd__retain(t);
    *p = t;
    return TFD_OK;
  }
  if (t->buffer == NULL) return tfd__no_values(t, "copy");
  n = stretch_of(&t->view, &before);
  offset = before * (int64_t)tfd__dtype_size(t->view.dtype);
  TFD_TRY(tfd__view_set(&stretch, t->view.dtype, &n, 1));
  stretch.data = (char *)t->view.data - offset;
  TFD_TRY(tfd__tensor_new(device, t->view.dtype, &n, 1, &copy));
  rc = tfd__copy_across(copy->buffer, &copy->view, t->buffer, &stretch);
  if (rc == TFD_OK) {
    view = t->view;
    view.data = (char *)copy->view.data + offset;
    rc = tfd__tensor_alias(copy, &view, p);
  }
  tfd__release(copy);
  return rc;
}

int tfd__tensor_sync(const tfd_tensor *t) {
  if (t->buffer == NULL) return tfd__no_values(t, "read");
  TFD_TRY(tfd__stream_wait(t->device, t->buffer->use_seq, TFD_FOREVER));
  return tfd__buffer_check(t->buffer);
}

int tfd__operand(tfd_object *object, tfd_tensor **t_p) {
  tfd_tensor *t = NULL;

  if (object == NULL) {
    return tfd__fail(TFD_TYPE_ERROR, "expected a tensor, got nothing");
  }
  if (!TFD_LIKELY(tfd__is_handle(object))) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "expected a tensor, got no open handle (released before, "
                     "or never one)");
  }
  if (object->type->operand == NULL) {
    return tfd__fail(TFD_TYPE_ERROR, "expected a tensor, got a %s handle",
                     object->type->name);
  }
  t = object->type->operand(object);
  if (t == NULL) {
    tfd__error e = {0};
    int code;

    tfd__error_save(&e);
    code = e.code != TFD_OK ? (int)e.code : (int)TFD_FAILED_PRECONDITION;
    tfd__error_free(&e);
    return code;
  }
  *t_p = t;
  return TFD_OK;
}

/* Insert t into the list of the largest seen so far, once per buffer. */
static void largest_add(const tfd_tensor *t, const tfd_tensor **top) {
  int i;
  int j;

  for (i = 0; i < LARGEST_SHOWN; i++) {
    if (top[i] != NULL && top[i]->buffer == t->buffer) return;
  }
  for (i = 0; i < LARGEST_SHOWN; i++) {
    if (top[i] == NULL || t->buffer->bytes > top[i]->buffer->bytes) break;
  }
  if (i == LARGEST_SHOWN) return;
  for (j = LARGEST_SHOWN - 1; j > i; j--) top[j] = top[j - 1];
  top[i] = t;
}

void tfd__tensor_largest(char *text, size_t text_bytes) {
  const tfd_tensor *top[LARGEST_SHOWN] = {NULL};
  const tfd_tensor *t;
  char shape[TFD_SHAPE_TEXT];
  size_t used = 0;
  int i;

  text[0] = '\0';
  pthread_mutex_lock(&big_lock);
  for (t = big_head; t != NULL; t = t->big_next) largest_add(t, top);
  for (i = 0; i < LARGEST_SHOWN && top[i] != NULL; i++) {
    int n = snprintf(text + used, text_bytes - used, "%s%s %s %.1f MiB",
                     i == 0 ? "largest live tensors: " : ", ",
                     tfd__dtype_name(top[i]->view.dtype),
                     tfd__shape_text(&top[i]->view, shape),
                     (double)top[i]->buffer->bytes / 1048576.0);

    if (n < 0 || (size_t)n >= text_bytes - used) break;
    used += (size_t)n;
  }
  pthread_mutex_unlock(&big_lock);
}

/* Out-of-memory messages of the device layer name the largest tensors. */
__attribute__((constructor)) static void register_oom_text(void) {
  tfd__set_oom_hook(tfd__tensor_largest);
}
