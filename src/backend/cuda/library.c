/* CUDA's libraries, opened at run time. TFDIST_CUDA_STANDIN names a folder
** whose libraries are opened instead of the system's, all or none. Part of
** every plug-in that uses one. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/native.h"

int tfd__cuda_symbol(void *library, const char *name, void *function_p) {
  void *found = dlsym(library, name);

  if (found == NULL) {
    return tfd__fail(TFD_UNAVAILABLE, "%s is missing: the library is too old",
                     name);
  }
  memcpy(function_p, &found, sizeof found);
  return TFD_OK;
}

/* The next of a list with ':' between; false at its end. */
static bool next_name(const char **list, char *name, size_t n) {
  size_t length = strcspn(*list, ":");

  if (**list == '\0') return false;
  (void)snprintf(name, n, "%.*s", (int)length, *list);
  *list += length + ((*list)[length] == ':');
  return true;
}

static const char *standin_folder(void) {
  const char *folder = getenv("TFDIST_CUDA_STANDIN");

  return folder == NULL || folder[0] == '\0' ? NULL : folder;
}

int tfd__cuda_library(const char *names, void **library_p) {
  const char *standin = standin_folder();
  const char *folders = getenv("TFDIST_CUDA_LIBRARIES");
  const char *list = names;
  char name[64];
  char path[1024];

  if (standin != NULL) folders = standin;
  if (folders == NULL) folders = "/usr/local/cuda/lib64";
  while (next_name(&list, name, sizeof name)) {
    const char *at = folders;
    char folder[512];

    *library_p = standin == NULL ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    while (*library_p == NULL && next_name(&at, folder, sizeof folder)) {
      (void)snprintf(path, sizeof path, "%s/%s", folder, name);
      *library_p = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (*library_p != NULL) return TFD_OK;
  }
  return tfd__fail(TFD_UNAVAILABLE, "%s", dlerror());
}
