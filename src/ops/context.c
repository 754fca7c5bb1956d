#include "base/profile.h"
#include "ops/ops.h"

#define DEVICE_STACK \
  (int)(sizeof((tfd_context *)0)->device_stack / sizeof(tfd_device *))

typedef struct tfd__lent {
  tfd_tensor *t;
  struct tfd__lent *next;
} tfd__lent;

int tfd__context_lend(tfd_tensor *t) {
  tfd_context *c = tfd__context();
  tfd__lent *l = tfd__alloc(sizeof *l);

  if (l == NULL) return tfd__no_memory(sizeof *l, "operand");
  l->t = t;
  l->next = c->lent;
  c->lent = l;
  return TFD_OK;
}

void tfd__context_take_back(tfd_context *c) {
  while (c->lent != NULL) {
    tfd__lent *l = c->lent;

    c->lent = l->next;
    tfd__release(l->t);
    tfd__free(l);
  }
}

static void context_destroy(void *self) {
  tfd_context *c = self;

  tfd__context_take_back(c);
  tfd__release(c->recorder);
  tfd__release(c->paused);
  tfd__free(c);
}

static const tfd__type context_type = {
    .name = "context",
    .kind = TFD_HANDLE_CONTEXT,
    .destroy = context_destroy,
};

/* A thread's own context lives in its local storage, so asking for it can
** neither fail nor leak. */
static _Thread_local tfd_context own_context;
static _Thread_local tfd_context *current = NULL;

tfd_context *tfd__context(void) {
  if (!TFD_LIKELY(current != NULL)) {
    tfd__object_init(&own_context.object, &context_type);
    own_context.replica = -1;
    current = &own_context;
  }
  return current;
}

int tfd_context_new(tfd_context **context_p) {
  TFD_GIVEN_POINTER(context_p);

  tfd_context *c = tfd__calloc(1, sizeof *c);

  if (c == NULL) return tfd__no_memory(sizeof *c, "context");
  tfd__object_init(&c->object, &context_type);
  c->replica = -1;
  *context_p = c;
  return TFD_OK;
}

int tfd_context_enter(tfd_context *context) {
  TFD_GIVEN_OPTIONAL(context, CONTEXT);

  tfd_context *before = tfd__context();

  if (context == NULL) context = &own_context;
  if (context == before) return TFD_OK;
  if (context != &own_context) tfd__retain(context);
  current = context;
  if (before != &own_context) tfd__release(before);
  return TFD_OK;
}

int tfd_device_push(tfd_device *device) {
  TFD_GIVEN_OPTIONAL(device, DEVICE);

  tfd_context *c = tfd__context();

  if (c->device_depth >= DEVICE_STACK) {
    return tfd__fail(TFD_RUNTIME_ERROR, "device: nested deeper than %d levels",
                     DEVICE_STACK);
  }
  c->device_stack[c->device_depth++] = device;
  return TFD_OK;
}

int tfd_device_pop(void) {
  tfd_context *c = tfd__context();

  if (c->device_depth == 0) {
    return tfd__fail(TFD_RUNTIME_ERROR, "device: no device to leave");
  }
  c->device_depth--;
  return TFD_OK;
}

int tfd_device_depth(void) {
  return tfd__context()->device_depth;
}

tfd_device *tfd__context_device(void) {
  tfd_context *c = tfd__context();

  return c->device_depth > 0 ? c->device_stack[c->device_depth - 1] : NULL;
}

int tfd__default_device(tfd_device **device_p) {
  tfd_device *const *devices = NULL;
  tfd_device *d = tfd__context_device();
  int n = 0;

  if (d == NULL) {
    TFD_TRY(tfd__devices(&devices, &n));
    d = devices[0];
  }
  *device_p = d;
  return TFD_OK;
}

int tfd_device_current(tfd_device **device_p) {
  TFD_GIVEN_POINTER(device_p);
  return tfd__default_device(device_p);
}

void tfd__context_record(tfd__recorder *recorder, tfd__recorder **before_p) {
  tfd_context *c = tfd__context();

  *before_p = c->recorder;
  tfd__retain(recorder);
  c->recorder = recorder;
}

void tfd__context_pause(bool paused) {
  tfd_context *c = tfd__context();
  tfd__recorder **from = paused ? &c->recorder : &c->paused;
  tfd__recorder **to = paused ? &c->paused : &c->recorder;

  if (*from == NULL) return;
  *to = *from;
  *from = NULL;
}

int tfd__refuse_recorder(const char *what) {
  const tfd__recorder *r = tfd__context()->recorder;

  if (r == NULL) return TFD_OK;
  return tfd__fail(TFD_NOT_IMPLEMENTED,
                   "%s: not inside the traced function \"%s\"", what,
                   r->tracer.name);
}

void tfd_context_set_position(const char *file, int line) {
  tfd_context *c = tfd__context();

  c->file = file;
  c->line = line;
}

void tfd_context_set_note(const char *note) {
  tfd__context()->note =
      note == NULL || note[0] == '\0' ? NULL : tfd__span_name(note);
}

int tfd_context_set_autocast(bool active, tfd_dtype dtype) {
  if (active && (!tfd__dtype_ok((int)dtype) || !tfd__is_float((int)dtype))) {
    return tfd__fail(TFD_TYPE_ERROR, "autocast: %s is no floating-point dtype",
                     tfd__dtype_name((int)dtype));
  }
  tfd__context()->autocast = active ? 1 + (int)dtype : 0;
  return TFD_OK;
}

/* --- placement ------------------------------------------------------------ */

static atomic_bool placement_is_hard;

void tfd_config_set_soft_placement(bool on) {
  atomic_store(&placement_is_hard, !on);
}

bool tfd_config_soft_placement(void) {
  return !atomic_load(&placement_is_hard);
}
