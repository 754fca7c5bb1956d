#ifndef TFD_BACKEND_STRIP_H
#define TFD_BACKEND_STRIP_H
/* L2 backend: several elementwise ops as one pass over memory, on the
** processor. A program is compiled once, is never changed afterwards, and may
** be run by many threads at a time.
**
** Rules:
** - Every result has the bits that the ops' own kernels would give one after
**   the other (which bits a NaN has aside), whatever the instruction set and
**   however the elements are shared out.
** - Inputs are broadcast against the outputs by NumPy's rule and may have any
**   strides; outputs are dense and of one shape.
** - An output may lie exactly where an input of its shape lies if
**   tfd__strip_in_place says so; other overlaps are errors of the caller.
** - Cost: each array is read and written once. Float32 arithmetic, comparisons
**   and selections pass in registers; other ops (functions of library kind,
**   other dtypes) are the eager kernels over tiles that stay in the first
**   cache. An input that repeats along the last axis, or strides, is copied
**   into a tile.
**
** A stream runs a program as the kernel `strip`: ints[0] is the address of the
** program, which must live until the call has run; rows.h cuts the call.
**
** May include base, types. Specs: spec/c/strip_programs */

#include "backend/backend.h"

enum {
  TFD_STRIP_OPS = 64,
  TFD_STRIP_INPUTS = 16,
  TFD_STRIP_OUTPUTS = 8,
  TFD_STRIP_ARGS = 3
};

typedef enum tfd__strip_from {
  TFD_STRIP_INPUT,  /* `index` of the inputs */
  TFD_STRIP_RESULT, /* of op `index`, an earlier one */
  TFD_STRIP_LITERAL /* `value`, one element of `dtype` */
} tfd__strip_from;

typedef struct tfd__strip_arg {
  uint8_t from;
  uint8_t dtype;
  int16_t index;
  double value;
} tfd__strip_arg;

/* One op: kernel and attributes as in tfd__call. Which dtypes go together was
** checked by inference. */
typedef struct tfd__strip_op {
  tfd__kernel_id kernel;
  uint8_t dtype; /* of the result */
  uint8_t args_n;
  tfd__strip_arg args[TFD_STRIP_ARGS];
  const int64_t *ints;
  const double *reals;
  int16_t ints_n;
  int16_t reals_n;
} tfd__strip_op;

typedef struct tfd__strip_input {
  uint8_t dtype;
  bool scalar; /* one element in every call */
  bool known;  /* the same in all: */
  double value;
} tfd__strip_input;

/* What to compile; nothing of it is kept. */
typedef struct tfd__strip_text {
  const tfd__strip_input *inputs;
  const tfd__strip_op *ops;
  const int16_t *outputs; /* ops whose results leave, each once */
  int inputs_n;
  int ops_n;
  int outputs_n;
  int bits; /* of vectors: 512, 256, 128; 0 = the most there are here */
} tfd__strip_text;

typedef struct tfd__strip tfd__strip;

/* Can an op with these argument dtypes be part of a program? Those that fail
** on element values (integer division and powers) cannot; add_n is as many
** adds. */
bool tfd__strip_takes(tfd__kernel_id kernel, int args_n, const uint8_t *dtypes);

/* Errors: NotImplemented when an op cannot be taken, with its number in
** *refused_p (-1 with other errors), so that the caller may split there;
** InvalidArgument for vectors that are not there, for too many ops, inputs or
** outputs, or numbers that name nothing. */
int tfd__strip_compile(const tfd__strip_text *text, tfd__strip **program_p,
                       int *refused_p);
void tfd__strip_free(tfd__strip *program);

/* May output `output` lie where input `input` does? */
bool tfd__strip_in_place(const tfd__strip *program, int output, int input);

/* Rows begin .. end - 1 along axis 0 of the outputs, on the calling thread and
** those it may use; `views` holds the inputs of the whole, then its outputs. Of
** outputs without axes the one row is 0. */
int tfd__strip_run(const tfd__strip *program, const tfd__view *views,
                   int64_t begin, int64_t end);

/* How a back end makes programs that its kernel `strip` runs. `takes`: can the
** op be in one, besides what tfd__strip_takes asks? The rest is as above; the
** processor's are the functions above. */
typedef struct tfd__fuser {
  bool (*takes)(tfd__kernel_id kernel, int args_n, const uint8_t *dtypes);
  int (*compile)(int ordinal, const tfd__strip_text *text,
                 tfd__strip **program_p, int *refused_p);
  void (*free)(tfd__strip *program);
  bool (*in_place)(const tfd__strip *program, int output, int input);
} tfd__fuser;

extern const tfd__fuser tfd__cpu_fuser;

#endif
