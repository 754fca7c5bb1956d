#ifndef TFD_BACKEND_CPU_UPDATE_H
#define TFD_BACKEND_CPU_UPDATE_H
/* Private to the CPU back end: one pass over a variable and its slots.
**
** A call's views: the targets (variable, slots) of every copy, copy by copy,
** then the gradients, then indices (absent: dense); its outputs are the
** targets again, each in place or in memory of its own. The public ops have
** one copy and one gradient; strategies pass several of both, and a stretch.
** Invariants:
** U1 Several gradients are added up in order, in float32 for half types, and
**    rounded to the gradients' type before the rule sees them.
** U2 What a copy becomes depends on that copy and the gradients alone; copies
**    whose blocks are equal bit by bit are computed once.
** U3 Half types are computed in float32. */

#include "backend/cpu/loops.h"
#include "backend/update_list.h"

#define TFD_UPDATE_TARGETS 4
#define TFD_UPDATE_BLOCK 1024 /* elements */

/* The rule for n elements in place: x = the targets, g = the gradient. */
typedef void (*tfd__update_fn)(void *const *x, const void *g, int64_t n,
                               const double *reals);

typedef struct tfd__update_rule {
  int targets;
  tfd__update_rest rest;
  tfd__update_fn f32;
  tfd__update_fn f64;
} tfd__update_rule;

/* The rule on elements [begin, begin + n) of these targets of `dtype`, in
** place; g has the type the rule computes in. */
void tfd__update_apply(const tfd__update_rule *rule, int dtype,
                       void *const *targets, int64_t begin, const void *g,
                       int64_t n, const double *reals);

/* Rows that indices name; rows named twice get the sum of their gradients. */
int tfd__update_rows(const tfd__call *call, const tfd__update_rule *rule);

#endif
