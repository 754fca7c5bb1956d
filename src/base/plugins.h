#ifndef TFD_BASE_PLUGINS_H
#define TFD_BASE_PLUGINS_H
/* L0 base: plug-ins of every kind: where they are found, which of them may be
** opened, and their one symbol.
**
** A plug-in is a file tfdist_NAME.so in one of these folders: those of
** TFDIST_PLUGINS (between colons; a file may stand there too, whatever it is
** called), then plugins beside or above the library, then the folder tfdist of
** the installation; never the current directory. Its name says its kind: with
** a second underscore it is a provider of collectives in one of several builds
** (tfdist_mpi_openmpi.so, tfdist_mpi_mpich.so), else a back end
** (tfdist_cuda.so). It exports one function, sees no symbol of the library but
** those in the table that it is given, and is never closed. */

#include "base/status.h"

typedef struct tfd__plugin {
  const char *name; /* "cuda", "mpi_openmpi"; lives for ever, as path does */
  const char *path;
  bool is_provider;
} tfd__plugin;

/* All that there are, in the order of places and names; none is opened. Looked
** for once. */
void tfd__plugins(const tfd__plugin **list_p, int *n_p);
/* Open it and store its function `symbol` in *function_p.
** Errors: Unavailable with the loader's words; FailedPrecondition when it has
**   no such function, and, for root, when others may write the file or its
**   folder. */
int tfd__plugin_open(const tfd__plugin *p, const char *symbol,
                     void (**function_p)(void));

#endif
