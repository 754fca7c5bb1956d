/* The library's functions inside the plug-in, and the plug-in's one symbol. */
#include "comm/mpi/mpi.h"
#include "comm/plugin.h"

static const tfd__provider_host *host;

#include "comm/lent.h"

TFD_API int tfd_provider_plugin(const tfd__provider_host *given,
                                const tfd__provider **provider_p);

int tfd_provider_plugin(const tfd__provider_host *given,
                        const tfd__provider **provider_p) {
  if (given->abi != TFD_PROVIDER_ABI) {
    return given->fail(TFD_FAILED_PRECONDITION,
                       "made for table %d of providers, here it is %d",
                       TFD_PROVIDER_ABI, given->abi);
  }
  host = given;
  *provider_p = &tfd__mpi_provider;
  return TFD_OK;
}
