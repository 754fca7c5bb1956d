#include "backend/rows.h"

/* Which calls of a kernel have parts. */
typedef enum rows_when {
  NEVER = 0,
  ALWAYS,
  BEHIND, /* the result is no single row of its last axis */
  KEPT,   /* the axes listed first do not hold the rows' axis */
  ALONG,  /* the axis in slot 0 is not the rows' */
  PRODUCT,
  TAKEN /* gather along axis 0 */
} rows_when;

/* Bit i: input i has the rows along its axis 0; a first input in other shapes
** never has. SPREAD: those inputs have them that do not repeat along it. */
enum { SPREAD = 0 };

typedef struct rows_rule {
  uint8_t when;
  uint8_t kind;
  uint16_t inputs;
} rows_rule;

static const rows_rule rules[TFD_KERNEL_N] = {
#define ROWS(kernel, inputs, when, kind) \
  [TFD_KERNEL_##kernel] = {when, TFD_ROWS_##kind, inputs},
#include "backend/kernels/rows.def"
#undef ROWS
};

static int64_t from_start(int64_t axis, const tfd__view *v) {
  return axis < 0 ? axis + v->rank : axis;
}

static bool keeps_rows(const tfd__call *c) {
  int64_t i;

  if (c->ints[0] < 0) return false;
  for (i = 0; i < c->ints[0]; i++) {
    if (from_start(c->ints[1 + i], tfd__in(c, 0)) == 0) return false;
  }
  return true;
}

/* ints: validate_indices, the list of axes, batch_dims. */
static bool takes_rows(const tfd__call *c) {
  const tfd__view *params = tfd__in(c, 0);
  int64_t axis = c->ints[1] < 1 ? 0 : from_start(c->ints[2], params);

  return axis == 0 && c->ints[1 + 1 + TFD_MAX_RANK] == 0 &&
         tfd__in(c, 1)->rank > 0;
}

tfd__rows_kind tfd__rows_of(tfd__kernel_id kernel, const tfd__call *c) {
  const rows_rule *r = &rules[kernel];
  bool has = r->when != NEVER && tfd__out(c, 0)->rank > 0;

  switch (has ? r->when : NEVER) {
  case NEVER:
    return TFD_ROWS_NONE;
  case BEHIND:
    has = tfd__out(c, 0)->rank > 1;
    break;
  case KEPT:
    has = keeps_rows(c);
    break;
  case ALONG:
    has = from_start(c->ints[0], tfd__in(c, 0)) != 0;
    break;
  case TAKEN:
    has = takes_rows(c);
    break;
  default:
    break;
  }
  return has ? (tfd__rows_kind)r->kind : TFD_ROWS_NONE;
}

static void cut(tfd__view *v, int axis, int64_t begin, int64_t end) {
  int64_t offset = begin * v->strides[axis];

  v->data = (char *)v->data + offset * (int64_t)tfd__dtype_size(v->dtype);
  v->dims[axis] = end - begin;
  tfd__view_refresh(v);
}

/* The axis along which input i has the rows, -1 if it belongs to all. */
static int rows_axis(const rows_rule *r, const tfd__call *c, int i) {
  const tfd__view *v = tfd__in(c, i);
  const tfd__view *out = tfd__out(c, 0);

  if (v->dtype == 0) return -1;
  if (r->when == PRODUCT && out->rank == 2) {
    /* transpose_a or adjoint_a */
    return i > 0 ? -1 : c->ints[0] != 0 || c->ints[2] != 0;
  }
  if (r->inputs != SPREAD) return (r->inputs >> i & 1) != 0 ? 0 : -1;
  return v->rank == out->rank && v->dims[0] == out->dims[0] ? 0 : -1;
}

void tfd__rows_cut(tfd__kernel_id kernel, const tfd__call *c, int64_t begin,
                   int64_t end, tfd__view *views) {
  const rows_rule *r = &rules[kernel];
  int i;

  for (i = 0; i < c->in_n + c->out_n; i++) {
    int axis = i < c->in_n ? rows_axis(r, c, i) : 0;

    views[i] = c->views[i];
    if (axis >= 0) cut(&views[i], axis, begin, end);
  }
}
