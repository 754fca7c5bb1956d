/* Where plug-ins lie and how they are opened. */
#define _GNU_SOURCE /* dladdr */
#include "base/plugins.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

#define PREFIX "tfdist_"

enum { MOST = 32 }; /* plug-ins; the rest is left out */

static tfd__plugin list[MOST];
static int count;
static bool listed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* --- finding -------------------------------------------------------------- */

/* "/x/tfdist_mpi_mpich.so" -> "mpi_mpich", a provider */
static void name_it(tfd__plugin *p, const char *path) {
  const char *slash = strrchr(path, '/');
  const char *file = slash == NULL ? path : slash + 1;
  bool ours = strncmp(file, PREFIX, sizeof PREFIX - 1) == 0;
  char name[64];
  const char *copy = NULL;

  if (ours) file += sizeof PREFIX - 1;
  (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
  copy = tfd__strdup(name);
  p->name = copy == NULL ? "" : copy;
  p->is_provider = ours && strchr(name, '_') != NULL;
}

static void add(const char *path) {
  tfd__plugin *p = &list[count];
  int i;

  for (i = 0; i < count; i++) {
    if (strcmp(list[i].path, path) == 0) return;
  }
  if (count == MOST) return;
  p->path = tfd__strdup(path);
  if (p->path == NULL) return;
  name_it(p, path);
  count++;
}

static int is_plugin(const struct dirent *d) {
  size_t n = strlen(d->d_name);

  return strncmp(d->d_name, PREFIX, sizeof PREFIX - 1) == 0 &&
         n > sizeof PREFIX + 2 && strcmp(d->d_name + n - 3, ".so") == 0;
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
    if (named) add(place);
    return;
  }
  if (!S_ISDIR(st.st_mode)) {
    if (named) add(path);
    return;
  }
  n = scandir(path, &names, is_plugin, alphasort);
  for (i = 0; i < n; i++) {
    char file[PATH_MAX + sizeof names[i]->d_name];

    (void)snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
    free(names[i]);
    add(file);
  }
  free(names);
}

/* The file that holds this code: host, module or library. A program that was
** found in PATH is known to the loader by its bare name, which says nothing of
** where it lies. */
static bool own_file(char path[PATH_MAX]) {
  Dl_info info;
  ssize_t n;

  if (dladdr(&list, &info) != 0 && info.dli_fname != NULL &&
      strchr(info.dli_fname, '/') != NULL) {
    (void)snprintf(path, PATH_MAX, "%s", info.dli_fname);
    return true;
  }
  n = readlink("/proc/self/exe", path, PATH_MAX - 1);
  if (n <= 0) return false;
  path[n] = '\0';
  return true;
}

/* Where the build and the installation put them, seen from there. */
static void add_own_places(void) {
  static const char *const places[] = {"plugins",       "../plugins",
                                       "../../plugins", "../lib/tfdist",
                                       "tfdist",        "../../../tfdist"};
  char own[PATH_MAX];
  char path[PATH_MAX + 32];
  size_t i;

  if (!own_file(own)) return;
  *strrchr(own, '/') = '\0';
  for (i = 0; i < sizeof places / sizeof places[0]; i++) {
    (void)snprintf(path, sizeof path, "%s/%s", own, places[i]);
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

void tfd__plugins(const tfd__plugin **list_p, int *n_p) {
  pthread_mutex_lock(&lock);
  if (!listed) {
    add_named_places();
    add_own_places();
    listed = true;
  }
  pthread_mutex_unlock(&lock);
  *list_p = list;
  *n_p = count;
}

/* --- opening -------------------------------------------------------------- */

static bool others_may_write(const char *path) {
  struct stat st;

  return stat(path, &st) == 0 && (st.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

/* Root must not run what somebody else may have put there. */
static int check_owner(const char *path) {
  char folder[PATH_MAX];
  char *slash = NULL;

  if (geteuid() != 0) return TFD_OK;
  (void)snprintf(folder, sizeof folder, "%s", path);
  slash = strrchr(folder, '/');
  if (slash != NULL) *slash = '\0';
  if (!others_may_write(path) && (slash == NULL || !others_may_write(folder))) {
    return TFD_OK;
  }
  (void)tfd__fail(TFD_FAILED_PRECONDITION,
                  "others than its owner may write %s or its folder, and this "
                  "is root",
                  path);
  return tfd__hint("chmod go-w %s %s", path, slash == NULL ? "." : folder);
}

int tfd__plugin_open(const tfd__plugin *p, const char *symbol,
                     void (**function_p)(void)) {
  void *library = NULL;
  void *found = NULL;

  TFD_TRY(check_owner(p->path));
  library = dlopen(p->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == NULL) {
    const char *why = dlerror();

    return tfd__fail(TFD_UNAVAILABLE, "%s", why == NULL ? "dlopen" : why);
  }
  found = dlsym(library, symbol);
  if (found == NULL) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "it has no function %s", symbol);
  }
  memcpy(function_p, &found, sizeof found);
  return TFD_OK;
}
