/* How long idle OpenMP threads spin, before libgomp asks, where this library
** is a module of a plain interpreter (the hosts: src/host/spin.c).
**
** The module needs libgomp, whose constructor reads the environment and would
** run first; but the module is linked as one that is initialised before all
** others that are loaded with it (-z initfirst). Without effect where libgomp
** is there already or the loader knows no such order. */
#include <stdlib.h>
#include <string.h>

#include "base/spin.h"
#include "lua/bind.h"

extern char **environ;

static char ours[TFD_SPIN_TEXT];

/* The same memory as `environ` keeps. */
static bool is_set(void) {
  return getenv(TFD_SPIN_NAME) == ours + sizeof TFD_SPIN_NAME;
}

/* Runs before the libraries that this one needs, but for the C library. */
__attribute__((constructor)) static void bound_spin(void) {
  static const char *const wishes[] = {TFD_SPIN_WISHES, NULL};
  const char *const *w = wishes;
  char **e = environ;

  for (; e != NULL && *e != NULL; e++)
    for (w = wishes; *w != NULL; w++)
      if (strncmp(*e, *w, strlen(*w)) == 0) return;
  if (e == NULL) return;
  tfd__spin_text(ours);
  putenv(ours);
}

void tfd__lua_spin_bounded(void) {
  if (is_set()) unsetenv(TFD_SPIN_NAME);
}
