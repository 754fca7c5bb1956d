#ifndef TFD_SPEC_STANDIN_H
#define TFD_SPEC_STANDIN_H
/* What the stand-ins share: work is put on a stream of libcuda's stand-in,
** which runs it when somebody waits, streams in an order that a seed chooses.
** TFD_STANDIN_SEED: order of streams and of a kernel's threads (0 = forward).
** TFD_STANDIN_DEVICES: how many GPUs (1).
** TFD_STANDIN_FAIL=CODE@CALL: the CALL-th function returns CODE. */

#include <cuda.h>

#ifdef __cplusplus
#include <functional>

void tfd_standin_enqueue(CUstream stream, std::function<void()> run);
extern "C" {
#endif
/* Says that a library is a stand-in. */
extern __attribute__((visibility("default"))) const int tfd_standin;
#ifdef __cplusplus
}
#endif

#endif
