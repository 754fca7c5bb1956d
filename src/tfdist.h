/* tfdist.h: the public C API of tfdist, tf.distribute for Lua and C.
**
** One shape for everything, so that a script can generate the bindings:
** - A function returns `int`: 0 or a tfd_status. Other results fail for bad
**   handles alone: 0, -1, false, "". The thread's tfd_error_message() says why.
** - `tfd_X **out_p` is a new reference that the caller releases; handles that
**   come in are borrowed. `double *x_p`, `int64_t *x_p`, `int *x_p` return one
**   value. `const T *xs, int xs_n` is a list. Outputs are written on success
**   only.
** - Axes, positions, ordinals and labels count from 0.
** - The parts by area lie in tfdist/; programs include this file.
** Doc labels: Shapes, Units, Owns, Blocks, Threads, Errors, Source.
*/
#ifndef TFDIST_H
#define TFDIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TFD_API __attribute__((visibility("default")))
#else
#define TFD_API
#endif

#define TFD_VERSION "0.1.0"

#include "tfdist/constants.h"
#include "tfdist/distribute.h"
#include "tfdist/files.h"
#include "tfdist/graph.h"
#include "tfdist/ops.h"
#include "tfdist/profiler.h"
#include "tfdist/runtime.h"
#include "tfdist/tensors.h"

#ifdef __cplusplus
}
#endif
#endif
