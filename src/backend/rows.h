#ifndef TFD_BACKEND_ROWS_H
#define TFD_BACKEND_ROWS_H
/* L2 backend: kernels that can do a range of rows of their result alone, so
** that an executor may share one op out over cores. Rows are positions along
** axis 0 of output 0. kernels/rows.def lists the kernels and says what of each
** input belongs to a row; no kernel knows of it: a part is a call on views of
** the same memory. May include base, types. Specs: spec/ops/shadow_spec. */

#include "backend/backend.h"

/* What the parts of a call give, put together. */
typedef enum tfd__rows_kind {
  TFD_ROWS_NONE = 0, /* this call has no parts */
  TFD_ROWS_EXACT,    /* the bits of the whole */
  TFD_ROWS_ROUNDED   /* a library may add up in another order: it chooses its
                     ** way by the sizes of the call */
} tfd__rows_kind;

tfd__rows_kind tfd__rows_of(tfd__kernel_id kernel, const tfd__call *call);
/* The part [begin, end) of a call that has parts, into views[in_n + out_n]:
** what call->views would be. */
void tfd__rows_cut(tfd__kernel_id kernel, const tfd__call *call, int64_t begin,
                   int64_t end, tfd__view *views);

#endif
