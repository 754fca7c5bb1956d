/* How long idle OpenMP threads spin, before libgomp asks.
**
** libgomp reads GOMP_SPINCOUNT in its constructor, and spins for a
** millisecond and more without it: beside a busy process, most of a small
** step is then waiting for a thread that has no core. It is a library of this
** program's, so its constructor runs before all of ours, and what runs before
** that (.preinit_array) runs before the C library has an environment. But the
** environment it will have lies there already. So one variable that no
** constructor looks at gives its place to GOMP_SPINCOUNT, and gets it back
** when the libraries are ready. Scripts and the programs that they start see
** their own environment. */
#include <stdbool.h>
#include <stddef.h>

#include "base/spin.h"

extern char **environ;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static char ours[TFD_SPIN_TEXT];
static char *theirs = NULL;

/* No function of the C library may be called this early. */
static bool begins(const char *text, const char *with) {
  while (*with != 0 && *text == *with) {
    text++;
    with++;
  }
  return *with == 0;
}

static char **find(char **environment, const char *const *names) {
  for (; *names != NULL; names++) {
    char **e = environment;

    for (e = environment; *e != NULL; e++)
      if (begins(*e, *names)) return e;
  }
  return NULL;
}

static void lend(int argc, char **argv, char **environment) {
  static const char *const wishes[] = {TFD_SPIN_WISHES, NULL};
  static const char *const unread[] = {
      "_=",    "OLDPWD=", "SHLVL=", "PWD=", "LOGNAME=",
      "USER=", "HOME=",   "PATH=",  NULL};
  char **place = NULL;

  (void)argc;
  (void)argv;
  if (environment == NULL || find(environment, wishes) != NULL) return;
  place = find(environment, unread);
  if (place == NULL) return;
  tfd__spin_text(ours);
  theirs = *place;
  *place = ours;
}

/* A program's constructors run after those of its libraries. */
__attribute__((constructor)) static void give_back(void) {
  char **e = environ;

  if (theirs == NULL) return;
  while (*e != NULL && *e != ours) e++;
  if (*e != NULL) *e = theirs;
}

__attribute__((section(".preinit_array"),
               used)) static void (*const first)(int argc, char **argv,
                                                 char **environment) = lend;
#endif
