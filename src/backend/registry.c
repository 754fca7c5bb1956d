/* Which back ends there are: the processor's, those that were registered, and
** plug-ins. The list is made once, when the runtime starts. */
#define _GNU_SOURCE /* dladdr */
#include "backend/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"

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
  e->devices = 0;
  e->reason = keep(tfd_error_message());
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
  TFD_TRY(b->discover(&e->devices));
  e->backend = b;
  e->name = b->name;
  return TFD_OK;
}

/* --- plug-ins ------------------------------------------------------------- */

static int open_plugin(tfd__backend_entry *e) {
  void *library = dlopen(e->path, RTLD_NOW | RTLD_LOCAL);
  const tfd__backend *b = NULL;
  tfd__backend_plugin *entry = NULL;
  void *symbol = NULL;

  if (library == NULL) {
    const char *why = dlerror();

    return tfd__fail(TFD_UNAVAILABLE, "%s", why == NULL ? "dlopen" : why);
  }
  symbol = dlsym(library, TFD_BACKEND_PLUGIN);
  if (symbol == NULL) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "it has no function " TFD_BACKEND_PLUGIN);
  }
  memcpy(&entry, &symbol, sizeof entry);
  TFD_TRY(entry(&host, &b));
  return use(e, b);
}

/* "/x/tfdist_cuda.so" -> "cuda" */
static void name_of(const char *path, char *name, size_t size) {
  const char *slash = strrchr(path, '/');
  const char *p = slash == NULL ? path : slash + 1;

  if (strncmp(p, "tfdist_", 7) == 0) p += 7;
  (void)snprintf(name, size, "%.*s", (int)strcspn(p, "."), p);
}

static void add_plugin(const char *path) {
  char name[64];
  tfd__backend_entry *e = NULL;
  int i;

  for (i = 0; i < entries_n; i++) {
    if (strcmp(entries[i].path, path) == 0) return;
  }
  name_of(path, name, sizeof name);
  e = add(keep(name), keep(path));
  if (e != NULL && open_plugin(e) != TFD_OK) refuse(e);
}

static int is_plugin(const struct dirent *d) {
  size_t n = strlen(d->d_name);

  return strncmp(d->d_name, "tfdist_", 7) == 0 && n > 10 &&
         strcmp(d->d_name + n - 3, ".so") == 0;
}

/* The plug-ins of a folder in the order of their names. A place that somebody
** `named` may be a file, and it is told when there is none. */
static void add_place(const char *place, bool named) {
  char path[PATH_MAX];
  struct dirent **names = NULL;
  struct stat st;
  int n;
  int i;

  if (realpath(place, path) == NULL || stat(path, &st) != 0) {
    if (named) add_plugin(place);
    return;
  }
  if (!S_ISDIR(st.st_mode)) {
    if (named) add_plugin(path);
    return;
  }
  n = scandir(path, &names, is_plugin, alphasort);
  for (i = 0; i < n; i++) {
    char file[PATH_MAX + sizeof names[i]->d_name];

    (void)snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
    free(names[i]);
    add_plugin(file);
  }
  free(names);
}

/* Where the build and the installation put them, seen from the file that holds
** this code: host, module or library. */
static void add_own_places(void) {
  static const char *const places[] = {"plugins",       "../plugins",
                                       "../../plugins", "../lib/tfdist",
                                       "tfdist",        "../../../tfdist"};
  char path[PATH_MAX];
  Dl_info info;
  size_t i;

  if (dladdr(&entries_n, &info) == 0 || info.dli_fname == NULL) return;
  for (i = 0; i < sizeof places / sizeof places[0]; i++) {
    const char *slash = strrchr(info.dli_fname, '/');
    int n = slash == NULL ? 1 : (int)(slash - info.dli_fname);
    const char *folder = slash == NULL ? "." : info.dli_fname;

    (void)snprintf(path, sizeof path, "%.*s/%s", n, folder, places[i]);
    add_place(path, false);
  }
}

static void add_named_places(void) {
  const char *p = getenv("TFDIST_PLUGINS");
  char place[PATH_MAX];

  while (p != NULL && *p != '\0') {
    size_t n = strcspn(p, ":");

    (void)snprintf(place, sizeof place, "%.*s", (int)n, p);
    if (n > 0) add_place(place, true);
    p += n;
    if (*p == ':') p++;
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
    add_named_places();
    add_own_places();
    listed = true;
  }
  pthread_mutex_unlock(&lock);
  *list_p = entries;
  *n_p = entries_n;
}

/* --- the end of the process ----------------------------------------------- */
