/* Which back ends there are: the processor's, those that were registered, and
** plug-ins. The list is made once, when the runtime starts. */
#include "backend/plugin.h"

#include <string.h>

#include "base/memory.h"
#include "base/plugins.h"

#define MOST 16 /* back ends; the rest is left out */

static tfd__backend_entry entries[MOST] = {{.backend = &tfd__cpu_backend,
                                            .name = "cpu",
                                            .path = "",
                                            .reason = "",
                                            .devices = 1}};
static int entries_n = 1;
static bool listed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const tfd__plugin_host host = {
    .abi = TFD_BACKEND_ABI,
    .fail = tfd__fail,
    .hint = tfd__hint,
    .error_set_place = tfd__error_set_place,
    .error_set_note = tfd__error_set_note,
    .blame = tfd__blame,
    .error_save = tfd__error_save,
    .error_raise = tfd__error_raise,
    .error_free = tfd__error_free,
    .log = tfd__log,
    .alloc = tfd__alloc,
    .alloc_aligned = tfd__alloc_aligned,
    .free = tfd__free,
    .scratch = tfd__scratch,
    .scratch_reset = tfd__scratch_reset,
    .use_threads = tfd__use_threads,
    .cores = tfd__cores,
    .check_running = tfd__check_running,
    .tensor_float_32 = tfd_tensor_float_32_is_enabled,
    .cpu = &tfd__cpu_backend,
};

/* --- one entry ------------------------------------------------------------ */

/* A copy that stays; when memory is short, a text that says less. */
static const char *keep(const char *text) {
  char *copy = tfd__strdup(text);

  return copy == NULL ? "out of memory" : copy;
}

static tfd__backend_entry *add(const char *name, const char *path) {
  tfd__backend_entry *e = NULL;

  if (entries_n == MOST) return NULL;
  e = &entries[entries_n++];
  *e = (tfd__backend_entry){.name = name, .path = path, .reason = ""};
  return e;
}

/* It cannot be used, for the thread's error says why. */
static void refuse(tfd__backend_entry *e) {
  e->backend = NULL;
  e->unusable = e->devices;
  e->devices = 0;
  e->reason = keep(tfd_error_message());
  e->lost = tfd_error_exit_code() == TFD_EXIT_DEVICE_LOST;
}

/* Later members are looked at only when the first one fits. */
static int check_table(const tfd__backend *b) {
  int i;

  if (b->abi != TFD_BACKEND_ABI || b->kernels_n != TFD_KERNEL_N) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "made for another version of tfdist (table %d, here %d)",
                     b->abi, TFD_BACKEND_ABI);
  }
  if (b->kernels[TFD_KERNEL_copy] == NULL) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "it has no kernel \"copy\"");
  }
  for (i = 0; i < entries_n; i++) {
    const tfd__backend *other = entries[i].backend;

    if (other == NULL || other == b) continue;
    if (strcmp(other->device_type, b->device_type) != 0) continue;
    return tfd__fail(TFD_ALREADY_EXISTS,
                     "the devices called %s are those of back end \"%s\"",
                     b->device_type, other->name);
  }
  return TFD_OK;
}

static int use(tfd__backend_entry *e, const tfd__backend *b) {
  TFD_TRY(check_table(b));
  e->type = b->device_type;
  TFD_TRY(b->discover(&e->devices));
  e->backend = b;
  e->name = b->name;
  return TFD_OK;
}

/* --- plug-ins ------------------------------------------------------------- */

static int open_plugin(tfd__backend_entry *e, const tfd__plugin *p) {
  const tfd__backend *b = NULL;
  void (*function)(void) = NULL;

  TFD_TRY(tfd__plugin_open(p, TFD_BACKEND_PLUGIN, &function));
  TFD_TRY(((tfd__backend_plugin *)function)(&host, &b));
  return use(e, b);
}

static void add_plugins(void) {
  const tfd__plugin *list = NULL;
  int n = 0;
  int i;

  tfd__plugins(&list, &n);
  for (i = 0; i < n; i++) {
    tfd__backend_entry *e = NULL;

    if (list[i].is_provider) continue;
    e = add(list[i].name, list[i].path);
    if (e != NULL && open_plugin(e, &list[i]) != TFD_OK) refuse(e);
  }
}

/* --- the list ------------------------------------------------------------- */

int tfd__backend_register(const tfd__backend *backend) {
  tfd__backend_entry *e = NULL;
  int rc = TFD_OK;

  pthread_mutex_lock(&lock);
  if (listed) {
    rc = tfd__fail(TFD_FAILED_PRECONDITION,
                   "back end \"%s\" comes after the runtime's start",
                   backend->name);
  } else {
    e = add(backend->name, "");
    if (e != NULL && use(e, backend) != TFD_OK) refuse(e);
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

void tfd__backends(const tfd__backend_entry **list_p, int *n_p) {
  pthread_mutex_lock(&lock);
  if (!listed) {
    add_plugins();
    listed = true;
  }
  pthread_mutex_unlock(&lock);
  *list_p = entries;
  *n_p = entries_n;
}

/* --- the end of the process ----------------------------------------------- */
