#ifndef TFD_DIST_PARTS_H
#define TFD_DIST_PARTS_H
/* What parts.c and parts_move.c share; nobody else includes it. */

#include "distribute/distribute.h"

enum { TFD_PART_PACKS = 4 }; /* a dtype each: those that optimizers know */

/* Elements [begin, end). */
typedef struct tfd__range {
  int64_t begin;
  int64_t end;
} tfd__range;

/* A run of elements of one buffer. */
typedef struct tfd__extent {
  tfd__buffer *buffer;
  tfd__view view;
} tfd__extent;

/* Values of one dtype that go behind one another, for each replica here. */
typedef struct tfd__part_pack {
  int dtype;
  int64_t total;                     /* elements of all ranks' parts */
  int64_t most;                      /* of the longest part */
  tfd__extent in[TFD_MAX_REPLICAS];  /* owned */
  tfd__extent out[TFD_MAX_REPLICAS]; /* owned */
} tfd__part_pack;

typedef struct tfd__parts_job {
  tfd_strategy *strategy;
  const tfd__op *op;
  tfd_variable *const *targets; /* variable-major, then copy, then slot */
  tfd_object *const *grads;     /* variable-major, n each */
  const double *reals;
  bool summed; /* gradients are complete; slices hold a part's rows */
  int variables;
  int n;              /* replicas here */
  int size;           /* in all */
  int slots;          /* targets of one copy */
  void *block;        /* where the lists lie: */
  tfd__range *parts;  /* of variable k and rank r: k * size + r */
  int64_t *at;        /* where that part lies in its rank's part of the pack */
  int64_t *lengths;   /* of rank r's part of pack p: p * size + r */
  int64_t *counts;    /* as collectives have them */
  tfd__extent *sums;  /* k * n + i: the part's gradient */
  tfd__buffer **out;  /* owned: the copies' memory, filled part by part */
  tfd_tensor **moved; /* owned: gradients that were brought to their place */
  int *pack_of;       /* -1 = goes by itself */
  tfd__part_pack packs[TFD_PART_PACKS];
  int packs_n;
  tfd_value *whole; /* owned: sums that were made as a whole */
  tfd__piece *in;   /* of a collective */
  tfd__piece *to;
  tfd__view *views; /* of these pieces */
  int pieces;
  int values;
} tfd__parts_job;

/* --- parts ---------------------------------------------------------------- */

static inline tfd_variable *tfd__copy_of(const tfd__parts_job *j, int k,
                                         int i) {
  return j->targets[((ptrdiff_t)k * j->n + i) * j->slots];
}

static inline const tfd__view *tfd__whole_view(const tfd__parts_job *j, int k) {
  return &tfd__copy_of(j, k, 0)->value->view;
}

/* Elements of variable k that rank r updates. */
static inline tfd__range tfd__part(const tfd__parts_job *j, int k, int r) {
  return j->parts[(ptrdiff_t)k * j->size + r];
}

/* Elements [begin, end) of what v shows of b. */
tfd__extent tfd__extent_of(tfd__buffer *b, const tfd__view *v, int64_t begin,
                           int64_t end);
void tfd__extent_end(tfd__extent *w);

/* --- moving (parts_move.c) ------------------------------------------------ */

/* j->sums from j->moved. */
int tfd__parts_add_up(tfd__parts_job *j);
/* All ranks' parts into j->out, where each rank's own are. */
int tfd__parts_gather(tfd__parts_job *j);
void tfd__parts_drop_packs(tfd__parts_job *j);

#endif
