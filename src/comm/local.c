/* Arithmetic and copies on the devices of this process, by their kernels. */
#include "comm/private.h"

/* --- runs of elements ----------------------------------------------------- */

static void set_run(tfd__view *v, void *data, int dtype, int64_t n) {
  *v = (tfd__view){.data = data,
                   .numel = n,
                   .dtype = (uint8_t)dtype,
                   .rank = 1,
                   .dense = true,
                   .dims = {n},
                   .strides = {1}};
}

tfd__run_of tfd__part_of(const tfd__piece *p, int64_t begin, int64_t n) {
  size_t at = (size_t)begin * tfd__dtype_size(p->view->dtype);
  tfd__run_of r = {.buffer = p->buffer};

  set_run(&r.view, (char *)p->view->data + at, p->view->dtype, n);
  return r;
}

int tfd__run_new(tfd_device *device, int dtype, int64_t n, tfd__run_of *run_p) {
  size_t bytes = 0;

  if (!tfd__mul_size((size_t)n, tfd__dtype_size(dtype), &bytes)) {
    return tfd__no_memory(SIZE_MAX, "collective");
  }
  TFD_TRY(tfd__buffer_new(device, bytes, &run_p->buffer));
  set_run(&run_p->view, run_p->buffer->data, dtype, n);
  return TFD_OK;
}

int tfd__run_copy(const tfd__run_of *to, const tfd__run_of *from) {
  if (to->view.data == from->view.data || to->view.numel == 0) return TFD_OK;
  return tfd__copy_across(to->buffer, &to->view, from->buffer, &from->view);
}

/* --- one kernel ----------------------------------------------------------- */

/* Submit a kernel with n inputs to to's device. */
static int apply(const tfd__collective *c, tfd__kernel_id kernel,
                 const tfd__run_of *in, int n, const tfd__run_of *to) {
  tfd__view views[TFD_MAX_LOCAL_RANKS + 1];
  tfd_device *device = to->buffer->device;
  int64_t ints[1] = {to->view.dtype}; /* what cast has */
  tfd__call call = {.name = c->what,
                    .kernel = device->backend->kernels[kernel],
                    .views = views,
                    .ints = ints,
                    .in_n = (int16_t)n,
                    .out_n = 1,
                    .ints_n = kernel == TFD_KERNEL_cast,
                    .replica = -1,
                    .line = c->line,
                    .file = c->file};
  int i;

  if (call.kernel == NULL) {
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "%s: %s has no kernel for this reduction", c->what,
                     device->short_name);
  }
  for (i = 0; i < n; i++) views[i] = in[i].view;
  views[n] = to->view;
  TFD_TRY(tfd__stream_submit(device, &call));
  tfd__buffer_made(to->buffer, tfd__stream_seq(device));
  return TFD_OK;
}

/* --- reductions on one device --------------------------------------------- */

int tfd__check_reduction(const char *what, tfd_reduce_op op, int dtype) {
  if (tfd__is_float(dtype)) return TFD_OK;
  if (tfd__is_int(dtype) && op != TFD_REDUCE_MEAN) return TFD_OK;
  return tfd__fail(
      TFD_INVALID_ARGUMENT,
      "%s: there is no %s of %s; expected a %s dtype (use tf.cast)", what,
      op == TFD_REDUCE_MEAN ? "mean" : "reduction", tfd__dtype_name(dtype),
      op == TFD_REDUCE_MEAN ? "float" : "number");
}

static bool is_half(int dtype) {
  return dtype == TFD_FLOAT16 || dtype == TFD_BFLOAT16;
}

/* The operation pair by pair: to = ((in0 . in1) . in2) ... */
static int fold(const tfd__collective *c, tfd__kernel_id kernel,
                const tfd__run_of *in, int n, const tfd__run_of *to) {
  tfd__run_of pair[2] = {in[0], in[0]};
  tfd__buffer *owned = NULL;
  int rc = TFD_OK;
  int i;

  for (i = 1; rc == TFD_OK && i < n; i++) {
    tfd__run_of next = *to;

    if (i < n - 1) {
      rc = tfd__run_new(to->buffer->device, to->view.dtype, to->view.numel,
                        &next);
    }
    pair[1] = in[i];
    if (rc == TFD_OK) rc = apply(c, kernel, pair, 2, &next);
    tfd__release(owned);
    owned = i < n - 1 ? next.buffer : NULL;
    pair[0] = next;
  }
  return rc;
}

int tfd__run_cast(const tfd__collective *c, const tfd__run_of *to,
                  const tfd__run_of *from) {
  return apply(c, TFD_KERNEL_cast, from, 1, to);
}

/* to = x / n, n a scalar on the device. */
static int divide(const tfd__collective *c, const tfd__run_of *x, int n,
                  const tfd__run_of *to) {
  tfd__run_of pair[2] = {*x, {0}};
  char cell[8];
  int rc;

  TFD_TRY(tfd__run_new(to->buffer->device, x->view.dtype, 1, &pair[1]));
  tfd__store(cell, x->view.dtype, n);
  rc = tfd__host_write(pair[1].buffer, 0, cell, tfd__dtype_size(x->view.dtype));
  pair[1].view.rank = 0;
  if (rc == TFD_OK) rc = apply(c, TFD_KERNEL_divide, pair, 2, to);
  tfd__release(pair[1].buffer);
  return rc;
}

int tfd__run_divide(const tfd__collective *c, const tfd__run_of *to, int n) {
  return divide(c, to, n, to);
}

static int add_up(const tfd__collective *c, const tfd__run_of *in, int n,
                  const tfd__run_of *to) {
  tfd__run_of sum = *to;
  int rc;

  if (c->op != TFD_REDUCE_MEAN) return apply(c, TFD_KERNEL_add_n, in, n, to);
  TFD_TRY(
      tfd__run_new(to->buffer->device, to->view.dtype, to->view.numel, &sum));
  rc = apply(c, TFD_KERNEL_add_n, in, n, &sum);
  if (rc == TFD_OK) rc = divide(c, &sum, n, to);
  tfd__release(sum.buffer);
  return rc;
}

static int reduce_alike(const tfd__collective *c, const tfd__run_of *in, int n,
                        const tfd__run_of *to) {
  switch (c->op) {
  case TFD_REDUCE_MIN:
    return fold(c, TFD_KERNEL_minimum, in, n, to);
  case TFD_REDUCE_MAX:
    return fold(c, TFD_KERNEL_maximum, in, n, to);
  case TFD_REDUCE_PROD:
    return fold(c, TFD_KERNEL_multiply, in, n, to);
  default:
    return add_up(c, in, n, to);
  }
}

static void release_runs(tfd__run_of *runs, int n) {
  while (n > 0) tfd__release(runs[--n].buffer);
}

/* Half types lose too much when sums of sums are rounded. */
static int reduce_wide(const tfd__collective *c, const tfd__run_of *in, int n,
                       const tfd__run_of *to) {
  tfd__run_of wide[TFD_MAX_LOCAL_RANKS + 1] = {{0}};
  tfd_device *device = to->buffer->device;
  int rc = TFD_OK;
  int k;

  for (k = 0; rc == TFD_OK && k <= n; k++) {
    rc = tfd__run_new(device, TFD_FLOAT32, to->view.numel, &wide[k]);
    if (rc == TFD_OK && k < n) {
      rc = tfd__run_cast(c, &wide[k], &in[k]);
    }
  }
  if (rc == TFD_OK) rc = reduce_alike(c, wide, n, &wide[n]);
  if (rc == TFD_OK) rc = tfd__run_cast(c, to, &wide[n]);
  release_runs(wide, k);
  return rc;
}

/* All on one device, `to` apart from the inputs. */
static int reduce_here(const tfd__collective *c, const tfd__run_of *in, int n,
                       const tfd__run_of *to) {
  if (n == 1) return tfd__run_copy(to, &in[0]);
  if (is_half(to->view.dtype)) return reduce_wide(c, in, n, to);
  return reduce_alike(c, in, n, to);
}

int tfd__reduce_runs(const tfd__collective *c, const tfd__run_of *in, int n,
                     const tfd__run_of *to) {
  tfd__run_of here[TFD_MAX_LOCAL_RANKS] = {{0}};
  tfd__run_of moved[TFD_MAX_LOCAL_RANKS + 1] = {{0}};
  tfd_device *device = to->buffer->device;
  int64_t numel = to->view.numel;
  bool aliased = false;
  int moved_n = 0;
  int rc = TFD_OK;
  int i;

  if (numel == 0) return TFD_OK;
  for (i = 0; rc == TFD_OK && i < n; i++) {
    here[i] = in[i];
    aliased = aliased || in[i].buffer == to->buffer;
    if (in[i].buffer->device == device) continue;
    rc = tfd__run_new(device, to->view.dtype, numel, &moved[moved_n]);
    if (rc != TFD_OK) break;
    here[i] = moved[moved_n++];
    rc = tfd__run_copy(&here[i], &in[i]);
  }
  if (rc == TFD_OK && aliased) {
    rc = tfd__run_new(device, to->view.dtype, numel, &moved[moved_n]);
    if (rc == TFD_OK) rc = reduce_here(c, here, n, &moved[moved_n++]);
    if (rc == TFD_OK) rc = tfd__run_copy(to, &moved[moved_n - 1]);
  } else if (rc == TFD_OK) {
    rc = reduce_here(c, here, n, to);
  }
  release_runs(moved, moved_n);
  return rc;
}

/* --- sums on this thread -------------------------------------------------- */

tfd__kernel tfd__sum_kernel(const tfd__group *g, tfd_reduce_op op, int dtype) {
  const tfd__backend *b = g->devices[0]->backend;
  bool adds =
      op <= TFD_REDUCE_MEAN &&
      (tfd__is_float(dtype) || dtype == TFD_INT32 || dtype == TFD_INT64);

  return adds && !b->asynchronous ? b->kernels[TFD_KERNEL_sum_parts] : NULL;
}

int tfd__sum_now(tfd__kernel kernel, const tfd__collective *c,
                 const tfd__run_of *in, int n, const tfd__run_of *to,
                 char *const *twins, int twins_n) {
  tfd__view views[2 * TFD_MAX_LOCAL_RANKS + 1];
  int64_t ints[3] = {c->op == TFD_REDUCE_MEAN, 0, to->view.numel};
  tfd__call call = {.name = c->what,
                    .views = views,
                    .ints = ints,
                    .ints_n = 3,
                    .in_n = (int16_t)n,
                    .out_n = (int16_t)(1 + twins_n),
                    .replica = -1};
  int i;

  for (i = 0; i < n; i++) views[i] = in[i].view;
  views[n] = to->view;
  for (i = 0; i < twins_n; i++) {
    views[n + 1 + i] = to->view;
    views[n + 1 + i].data = twins[i];
  }
  return kernel(&call);
}
