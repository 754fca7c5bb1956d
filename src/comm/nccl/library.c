/* NCCL, opened at run time, and the plug-in's entry. */
#include <stdlib.h>

#include "comm/nccl/nccl.h"

#define TFD_LENT_PROVIDER tfd__nccl_provider
#define TFD_LENT_OPEN tfd__nccl_open

#include "comm/lent.h"

tfd__nccl_library tfd__nc;

/* Its thread that listens for questions is of no use here, and the port it
** listens on is one for the whole machine. */
int tfd__nccl_open(void) {
  static bool opened; /* its thread reads the table */
  void *library = NULL;

  if (opened) return TFD_OK;
  (void)setenv("NCCL_RAS_ENABLE", "0", 0);
  if (tfd__cuda_library("libnccl.so.2", &library) != TFD_OK) {
    return tfd__fail(TFD_UNAVAILABLE, "no NCCL: libnccl.so.2 cannot be opened");
  }
#define FUNCTION(name) TFD_TRY(tfd__cuda_symbol(library, #name, &tfd__nc.name));
#include "comm/nccl/nccl.def"
#undef FUNCTION
  opened = true;
  return TFD_OK;
}

int tfd__nccl_check(ncclResult_t result, ncclComm_t comm, const char *what) {
  const char *more = NULL;

  if (result == ncclSuccess || result == ncclInProgress) return TFD_OK;
  more = tfd__nc.ncclGetLastError(comm);
  return tfd__fail(TFD_INTERNAL, "%s: NCCL: %s%s%s", what,
                   tfd__nc.ncclGetErrorString(result),
                   more == NULL || more[0] == '\0' ? "" : ": ",
                   more == NULL ? "" : more);
}
