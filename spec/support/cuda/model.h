#ifndef TFD_SPEC_MODEL_H
#define TFD_SPEC_MODEL_H
/* Running a kernel on the model. */

#include "cuda_model.h"

/* Run all blocks; NULL, or what went wrong (kept until the next run). */
const char *tfd_model_run(const tfd_model_kernel *kernel, unsigned grid,
                          unsigned threads, const void *args, unsigned seed);

#endif
