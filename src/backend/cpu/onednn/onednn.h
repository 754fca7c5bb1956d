#ifndef TFD_BACKEND_CPU_ONEDNN_H
#define TFD_BACKEND_CPU_ONEDNN_H
/* oneDNN below the CPU kernels: which calls it takes, and its plan cache.
**
** A kernel asks tfd__dnnl_<kernel>(call, &rc): true = oneDNN ran it, rc says
** how it went; false = not its business, the kernel's own loops follow.
**
** Making a primitive costs 0.1 to 1 ms, finding it in the library's cache
** 1 us; a plan found in our table costs some 20 ns. Tables belong to threads,
** because a plan's memory objects serve one execution at a time; the compiled
** code behind them is shared by the library. A thread keeps at most
** TFD_DNNL_PLANS plans, the least recently used ones go first. */

#include "backend/cpu/linalg/gemm.h"
#include "backend/window.h"

#include <oneapi/dnnl/dnnl.h>

#define TFD_DNNL_PLANS 512
#define TFD_DNNL_KEY 48
#define TFD_DNNL_MEMORIES 32
#define TFD_DNNL_STEPS 16

/* What a plan depends on. Equal keys, equal plans. */
typedef struct tfd__dnnl_key {
  uint64_t hash;
  int n;
  int64_t v[TFD_DNNL_KEY];
} tfd__dnnl_key;

/* For work of so many multiply-adds, where more than `shared` are worth handing
** to other threads: less is done before they have woken up, or waits for them
** where cores are shared. Alone until the end; begin returns what end takes. */
int tfd__dnnl_begin_alone(int64_t work, int64_t shared);
void tfd__dnnl_end_alone(int threads);

/* Start a key with the kind of plan and the calling thread's core count. */
void tfd__dnnl_key_start(tfd__dnnl_key *key, int64_t kind);
static inline void tfd__dnnl_key_add(tfd__dnnl_key *key, int64_t value) {
  if (key->n < TFD_DNNL_KEY) key->v[key->n] = value;
  key->n++; /* a key that is too long matches nothing and is not kept */
  key->hash = (key->hash ^ (uint64_t)value) * 0x9e3779b97f4a7c15u;
  key->hash ^= key->hash >> 29;
}
void tfd__dnnl_key_view(tfd__dnnl_key *key, const tfd__view *v);

/* A small program: reorders and primitives over memories that come from the
** caller (by number) or lie in one scratch block. */
typedef struct tfd__dnnl_plan tfd__dnnl_plan;

/* One operand of a primitive, as the caller holds it. */
typedef struct tfd__dnnl_arg {
  int exec;     /* DNNL_ARG_... */
  int external; /* index into the pointers given to tfd__dnnl_run */
  bool output;
  const dnnl_memory_desc_t *md; /* NULL: as the primitive wants it */
} tfd__dnnl_arg;

/* The plan for `key`, built by `build` when it is not in the table. NULL and
** TFD_OK when oneDNN has nothing better than its reference loops for it: that
** verdict is kept too; NULL and ResourceExhausted for want of memory. build
** returns false to give up. */
tfd__dnnl_plan *tfd__dnnl_plan_for(const tfd__dnnl_key *key,
                                   bool (*build)(tfd__dnnl_plan *plan,
                                                 const void *arg),
                                   const void *arg, int *rc_p);

/* For builders: append a primitive, with reorders where its layouts differ
** from the caller's. Failing half-way empties the plan. `hint` is the forward
** description of a backward one. `prefer`: part of an implementation's name
** to take when the library has it, else its first choice; NULL = no wish.
** Implementations named "ref" are refused unless `prefer` is "ref" (recurrent
** cells, which are fast under that name). */
bool tfd__dnnl_add(tfd__dnnl_plan *plan, const_dnnl_op_desc_t desc,
                   const_dnnl_primitive_desc_t hint, const tfd__dnnl_arg *args,
                   int args_n, const char *prefer);

/* Make a description with scratch memory in our hands; NULL on failure. */
dnnl_primitive_desc_t tfd__dnnl_describe(const_dnnl_op_desc_t desc,
                                         const_dnnl_primitive_desc_t hint);

/* Bytes the plan's external memory `external` occupies. */
size_t tfd__dnnl_external_bytes(const tfd__dnnl_plan *plan, int external);

/* Run with the caller's pointers. Errors: Internal, ResourceExhausted. */
int tfd__dnnl_run(tfd__dnnl_plan *plan, const char *name,
                  void *const *externals);
/* The same, with the weight that is reordered first in `kept` where it fits
** (NULL = nowhere): it is not reordered where it lies there already. */
int tfd__dnnl_run_kept(tfd__dnnl_plan *plan, const char *name,
                       void *const *externals, tfd__kept_weight *kept);

/* A memory description by dims and strides in elements, of float32 or
** bfloat16; false on failure. */
bool tfd__dnnl_md(dnnl_memory_desc_t *md, int dtype, int rank,
                  const int64_t *dims, const int64_t *strides);
/* The same dims, layout left to the primitive. */
bool tfd__dnnl_md_any(dnnl_memory_desc_t *md, int dtype, int rank,
                      const int64_t *dims);

/* True for float32, and for bfloat16 where the processor multiplies it: by
** emulation it is slower than a way through float32. */
bool tfd__dnnl_takes(int dtype);

/* Is AVX2 the best that the library uses? */
bool tfd__dnnl_is_avx2(void);

/* Plans now in the calling thread's table. */
int tfd__dnnl_plans(void);

/* --- calls it takes ------------------------------------------------------- */

bool tfd__dnnl_gemm(const tfd__gemm_args *g, int *rc_p);
bool tfd__dnnl_matmul(const char *name, const tfd__view *a, const tfd__view *b,
                      const tfd__view *c, int *rc_p);
/* The same with b kept, the same bits; and how many bytes that takes, 0 where b
** is read as it lies. */
bool tfd__dnnl_matmul_kept(const char *name, const tfd__view *a,
                           const tfd__view *b, const tfd__view *c,
                           tfd__kept_weight *kept, int *rc_p);
size_t tfd__dnnl_kept_bytes(const tfd__view *a, const tfd__view *b,
                            const tfd__view *c);

/* Which of x, filter and y is computed from the other two. */
typedef enum tfd__dnnl_conv {
  TFD_DNNL_CONV_FORWARD,
  TFD_DNNL_CONV_INPUT,
  TFD_DNNL_CONV_FILTER
} tfd__dnnl_conv;
bool tfd__dnnl_convolve(const char *name, tfd__dnnl_conv kind, int dtype,
                        const tfd__window *w, void *x, void *filter, void *y,
                        int *rc_p);

#endif
