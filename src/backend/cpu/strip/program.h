#ifndef TFD_BACKEND_CPU_STRIP_PROGRAM_H
#define TFD_BACKEND_CPU_STRIP_PROGRAM_H
/* A compiled program: parts that run one after the other over a tile. A part is
** either steps of the register machine or one eager kernel. Operands are
** numbers of pointers (machine.h). */

#include "backend/cpu/strip/machine.h"

/* Of one op, of each kind. */
enum { TFD_STRIP_ATTRIBUTES = 8 };

/* An eager kernel on tiles. */
typedef struct tfd__strip_call {
  tfd__call call; /* all but its views */
  uint8_t at[TFD_STRIP_ARGS + 1];
  uint8_t dtype[TFD_STRIP_ARGS + 1];
  bool scalar[TFD_STRIP_ARGS]; /* one element */
  int64_t ints[TFD_STRIP_ATTRIBUTES];
  double reals[TFD_STRIP_ATTRIBUTES];
} tfd__strip_call;

typedef struct tfd__strip_part {
  int16_t call;  /* number of a call, or -1: */
  int16_t first; /* step */
} tfd__strip_part;

/* What a thread works in, in bytes: its frame, then splats, slots, tiles of
** inputs, ends of outputs. */
typedef struct tfd__strip_block {
  size_t splat;
  size_t tile;
  size_t end;
  size_t splats_at;
  size_t slots_at;
  size_t tiles_at;
  size_t ends_at;
  size_t all;
} tfd__strip_block;

struct tfd__strip {
  const tfd__strip_machine *machine;
  int inputs_n;
  int outputs_n;
  int literals_n;
  int splats_n;
  int slots_n;
  int parts_n;
  int steps_n;
  int calls_n;
  tfd__strip_input inputs[TFD_STRIP_INPUTS];
  uint8_t output_dtypes[TFD_STRIP_OUTPUTS];
  uint8_t input_sizes[TFD_STRIP_INPUTS]; /* bytes of an element */
  uint8_t output_sizes[TFD_STRIP_OUTPUTS];
  tfd__strip_block block;
  /* When an input is read for the last time and an output written for the
  ** first: steps of all kinds counted in their order; -1 = never. */
  int16_t read[TFD_STRIP_INPUTS];
  int16_t written[TFD_STRIP_OUTPUTS];
  uint64_t literals[TFD_STRIP_LITERALS]; /* the bytes of one element each */
  uint8_t splats[TFD_STRIP_SPLATS];      /* pointers to what they repeat */
  tfd__strip_part *parts;
  tfd__strip_step *steps;
  tfd__strip_call *calls;
};

/* The machine's code for an op on these dtypes, or TFD_CODE_none. */
tfd__strip_code tfd__strip_code_of(tfd__kernel_id kernel, int args_n,
                                   const uint8_t *dtypes, uint8_t result);
/* Of a code's result and its first operand. */
bool tfd__strip_gives_truth(tfd__strip_code code);
bool tfd__strip_takes_truth(tfd__strip_code code);

const char *tfd__strip_name(tfd__kernel_id kernel);
uint8_t tfd__strip_arg_dtype(const tfd__strip_text *text,
                             const tfd__strip_arg *arg);

/* A text whose activations are opened. */
typedef struct tfd__strip_opened {
  tfd__strip_text text; /* of the arrays below */
  tfd__strip_op ops[TFD_STRIP_OPS];
  int16_t outputs[TFD_STRIP_OUTPUTS];
  int16_t was[TFD_STRIP_OPS]; /* op -> that of the text, which it is part of */
  bool leaves[TFD_STRIP_OPS];
  int16_t op; /* in hand */
} tfd__strip_opened;

/* `text` is checked. */
void tfd__strip_open(const tfd__strip_text *text, tfd__strip_opened *opened);

/* Make steps and parts of a checked text. Errors: NotImplemented and the op for
** more literals than there is room for. */
int tfd__strip_lower(tfd__strip *p, const tfd__strip_text *text,
                     int *refused_p);

#endif
