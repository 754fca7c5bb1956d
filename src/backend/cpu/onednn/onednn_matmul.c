#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/onednn/onednn.h"
#include "backend/cpu/turn.h"

enum { PLAN_MATMUL = 1, PACKED_SIDE = 300, WINDOW_COPY = 1 << 22 };

/* Operands with the result's rank: absent leading axes have size 1. */
typedef struct matmul_spec {
  int dtype;
  int rank;
  int64_t dims[3][TFD_MAX_RANK];
  int64_t strides[3][TFD_MAX_RANK];
} matmul_spec;

static void spread(const tfd__view *v, int rank, int64_t *dims,
                   int64_t *strides) {
  int pad = rank - v->rank;

  for (int i = 0; i < rank; i++) {
    dims[i] = i < pad ? 1 : v->dims[i - pad];
    strides[i] = i < pad ? 1 : v->strides[i - pad];
  }
}

/* oneDNN takes matrices with one direction of stride 1 and positive strides;
** size-1 axes get the stride that suits it. */
static bool suits(int rank, const int64_t *dims, int64_t *strides) {
  int row = rank - 2;
  int col = rank - 1;

  if (dims[col] == 1 && strides[row] != 1) strides[col] = 1;
  if (dims[row] == 1 && strides[col] != 1) strides[row] = 1;
  if (strides[col] != 1 && strides[row] != 1) return false;
  if (dims[row] == 1 && strides[col] == 1) strides[row] = dims[col];
  if (dims[col] == 1 && strides[row] == 1) strides[col] = dims[row];
  if (strides[col] == 1 && strides[row] < dims[col]) return false;
  if (strides[col] != 1 && strides[col] < dims[row]) return false;
  for (int i = 0; i < row; i++) {
    if (dims[i] == 1) strides[i] = dims[row] * dims[col];
    if (strides[i] <= 0) return false;
  }
  return true;
}

/* The library's first choice reads b in place; its packing product is faster
** (1.1 to 2 times) except where packing weighs more than it saves: few
** columns, a second panel of 48 columns that is mostly empty, transposed b
** under few rows, everything in cache anyway. Measured with one thread; packing
** once for several calls would need to know that b did not change. */
static const char *preferred(const matmul_spec *spec) {
  int row = spec->rank - 2;
  int64_t m = spec->dims[2][row];
  int64_t n = spec->dims[2][row + 1];
  int64_t k = spec->dims[0][row + 1];
  bool turned = spec->strides[1][row + 1] != 1;

  if (spec->dtype != TFD_FLOAT32 || n < 48 || (n > 48 && n <= 64) ||
      (turned && m < 1024) || (m <= 256 && n <= 256 && k <= 256))
    return NULL;
  return "gemm";
}

/* A convolution by windows of one element is a product, too. With AVX2 it takes
** 0.7 to 0.8 of the time of the library's product for some 100 rows and 0.9 for
** 50 or 1,000, with a copy of b in the blocks that it wants: where enough rows
** share it, sums are long and columns many. At most WINDOW_COPY elements are
** copied. A copy that was kept makes it 0.5 to 0.9 of that. */
static bool is_window(const matmul_spec *spec) {
  int64_t m = spec->dims[2][0];
  int64_t n = spec->dims[2][1];
  int64_t k = spec->dims[0][1];

  return spec->rank == 2 && spec->dtype == TFD_FLOAT32 && m >= 48 &&
         m <= 2048 && n >= 512 && k >= 512 && n * k <= WINDOW_COPY &&
         n % 8 == 0 && k % 8 == 0 && spec->strides[0][0] == k &&
         spec->strides[0][1] == 1 && spec->strides[1][1] == 1 &&
         spec->strides[2][0] == n && tfd__dnnl_is_avx2();
}

static bool build_window(tfd__dnnl_plan *plan, const matmul_spec *spec) {
  int64_t m = spec->dims[2][0];
  int64_t n = spec->dims[2][1];
  int64_t k = spec->dims[0][1];
  const int64_t dims[3][4] = {{1, k, 1, m}, {n, k, 1, 1}, {1, n, 1, m}};
  const int64_t strides[3][4] = {{m * k, 1, m * k, k},
                                 {1, spec->strides[1][0], 1, 1},
                                 {m * n, 1, m * n, n}};
  dnnl_dims_t ones = {1, 1};
  dnnl_dims_t none = {0, 0};
  dnnl_memory_desc_t any;
  dnnl_memory_desc_t md[3];
  dnnl_convolution_desc_t desc;

  for (int i = 0; i < 3; i++)
    if (!tfd__dnnl_md(&md[i], spec->dtype, 4, dims[i], strides[i]))
      return false;
  if (!tfd__dnnl_md_any(&any, spec->dtype, 4, dims[1]) ||
      dnnl_dilated_convolution_forward_desc_init(
          &desc, dnnl_forward_training, dnnl_convolution_direct, &md[0], &any,
          NULL, &md[2], ones, none, none, none) != dnnl_success)
    return false;
  return tfd__dnnl_add(plan, &desc, NULL,
                       (tfd__dnnl_arg[]){{DNNL_ARG_SRC, 0, false, &md[0]},
                                         {DNNL_ARG_WEIGHTS, 1, false, &md[1]},
                                         {DNNL_ARG_DST, 2, true, &md[2]}},
                       3, "jit_1x1");
}

static bool build(tfd__dnnl_plan *plan, const void *arg) {
  const matmul_spec *spec = arg;
  dnnl_memory_desc_t md[3];
  dnnl_matmul_desc_t desc;

  if (is_window(spec) && build_window(plan, spec)) return true;
  for (int i = 0; i < 3; i++)
    if (!tfd__dnnl_md(&md[i], spec->dtype, spec->rank, spec->dims[i],
                      spec->strides[i]))
      return false;
  if (dnnl_matmul_desc_init(&desc, &md[0], &md[1], NULL, &md[2]) !=
      dnnl_success)
    return false;
  return tfd__dnnl_add(plan, &desc, NULL,
                       (tfd__dnnl_arg[]){{DNNL_ARG_SRC, 0, false, &md[0]},
                                         {DNNL_ARG_WEIGHTS, 1, false, &md[1]},
                                         {DNNL_ARG_DST, 2, true, &md[2]}},
                       3, preferred(spec));
}

#define SHARED_PRODUCT (1 << 20) /* multiply-adds */

static int64_t product_size(const matmul_spec *spec) {
  int64_t n = spec->dims[0][spec->rank - 1];

  for (int i = 0; i < spec->rank; i++) n *= spec->dims[2][i];
  return n;
}

static bool run_plan(const char *name, matmul_spec *spec, void *const *data,
                     tfd__kept_weight *kept, int *rc_p) {
  tfd__dnnl_key key;
  tfd__dnnl_plan *plan = NULL;

  tfd__dnnl_key_start(&key, PLAN_MATMUL);
  tfd__dnnl_key_add(&key, spec->dtype * 16 + spec->rank);
  for (int i = 0; i < 3; i++) {
    if (!suits(spec->rank, spec->dims[i], spec->strides[i])) return false;
    for (int j = 0; j < spec->rank; j++) {
      tfd__dnnl_key_add(&key, spec->dims[i][j]);
      tfd__dnnl_key_add(&key, spec->strides[i][j]);
    }
  }
  plan = tfd__dnnl_plan_for(&key, build, spec, rc_p);
  if (plan == NULL) return *rc_p != TFD_OK;
  *rc_p = tfd__dnnl_run_kept(plan, name, data, kept);
  return true;
}

/* oneDNN compiles the kernels of its packing product when it first runs one, on
** threads where a failure (out of memory) would end the process: here one runs
** alone, beforehand. Cost: a millisecond beside the 60 of the compiler. */
static int compile_packing(const char *name, int dtype) {
  static atomic_bool compiled[TFD_DTYPE_END];
  const size_t bytes = (size_t)PACKED_SIDE * PACKED_SIDE * 4;
  int threads = tfd__threads_get();
  matmul_spec spec = {.dtype = dtype, .rank = 2};
  char *memory = NULL;
  int rc = TFD_OK;

  if (TFD_LIKELY(atomic_load(&compiled[dtype]))) return TFD_OK;
  memory = tfd__calloc(3, bytes);
  if (memory == NULL) return tfd__no_memory(3 * bytes, name);
  for (int i = 0; i < 3; i++) {
    spec.dims[i][0] = spec.dims[i][1] = spec.strides[i][0] = PACKED_SIDE;
    spec.strides[i][1] = 1;
  }
  tfd__threads_set(1);
  (void)run_plan(name, &spec,
                 (void *[]){memory, memory + bytes, memory + 2 * bytes}, NULL,
                 &rc);
  tfd__threads_set(threads);
  tfd__free(memory);
  if (rc == TFD_OK) atomic_store(&compiled[dtype], true);
  return rc;
}

/* --- lines that share the cache's sets ------------------------------------ */

/* With AVX2 the library's product reads operands where they lie when the result
** has few rows or columns. Where an operand's lines along which sums go are a
** multiple of NEAR elements apart, they fall into few sets of the cache: 0.7 of
** the speed, and half of it at multiples of FAR. A copy with lines at another
** distance costs a pass over the operand, which so many products of each of its
** elements are worth. */
enum {
  NEAR = 512,
  NEAR_WORTH = 128,
  FAR = 1024,
  FAR_WORTH = 48,
  SHIFT = 16,
  APART_MOST = 1 << 23 /* elements of a copy */
};

typedef struct copy_job {
  const float *from;
  float *to;
  int64_t from_step;
  int64_t to_step;
  int64_t width;
} copy_job;

static void copy_lines(void *arg, int64_t begin, int64_t end) {
  const copy_job *job = arg;

  for (int64_t i = begin; i < end; i++)
    memcpy(job->to + i * job->to_step, job->from + i * job->from_step,
           (size_t)job->width * sizeof *job->to);
}

/* Is there something to gain from a copy of operand i, whose sums go along
** axis `along`? `products`: of each of its elements. */
static bool collides(const matmul_spec *spec, int i, int along,
                     int64_t products) {
  int64_t step = spec->strides[i][along];

  return spec->strides[i][1 - along] == 1 && spec->dims[i][along] > 1 &&
         step > 0 && step * spec->dims[i][along] <= APART_MOST &&
         ((step % NEAR == 0 && products >= NEAR_WORTH) ||
          (step % FAR == 0 && products >= FAR_WORTH));
}

static int move_apart(matmul_spec *spec, int i, int along, void **data) {
  copy_job job = {.from = *data,
                  .from_step = spec->strides[i][along],
                  .width = spec->dims[i][1 - along]};

  job.to_step = (job.width + NEAR - 1) / NEAR * NEAR + SHIFT;
  job.to = tfd__scratch((size_t)(spec->dims[i][along] * job.to_step) *
                        sizeof(float));
  if (job.to == NULL) return TFD_RESOURCE_EXHAUSTED;
  tfd__parallel_for(spec->dims[i][along], 1 + TFD_GRAIN / job.width, copy_lines,
                    &job);
  spec->strides[i][along] = job.to_step;
  *data = job.to;
  return TFD_OK;
}

static int move_lines_apart(matmul_spec *spec, void **data) {
  double m = (double)spec->dims[2][0];
  double n = (double)spec->dims[2][1];
  bool in_place = 1 / m + 1 / n >= 0.0038; /* the library's rule */

  if (spec->rank != 2 || spec->dtype != TFD_FLOAT32 || !in_place ||
      is_window(spec) || !tfd__dnnl_is_avx2()) {
    return TFD_OK;
  }
  if (collides(spec, 0, 1, spec->dims[2][1]))
    TFD_TRY(move_apart(spec, 0, 1, &data[0]));
  if (collides(spec, 1, 0, spec->dims[2][0]))
    TFD_TRY(move_apart(spec, 1, 0, &data[1]));
  return TFD_OK;
}

/* With AVX-512 it is the packing of a transposed left operand that those lines
** slow down. The product the other way round, c^T = b^T a, packs it as the
** right one: with long sums of a narrow b it takes 0.73 to 0.96 of the time,
** the turn of what it gives included. The number of threads has no say: results
** must not depend on it. */
enum { TURNED_SIDE = 16, TURNED_SUM = 1024, TURNED_MOST = 256 };

static bool is_turned(const matmul_spec *spec) {
  int64_t m = spec->dims[2][0];
  int64_t n = spec->dims[2][1];

  return spec->rank == 2 && spec->dtype == TFD_FLOAT32 &&
         !tfd__dnnl_is_avx2() && spec->strides[0][0] == 1 &&
         spec->strides[0][1] >= FAR && spec->strides[0][1] % FAR == 0 &&
         spec->strides[1][1] == 1 && spec->strides[2][1] == 1 &&
         spec->dims[0][1] >= TURNED_SUM && n >= 64 && n <= TURNED_MOST &&
         n <= m / 2 && m % TURNED_SIDE == 0 && n % TURNED_SIDE == 0;
}

/* Rows of `to` are columns of `from`. */
static void turn(float *to, int64_t to_step, const float *from,
                 int64_t from_step, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i += TURNED_SIDE)
    for (int64_t j = 0; j < columns; j += 4)
      for (int64_t k = i; k < i + TURNED_SIDE; k += 4)
        tfd__turn_4x4(
            (uint32_t *)(void *)(to + k * to_step + j), to_step,
            (const uint32_t *)(const void *)(from + j * from_step + k),
            from_step);
}

static bool run_turned(const char *name, const matmul_spec *spec,
                       void *const *data, int *rc_p) {
  int64_t m = spec->dims[2][0];
  int64_t n = spec->dims[2][1];
  float *c = tfd__scratch((size_t)(m * n) * sizeof *c);
  matmul_spec other = {.dtype = spec->dtype, .rank = 2};

  if (c == NULL) {
    *rc_p = TFD_RESOURCE_EXHAUSTED;
    return true;
  }
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < 2; k++) {
      other.dims[i][k] = spec->dims[1 - i][1 - k];
      other.strides[i][k] = spec->strides[1 - i][1 - k];
    }
  other.dims[2][0] = n;
  other.dims[2][1] = other.strides[2][0] = m;
  other.strides[2][1] = 1;
  if (!run_plan(name, &other, (void *[]){data[1], data[0], c}, NULL, rc_p))
    return false;
  if (*rc_p == TFD_OK) turn(data[2], spec->strides[2][0], c, m, m, n);
  return true;
}

static bool run(const char *name, matmul_spec *spec, void **data,
                tfd__kept_weight *kept, int *rc_p) {
  int threads = tfd__threads_get();
  bool found = false;

  *rc_p = move_lines_apart(spec, data);
  if (*rc_p != TFD_OK) return true;
  if (threads > 1 && product_size(spec) >= SHARED_PRODUCT) {
    *rc_p = compile_packing(name, spec->dtype);
    if (*rc_p != TFD_OK) return true;
  }
  if (is_turned(spec)) return run_turned(name, spec, data, rc_p);
  threads = tfd__dnnl_begin_alone(product_size(spec), SHARED_PRODUCT);
  found = run_plan(name, spec, data, kept, rc_p);
  tfd__dnnl_end_alone(threads);
  return found;
}

static matmul_spec spec_of(const tfd__view *a, const tfd__view *b,
                           const tfd__view *c) {
  const tfd__view *views[3] = {a, b, c};
  matmul_spec spec = {.dtype = c->dtype, .rank = c->rank};

  for (int i = 0; i < 3; i++)
    spread(views[i], spec.rank, spec.dims[i], spec.strides[i]);
  return spec;
}

bool tfd__dnnl_matmul(const char *name, const tfd__view *a, const tfd__view *b,
                      const tfd__view *c, int *rc_p) {
  return tfd__dnnl_matmul_kept(name, a, b, c, NULL, rc_p);
}

bool tfd__dnnl_matmul_kept(const char *name, const tfd__view *a,
                           const tfd__view *b, const tfd__view *c,
                           tfd__kept_weight *kept, int *rc_p) {
  matmul_spec spec = spec_of(a, b, c);
  void *data[3] = {a->data, b->data, c->data};

  return run(name, &spec, data, kept, rc_p);
}

/* Its blocks are of 8 rows and columns, which fill them. */
size_t tfd__dnnl_kept_bytes(const tfd__view *a, const tfd__view *b,
                            const tfd__view *c) {
  matmul_spec spec = spec_of(a, b, c);

  for (int i = 0; i < 3; i++)
    if (!suits(spec.rank, spec.dims[i], spec.strides[i])) return 0;
  if (!is_window(&spec)) return 0;
  return (size_t)(spec.dims[1][0] * spec.dims[1][1]) * sizeof(float);
}

bool tfd__dnnl_gemm(const tfd__gemm_args *g, int *rc_p) {
  matmul_spec spec = {
      g->dtype,
      2,
      {{g->m, g->k}, {g->k, g->n}, {g->m, g->n}},
      {{g->a_row, g->a_col}, {g->b_row, g->b_col}, {g->c_row, 1}}};
  union {
    const void *in;
    void *any;
  } a = {g->a}, b = {g->b};
  void *data[3] = {a.any, b.any, g->c};

  if (g->add || g->m == 0 || g->n == 0 || g->k == 0) return false;
  return run("gemm", &spec, data, NULL, rc_p);
}
