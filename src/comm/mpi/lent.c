/* The library's functions inside the plug-in, and the plug-in's one symbol. */
#include "comm/mpi/mpi.h"

#define TFD_LENT_PROVIDER tfd__mpi_provider
#define TFD_LENT_OPEN() TFD_OK

#include "comm/lent.h"
