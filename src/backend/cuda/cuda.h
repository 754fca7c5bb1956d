#ifndef TFD_BACKEND_CUDA_H
#define TFD_BACKEND_CUDA_H
/* Private to the CUDA back end, a plug-in: NVIDIA GPUs through the driver API
** alone. libcuda, cuBLASLt and cuDNN are opened when first needed, so the
** plug-in loads anywhere and says what is missing.
**
** Files: library (finding them), driver (libcuda as a table), plugin (entry,
** devices, memory), stream (order, positions, copies), refuse (values that
** kernels cannot take), record (launches as CUDA graphs), launch (modules and
** kernels), then the host side of kernels by family, fuse.h for those that are
** made at run time; kernels/ is device code.
** May include base, types, backend. Threads: any; each stream has a lock. */

#include <cuda.h>

#include "backend/cuda/kernels/args.h"
#include "backend/cuda/native.h"

enum { TFD_CUDA_DEVICES = 64 };

/* Keep what the library lends; see backend/plugin.h. */
struct tfd__plugin_host;
int tfd__cuda_attach(const struct tfd__plugin_host *table);

/* --- libcuda -------------------------------------------------------------- */

extern tfd__driver tfd__cu;

/* Open libcuda and find its functions. Errors: Unavailable with the reason. */
int tfd__cuda_open(void);
/* TFD_OK, or the failure of `what` (a GPU's name, or done on the one that was
** chosen): ResourceExhausted for memory, else Internal with CUDA's own name and
** text. */
int tfd__cuda_check(CUresult result, const char *what);
/* The same where nothing of the process works on the device any more, whatever
** the failure is. */
int tfd__cuda_lost(CUresult result, const char *what);

/* --- devices -------------------------------------------------------------- */

typedef struct tfd__gpu {
  CUdevice device;
  CUcontext context;
  char model[128];
  size_t memory;
  int processors;
  int capability; /* 90 for compute capability 9.0 */
} tfd__gpu;

/* Make device `ordinal`'s context the calling thread's. */
CUresult tfd__cuda_choose(int ordinal);
/* The one that the calling thread chose last, also where that failed, and 1;
** 0 = none yet. */
extern _Thread_local int tfd__cuda_chosen;
int tfd__cuda_use(int ordinal);
const tfd__gpu *tfd__cuda_gpu(int ordinal);
/* How often memory of the device went back to the driver. */
uint64_t tfd__cuda_freed(int ordinal);

/* --- streams -------------------------------------------------------------- */

int tfd__cuda_stream_new(const tfd__stream_config *config,
                         tfd__stream **stream_p);
void tfd__cuda_stream_free(tfd__stream *stream);
int tfd__cuda_submit(tfd__stream *stream, const tfd__work *work,
                     uint64_t *seq_p);
int tfd__cuda_after(tfd__stream *stream, tfd__stream *on, uint64_t on_seq,
                    const tfd__work *work, uint64_t *seq_p);
void tfd__cuda_wait(tfd__stream *stream, uint64_t seq, tfd__deadline until);
uint64_t tfd__cuda_poll(tfd__stream *stream);
int tfd__cuda_failed(tfd__stream *stream, uint64_t *seq_p);
int tfd__cuda_copy_in(tfd__stream *stream, void *to, const void *host_from,
                      size_t bytes);
int tfd__cuda_copy_out(tfd__stream *stream, void *host_to, const void *from,
                       size_t bytes);
int tfd__cuda_copy_across(tfd__stream *stream, void *to, int from_ordinal,
                          const void *from, size_t bytes);

const void *tfd__cuda_native_of(tfd__stream *stream);

/* The three below are for kernels, inside submit. */
CUstream tfd__cuda_stream(const tfd__call *call);
int tfd__cuda_ordinal(const tfd__call *call);
/* Memory of the device until what the kernel launches has run. */
int tfd__cuda_scratch(const tfd__call *call, size_t bytes, void **data_p);
/* A kernel has launched all: its scratch memory goes when that has run. */
void tfd__cuda_free_scratch(tfd__stream *stream);

/* Memory that stays with the stream, for libraries; at least `bytes`. */
int tfd__cuda_workspace(const tfd__call *call, size_t bytes, void **data_p);

/* Where a kernel notes the first element whose value it cannot take:
** position << 32 | the value's low half, kept by atomic minimum. The message
** names element and value of `argument`, whose values are to be in [0, bound);
** that of "labels" speaks of classes. */
int tfd__cuda_error_word(const tfd__call *call, const char *argument,
                         const tfd__view *values, int64_t bound,
                         uint64_t **word_p);
/* The same for indices that are coordinates of `depth` values within `bounds`,
** or (rising) numbers that must not fall. *refused_p: where a kernel puts the
** coordinates noted, or the number and the one before it. `say`: raises the
** error of the op `name` for what was noted; NULL: as above. */
typedef struct tfd__cuda_refusal {
  const char *argument;
  const tfd__view *values;
  int64_t bounds[TFD_MAX_RANK];
  int depth;
  bool rising;
  int (*say)(const char *name, int64_t at, int64_t value);
} tfd__cuda_refusal;
int tfd__cuda_error_words(const tfd__call *call, const tfd__cuda_refusal *what,
                          uint64_t **word_p, int64_t **refused_p);

/* What a kernel looks at before it writes where values show: NULL, or its
** `stop`. Before a word is asked for. */
int tfd__cuda_stop(const tfd__call *call, const uint64_t **stop_p);

/* --- kernels -------------------------------------------------------------- */

/* A kernel in the fat binary `module`; found on each device when first used. */
typedef struct tfd__cuda_kernel {
  const char *module;
  const char *name;
  CUfunction function[TFD_CUDA_DEVICES];
} tfd__cuda_kernel;

typedef tfd__cuda_kernel tfd__cuda_kernels[TFD_DTYPE_END];

/* One entry for each dtype; `f` is the kernels' common beginning. */
#define TFD_CUDA_FLOATS(m, f)                                             \
  [TFD_FLOAT32] = {m, f "_f32", {0}}, [TFD_FLOAT64] = {m, f "_f64", {0}}, \
  [TFD_FLOAT16] = {m, f "_f16", {0}}, [TFD_BFLOAT16] = {m, f "_bf16", {0}}
#define TFD_CUDA_INTS(m, f)                                           \
  [TFD_INT8] = {m, f "_i8", {0}}, [TFD_INT16] = {m, f "_i16", {0}},   \
  [TFD_INT32] = {m, f "_i32", {0}}, [TFD_INT64] = {m, f "_i64", {0}}, \
  [TFD_UINT8] = {m, f "_u8", {0}}

/* Find it on the device, unless it was. */
int tfd__cuda_find(tfd__cuda_kernel *kernel, int ordinal, size_t bytes);
/* What tfd__cuda_launch does with a kernel that was found. */
int tfd__cuda_launch_function(const tfd__call *call, CUfunction function,
                              int64_t blocks, const void *args);
/* Is a structure of these many bytes what the kernel takes? */
int tfd__cuda_check_size(const char *name, CUfunction function, size_t bytes);
/* Launch blocks of TFD_CU_THREADS threads; one argument, by value.
** Errors: NotImplemented for a kernel without name (no such dtype). */
int tfd__cuda_launch(const tfd__call *call, tfd__cuda_kernel *kernel,
                     int64_t blocks, const void *args, size_t bytes);
/* Blocks that give each of n pieces a thread, at most a few waves. */
int64_t tfd__cuda_blocks(const tfd__call *call, int64_t n);

/* Where elementwise kernels find the elements of inputs that are broadcast
** against the outputs, which are of one shape. Runs in order are one axis; rank
** 0 = what is left is dense or one element for all (bit k of `scalar`: that is
** input k), `vector`: and begins at 16 bytes. */
typedef struct tfd__cuda_places {
  int32_t rank;
  int32_t scalar;
  int32_t vector;
  int64_t dims[TFD_CU_RANK];
  int64_t strides[TFD_CU_FUSED_INS + 1][TFD_CU_RANK];
} tfd__cuda_places;
void tfd__cuda_place(const tfd__call *call, int ins, tfd__cuda_places *at);

extern const tfd__kernel tfd__cuda_kernels_table[TFD_KERNEL_N];
bool tfd__cuda_can_run(tfd__kernel_id id, const tfd__call *call);

#define KERNEL(name) int tfd__cuda_##name(const tfd__call *call);
#include "backend/kernels/all.def"
#undef KERNEL

/* Kernels of several ops. */
struct tfd__fuser;
extern const struct tfd__fuser tfd__cuda_fuser;
/* Products with what follows them (blas.c). */
extern const tfd__finisher tfd__cuda_finisher;
/* Launches that come again (record.c). */
struct tfd__launcher;
extern const struct tfd__launcher tfd__cuda_launcher;

/* Do the libraries take the call? Outside launches. */
bool tfd__cuda_has_product(const tfd__call *call);
bool tfd__cuda_has_conv(const tfd__call *call);
bool tfd__cuda_has_conv_input(const tfd__call *call);
bool tfd__cuda_has_conv_filter(const tfd__call *call);
/* Dense copy of a strided view into scratch memory, or the view itself. */
int tfd__cuda_dense(const tfd__call *call, const tfd__view *from,
                    tfd__view *to);
/* `from` into the dense `to`, `before` positions from each axis's beginning;
** the rest gets `value`. */
int tfd__cuda_pad_into(const tfd__call *call, const tfd__view *from,
                       const tfd__view *to, const int64_t *before,
                       double value);
/* Elements of `from` to `to`, any strides on both sides. */
int tfd__cuda_lay(const tfd__call *call, const tfd__view *to,
                  const tfd__view *from);
/* All elements of the dense `to` become `value`. */
int tfd__cuda_fill_with(const tfd__call *call, const tfd__view *to,
                        double value);
/* Pooling, and its gradients, by kernels of our own: any geometry whose
** positions fit 32 bits; op: of tfd_cu_pool. */
int tfd__cuda_windows(const tfd__call *call, int op);
int tfd__cuda_windows_grad(const tfd__call *call, int op);
/* float32 products may round their inputs to TF32, as in TensorFlow. */
bool tfd__cuda_tf32(void);
/* Of a structure filled from zeros: where its plan is kept. */
uint64_t tfd__cuda_hash(const void *data, size_t bytes);
/* Rows of keys (uint32 or uint64) that are sorted with their positions, in
** scratch memory. The caller fills keys and order (0, 1, 2 ... in each row). */
typedef struct tfd__cuda_sorting {
  void *keys;
  uint32_t *order;
  void *spare_keys;
  uint32_t *spare_order;
  uint32_t *counts;
  int64_t rows;
  int64_t width; /* of a row */
  int64_t tiles;
  size_t key; /* bytes of one */
} tfd__cuda_sorting;
int tfd__cuda_sorting_new(const tfd__call *call, int64_t rows, int64_t width,
                          size_t key, tfd__cuda_sorting *o);
/* How many bits numbers 0 .. most have. */
static inline int tfd__cuda_bits(int64_t most) {
  int bits = 0;

  while (most >> bits > 0) bits++;
  return bits;
}
/* By bits [first, bits) of the keys; the others are all alike. Stable. */
int tfd__cuda_sort(const tfd__call *call, tfd__cuda_sorting *o, int first,
                   int bits);
/* Rows of `params` to output 0, as dense int32 numbers say, all of them good.
 */
int tfd__cuda_take_rows(const tfd__call *call, const tfd__view *params,
                        const int32_t *numbers, int64_t n);
/* An optimizer's step whose gradient has rows. rule: TFD_CU_RULE_...; rest: of
** backend/update_list.h. */
int tfd__cuda_update_rows(const tfd__call *call, int rule, int targets,
                          int rest);
/* Elements of `from` into dense memory, any strides. */
int tfd__cuda_move(const tfd__call *call, const tfd__view *from, void *to);

#endif
