#ifndef TFD_BACKEND_CPU_STRIP_MACHINE_H
#define TFD_BACKEND_CPU_STRIP_MACHINE_H
/* The register machine: it has two registers of four vectors each, a and b. A
** step is a function that does one op on a strip, which is as many elements as
** a register holds, and calls the next step with the registers as arguments.
** Compilers make that a jump, and the platform's calling convention keeps the
** eight vectors where they are. Where a compiler does not (-O0, sanitizers)
** the stack holds the steps of one strip, however long the arrays are: the loop
** over strips is plain C.
**
** Truth values are lanes of all ones or all zeros in registers, bytes of 1 or 0
** in memory. */

#include "backend/cpu/cpu.h"
#include "backend/strip.h"

/* Where operands come from. In the names R is the register that gets the
** result, O the other one, M memory, S one number for all lanes. */
typedef enum tfd__strip_form {
  /* two operands */
  TFD_FORM_RO,
  TFD_FORM_OR,
  TFD_FORM_RR,
  TFD_FORM_RM,
  TFD_FORM_MR,
  TFD_FORM_RS,
  TFD_FORM_SR,
  TFD_FORM_MM,
  TFD_FORM_OM,
  TFD_FORM_MO,
  TFD_FORM_OS,
  TFD_FORM_SO,
  TFD_FORM_MS,
  TFD_FORM_SM,
  TFD_FORMS,
  /* one operand */
  TFD_FORM_R = 0,
  TFD_FORM_O,
  TFD_FORM_M,
  TFD_FORM_S,
  /* three operands; memory may be one strip that stands for all */
  TFD_FORM_RMM = 0,
  TFD_FORM_ROM,
  TFD_FORM_RMO
} tfd__strip_form;

/* Ops of the machine: the lists' and its own. `move` brings a value into a
** register, `store` one from it to memory; _k are truth values. */
typedef enum tfd__strip_code {
  TFD_CODE_none,
#define OWN(name, from, to, expr) TFD_CODE_##name,
#define UNARY(name, from, to, expr) TFD_CODE_##name,
#define BINARY(name, from, to, expr) TFD_CODE_##name,
#define TERNARY(name, from, to, expr) TFD_CODE_##name,
#include "backend/cpu/strip/ops.def"
#undef OWN
#undef UNARY
#undef BINARY
#undef TERNARY
  TFD_CODE_store,
  TFD_CODE_store_k,
  /* the same as the last of the steps */
  TFD_CODE_last,
  TFD_CODE_last_k,
  TFD_CODE_N
} tfd__strip_code;

/* Numbers of pointers, by what they point at. */
enum {
  TFD_AT_INPUT = 0,
  TFD_AT_OUTPUT = TFD_AT_INPUT + TFD_STRIP_INPUTS,
  TFD_AT_LITERAL = TFD_AT_OUTPUT + TFD_STRIP_OUTPUTS,
  TFD_STRIP_LITERALS = 64,
  /* one number, repeated over a strip */
  TFD_AT_SPLAT = TFD_AT_LITERAL + TFD_STRIP_LITERALS,
  TFD_STRIP_SPLATS = TFD_STRIP_INPUTS + TFD_STRIP_LITERALS,
  /* a tile of results between ops */
  TFD_AT_SLOT = TFD_AT_SPLAT + TFD_STRIP_SPLATS,
  TFD_STRIP_SLOTS = TFD_STRIP_OPS,
  TFD_AT_N = TFD_AT_SLOT + TFD_STRIP_SLOTS
};

/* A strip has at most so many elements, a tile so many: whole strips. */
enum { TFD_STRIP_MOST = 64, TFD_STRIP_TILE = 512 };

/* What the steps of a thread work on. */
typedef struct tfd__strip_frame {
  char *at[TFD_AT_N];
} tfd__strip_frame;

/* Its true type has vectors among its arguments. */
typedef void (*tfd__strip_fn)(void);

typedef struct tfd__strip_step {
  tfd__strip_fn fn;
  uint8_t x; /* pointers of operands in memory, in their order */
  uint8_t y;
  int8_t x_moves; /* -1; 0 = one strip for all (of three operands) */
  int8_t y_moves;
} tfd__strip_step;

/* One for each width of vectors. */
typedef struct tfd__strip_machine {
  int lanes; /* of a strip */
  /* By code, form and register of the result. NULL = no such form. */
  tfd__strip_fn fns[TFD_CODE_N][TFD_FORMS][2];
  /* Elements 0 .. n - 1, whole strips. */
  void (*run)(const tfd__strip_step *steps, int64_t n,
              const tfd__strip_frame *frame);
} tfd__strip_machine;

extern const tfd__strip_machine tfd__strip_machine_128;
#if defined(__x86_64__)
extern const tfd__strip_machine tfd__strip_machine_256;
extern const tfd__strip_machine tfd__strip_machine_512;
#endif

#endif
