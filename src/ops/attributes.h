#ifndef TFD_OPS_ATTRIBUTES_H
#define TFD_OPS_ATTRIBUTES_H
/* The one rule of arguments by name: what an op's schema calls its tensors and
** attributes, what may stand in each, what stands there when nothing is given.
**
** Schemas are read once, before main. Slots are laid out as ops.h says. */

#include "ops/ops.h"

typedef struct tfd__param {
  char name[32];
  char kind;           /* letter of the schema: t n b i d e f l */
  bool list;           /* t*: the one argument is a list of tensors */
  bool required;       /* a tensor without ?, an attribute without default */
  uint8_t slot;        /* first slot in ints (f: in reals) */
  uint8_t limit;       /* b, d, e: slots hold 0 .. limit-1 */
  int8_t low;          /* the least that the first slot may hold, */
  uint8_t span;        /* and how many from there; 0 = anything */
  const char *choices; /* e: "a|b|c)..." */
  int64_t value;       /* default; of a list: its one element */
  int64_t count;       /* default of a list: its length, -1 = absent */
  double real;         /* default of f */
} tfd__param;

/* Fill op->params and the counts of op from its schema; before main. */
void tfd__params_read(tfd__op *op);
/* The tensor or attribute of this name, NULL = there is none. */
const tfd__param *tfd__param_find(const tfd__op *op, const char *name,
                                  size_t length);
/* Position of this very word among the choices of an e; -1 = none. */
int tfd__param_choice(const tfd__param *p, const char *word, size_t length);
/* Whether what stands in the slots of an attribute may stand there.
** Errors: ValueError naming the op and the attribute. */
int tfd__param_check(const tfd__op *op, const tfd__param *p,
                     const int64_t *ints);
/* Slots as the schema's defaults give them; required attributes become 0. */
void tfd__op_defaults(const tfd__op *op, int64_t *ints, double *reals);

#endif
