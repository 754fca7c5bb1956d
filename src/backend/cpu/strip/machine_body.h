/* Template: define STRIP_ID(name), STRIP_ISA (target attribute), LANES, and the
** words of ops.def for vectors of LANES floats: the type `vec`, LOAD, STORE,
** LOAD_K, STORE_K, SPLAT, SQRT, MORE_OF, LESS_OF, LESS, UP_TO, SAME, DIFFER,
** PICK, KEEP, MASK, AND, OR, XOR, NOT, NEGATED, MAGNITUDE, and LEAVE, which is
** said before other code runs. */

typedef void STRIP_ID(step_fn)(const tfd__strip_step *step, int64_t at,
                               const tfd__strip_frame *f, vec a0, vec a1,
                               vec a2, vec a3, vec b0, vec b1, vec b2, vec b3);

#define STEP_HEAD(name)                                                   \
  STRIP_ISA static void STRIP_ID(name)(                                   \
      const tfd__strip_step *step, int64_t at, const tfd__strip_frame *f, \
      vec a0, vec a1, vec a2, vec a3, vec b0, vec b1, vec b2, vec b3)
#define FOUR(body, ...) \
  body(0, __VA_ARGS__); \
  body(1, __VA_ARGS__); \
  body(2, __VA_ARGS__); \
  body(3, __VA_ARGS__)

/* `body` for each of a register's vectors, then the next step. */
#define STEP(name, body, ...)                                                  \
  STEP_HEAD(name) {                                                            \
    FOUR(body, __VA_ARGS__);                                                   \
    ((STRIP_ID(step_fn) *)step[1].fn)(step + 1, at, f, a0, a1, a2, a3, b0, b1, \
                                      b2, b3);                                 \
  }

/* Vector i of an operand in memory, and of one that may stand for all. */
#define FLOATS(pointer) ((float *)(void *)f->at[pointer])
#define BYTES(pointer) ((uint8_t *)f->at[pointer])
#define MEMORY_F(i, pointer) LOAD(FLOATS(pointer) + at + i * LANES)
#define MEMORY_K(i, pointer) LOAD_K(BYTES(pointer) + at + i * LANES)
#define ANY_MEMORY(i, pointer) \
  LOAD(FLOATS(pointer) + (at & (int64_t)pointer##_moves) + i * LANES)

/* Vector i of an operand by its letter in a form. */
#define FROM_R(i, mine, other, K, pointer) mine##i
#define FROM_O(i, mine, other, K, pointer) other##i
#define FROM_M(i, mine, other, K, pointer) MEMORY_##K(i, pointer)
#define FROM_S(i, mine, other, K, pointer) SPLAT(*FLOATS(pointer))
#define FROM_A(i, mine, other, K, pointer) ANY_MEMORY(i, pointer)

#define ONE(i, mine, other, K, from, expr)                 \
  do {                                                     \
    const vec x = FROM_##from(i, mine, other, K, step->x); \
    mine##i = expr;                                        \
  } while (0)
#define TWO(i, mine, other, K, from_x, from_y, expr)         \
  do {                                                       \
    const vec x = FROM_##from_x(i, mine, other, K, step->x); \
    const vec y = FROM_##from_y(i, mine, other, K, step->y); \
    mine##i = expr;                                          \
  } while (0)
#define THREE(i, mine, other, from_x, from_y, from_z, expr)  \
  do {                                                       \
    const vec x = FROM_##from_x(i, mine, other, F, 0);       \
    const vec y = FROM_##from_y(i, mine, other, F, step->x); \
    const vec z = FROM_##from_z(i, mine, other, F, step->y); \
    mine##i = expr;                                          \
  } while (0)

/* --- the steps ------------------------------------------------------------ */

#define UNARY_IN(name, mine, other, K, expr)          \
  STEP(name##_R_##mine, ONE, mine, other, K, R, expr) \
  STEP(name##_O_##mine, ONE, mine, other, K, O, expr) \
  STEP(name##_M_##mine, ONE, mine, other, K, M, expr) \
  STEP(name##_S_##mine, ONE, mine, other, K, S, expr)
#define UNARY(name, K, to, expr) \
  UNARY_IN(name, a, b, K, expr)  \
  UNARY_IN(name, b, a, K, expr)

#define BINARY_IN(name, mine, other, K, expr)             \
  STEP(name##_RO_##mine, TWO, mine, other, K, R, O, expr) \
  STEP(name##_OR_##mine, TWO, mine, other, K, O, R, expr) \
  STEP(name##_RR_##mine, TWO, mine, other, K, R, R, expr) \
  STEP(name##_RM_##mine, TWO, mine, other, K, R, M, expr) \
  STEP(name##_MR_##mine, TWO, mine, other, K, M, R, expr) \
  STEP(name##_RS_##mine, TWO, mine, other, K, R, S, expr) \
  STEP(name##_SR_##mine, TWO, mine, other, K, S, R, expr) \
  STEP(name##_MM_##mine, TWO, mine, other, K, M, M, expr) \
  STEP(name##_OM_##mine, TWO, mine, other, K, O, M, expr) \
  STEP(name##_MO_##mine, TWO, mine, other, K, M, O, expr) \
  STEP(name##_OS_##mine, TWO, mine, other, K, O, S, expr) \
  STEP(name##_SO_##mine, TWO, mine, other, K, S, O, expr) \
  STEP(name##_MS_##mine, TWO, mine, other, K, M, S, expr) \
  STEP(name##_SM_##mine, TWO, mine, other, K, S, M, expr)
#define BINARY(name, K, to, expr) \
  BINARY_IN(name, a, b, K, expr)  \
  BINARY_IN(name, b, a, K, expr)

#define TERNARY_IN(name, mine, other, expr)                  \
  STEP(name##_RMM_##mine, THREE, mine, other, R, A, A, expr) \
  STEP(name##_ROM_##mine, THREE, mine, other, R, O, A, expr) \
  STEP(name##_RMO_##mine, THREE, mine, other, R, A, O, expr)
#define TERNARY(name, from, to, expr) \
  TERNARY_IN(name, a, b, expr)        \
  TERNARY_IN(name, b, a, expr)

#define OWN UNARY
#include "backend/cpu/strip/ops.def"

#undef OWN
#undef UNARY
#undef BINARY
#undef TERNARY

/* What a store could change, for all that compilers know, is read before. */
#define PUT(i, put, mine) put(to + i * LANES, mine##i)
#define STORE_STEP(name, type, put, mine)                      \
  STEP_HEAD(name) {                                            \
    STRIP_ID(step_fn) *next = (STRIP_ID(step_fn) *)step[1].fn; \
    type *to = (type *)(void *)f->at[step->x] + at;            \
    FOUR(PUT, put, mine);                                      \
    next(step + 1, at, f, a0, a1, a2, a3, b0, b1, b2, b3);     \
  }
#define LAST_STEP(name, type, put, mine)            \
  STEP_HEAD(name) {                                 \
    type *to = (type *)(void *)f->at[step->x] + at; \
    FOUR(PUT, put, mine);                           \
    (void)a0, (void)a1, (void)a2;                   \
    (void)a3, (void)b0, (void)b1;                   \
    (void)b2, (void)b3;                             \
  }

STORE_STEP(store_a, float, STORE, a)
STORE_STEP(store_b, float, STORE, b)
STORE_STEP(store_k_a, uint8_t, STORE_K, a)
STORE_STEP(store_k_b, uint8_t, STORE_K, b)
LAST_STEP(last_a, float, STORE, a)
LAST_STEP(last_b, float, STORE, b)
LAST_STEP(last_k_a, uint8_t, STORE_K, a)
LAST_STEP(last_k_b, uint8_t, STORE_K, b)

STRIP_ISA static void STRIP_ID(run)(const tfd__strip_step *steps, int64_t n,
                                    const tfd__strip_frame *f) {
  STRIP_ID(step_fn) *first = (STRIP_ID(step_fn) *)steps->fn;
  const vec none = SPLAT(0.0f);

  for (int64_t at = 0; at < n; at += 4 * LANES)
    first(steps, at, f, none, none, none, none, none, none, none, none);
  LEAVE();
}

/* --- the table ------------------------------------------------------------ */

#define FN(name) (tfd__strip_fn) STRIP_ID(name)
#define BOTH(name) \
  { FN(name##_a), FN(name##_b) }
#define UNARY(name, K, to, expr)                      \
  [TFD_CODE_##name] = {[TFD_FORM_R] = BOTH(name##_R), \
                       [TFD_FORM_O] = BOTH(name##_O), \
                       [TFD_FORM_M] = BOTH(name##_M), \
                       [TFD_FORM_S] = BOTH(name##_S)},
#define BINARY(name, K, to, expr)                                       \
  [TFD_CODE_##name] = {                                                 \
      [TFD_FORM_RO] = BOTH(name##_RO), [TFD_FORM_OR] = BOTH(name##_OR), \
      [TFD_FORM_RR] = BOTH(name##_RR), [TFD_FORM_RM] = BOTH(name##_RM), \
      [TFD_FORM_MR] = BOTH(name##_MR), [TFD_FORM_RS] = BOTH(name##_RS), \
      [TFD_FORM_SR] = BOTH(name##_SR), [TFD_FORM_MM] = BOTH(name##_MM), \
      [TFD_FORM_OM] = BOTH(name##_OM), [TFD_FORM_MO] = BOTH(name##_MO), \
      [TFD_FORM_OS] = BOTH(name##_OS), [TFD_FORM_SO] = BOTH(name##_SO), \
      [TFD_FORM_MS] = BOTH(name##_MS), [TFD_FORM_SM] = BOTH(name##_SM)},
#define TERNARY(name, from, to, expr)                     \
  [TFD_CODE_##name] = {[TFD_FORM_RMM] = BOTH(name##_RMM), \
                       [TFD_FORM_ROM] = BOTH(name##_ROM), \
                       [TFD_FORM_RMO] = BOTH(name##_RMO)},

#define OWN UNARY
const tfd__strip_machine STRIP_ID(tfd__strip_machine) = {
    .lanes = 4 * LANES,
    .fns =
        {
#include "backend/cpu/strip/ops.def"
            [TFD_CODE_store] = {BOTH(store)},
            [TFD_CODE_store_k] = {BOTH(store_k)},
            [TFD_CODE_last] = {BOTH(last)},
            [TFD_CODE_last_k] = {BOTH(last_k)},
        },
    .run = STRIP_ID(run),
};
