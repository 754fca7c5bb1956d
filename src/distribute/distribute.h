#ifndef TFD_DIST_DIST_H
#define TFD_DIST_DIST_H
/* L6 dist: strategies, distributed values and variables, replica runs.
**
** A strategy places variables on devices and combines what replicas computed;
** a run hands out turns to the replicas of one function call. Nothing here
** calls the host: a run is pulled forward by whoever owns the functions.
** Invariants:
** S1 Replica i of this process works on devices[i]; component i belongs to it.
**    Among those in sync of all workers its number is group->base + i.
** S2 A replica's context names its strategy and its number among those in sync,
**    as errors and timelines do; a handle with components picks one by them
**    (tfd__component_index).
** S3 Sums are added up in replica order; every destination gets the same
**    bits.
** One more strategy is a C file with its table, a line in strategy.c that
** registers it, and a class in lua/tfdist/distribute/strategy.lua;
** spec/support/ensemble.c and .lua are one.
** May include base .. ops, comm. Specs: spec/distribute. */

#include "base/profile.h"
#include "comm/comm.h"
#include "ops/ops.h"

#define TFD_MAX_REPLICAS TFD_MAX_LOCAL_RANKS /* of one process */
#define TFD_MAX_IN_SYNC (1 << 16)            /* of all workers */
#define TFD_MAX_ROWS ((int64_t)1 << 53)
#define TFD_MAX_STRATEGIES 16

/* What differs between strategies; each kind fills one in a file of its own.
** Slots marked optional may be NULL: registration puts the default there. */
typedef struct tfd__strategy_ops {
  const char *kind; /* what tfd_strategy_new knows it by */
  const char *name; /* of the class, for messages */
  bool mirrors;     /* its variables must be synchronized in some way */
  /* Check and complete devices and parameter devices; make the group unless
  ** it is to be one of this process's devices alone. */
  int (*set_up)(tfd_strategy *s, tfd_device *parameter_device);
  /* What a variable becomes and how many copies it has. (optional, default:
  ** one ordinary variable on the first parameter device) */
  int (*place)(const tfd_strategy *s, bool on_read, tfd_variable_kind *kind_p,
               int *copies_p);
  /* One variable of the copies that were made where place said. (optional,
  ** default: a handle over the copies, or the ordinary variable itself) */
  int (*create)(tfd_strategy *s, tfd_variable *const *copies, int copies_n,
                const char *known_as,
                tfd_variable_synchronization synchronization,
                tfd_variable_aggregation aggregation, tfd_object **variable_p);
  /* Combine one component of each replica on the destinations, all of which
  ** get the same bits; other processes are waited for so many seconds, 0 = as
  ** the group has it. (optional, default: sums and so on in replica order;
  ** only then are several values added up at once, or by the updates) */
  int (*reduce)(tfd_strategy *s, tfd_reduce_op op, const char *what,
                tfd_object *const *components, int components_n,
                tfd_device *const *destinations, int destinations_n,
                double timeout, tfd_value **result_p);
  /* The rows of a batch that a replica, of those in sync, gets. (optional,
  ** default: the shares of tfd_input_piece) */
  int (*input_share)(const tfd_strategy *s, int64_t rows, int64_t batch,
                     int replica, int64_t *first_p, int64_t *count_p);
} tfd__strategy_ops;

extern const tfd__strategy_ops tfd__default_strategy;
extern const tfd__strategy_ops tfd__one_device_strategy;
extern const tfd__strategy_ops tfd__mirrored_strategy;
extern const tfd__strategy_ops tfd__central_storage_strategy;
extern const tfd__strategy_ops tfd__multi_worker_strategy;

/* Make a kind known; `ops` is copied. Only before main (from constructors):
** nothing locks the list. */
void tfd__strategy_register(const tfd__strategy_ops *ops);

struct tfd_strategy {
  tfd_object object;
  const tfd__strategy_ops *ops;
  tfd_device **devices; /* of the replicas here */
  int devices_n;        /* 0 for the default strategy: one replica, no rule */
  /* Owned reference. A rank for each replica: group->local replicas are of
  ** this process, at least one; group->size in sync, of all workers; the first
  ** replica here is number group->base of these. */
  tfd__group *group;
  tfd_device **parameters;
  int parameters_n;
  int64_t pack_bytes; /* of what goes to other processes at once; 0 = all, but
                      ** of gradients */
  bool overlaps;      /* sums in buckets go on while the processor computes */
  tfd_run *spare;     /* owned: a finished run to use again, NULL = none */
  uint32_t made;      /* variables that all processes have made together */
};

/* Local replica i's number among all in sync: what messages name it by. */
static inline int tfd__replica_of(const tfd_strategy *s, int i) {
  return s->group->base + i;
}

struct tfd_value {
  tfd_object object;
  tfd_strategy *strategy; /* owned reference */
  tfd_value_kind kind;
  int n;
  tfd_object *components[]; /* owned, NULL = the host's */
};

struct tfd_mirrored {
  tfd_object object;
  tfd_strategy *strategy; /* owned reference */
  tfd_variable_kind kind;
  uint8_t synchronization; /* tfd_variable_synchronization */
  uint8_t aggregation;     /* tfd_variable_aggregation */
  /* Last combined value of a sync-on-read variable and the sum of the copies'
  ** versions it was made from. */
  tfd_tensor *combined;
  uint64_t combined_version;
  int n;
  tfd_variable *components[]; /* owned */
};

/* Free the memory of a spare run. */
void tfd__run_discard(tfd_run *run);

/* For set_up: there are devices, not too many, none twice. */
int tfd__strategy_check_devices(const tfd_strategy *s);
/* A copy of a list of devices, to be freed; NULL for none. */
int tfd__strategy_list(tfd_device *const *from, int n, tfd_device ***to_p);
/* The defaults of optional slots. */
int tfd__strategy_place_plain(const tfd_strategy *s, bool on_read,
                              tfd_variable_kind *kind_p, int *copies_p);
int tfd__strategy_create(tfd_strategy *s, tfd_variable *const *copies,
                         int copies_n, const char *known_as,
                         tfd_variable_synchronization synchronization,
                         tfd_variable_aggregation aggregation,
                         tfd_object **variable_p);
int tfd__strategy_reduce(tfd_strategy *s, tfd_reduce_op op, const char *what,
                         tfd_object *const *components, int components_n,
                         tfd_device *const *destinations, int destinations_n,
                         double timeout, tfd_value **result_p);
int tfd__strategy_input_share(const tfd_strategy *s, int64_t rows,
                              int64_t batch, int replica, int64_t *first_p,
                              int64_t *count_p);

/* The component this context means, -1 in cross-replica context. */
int tfd__component_index(const tfd_strategy *s, int n);

/* t / n; integers become float64 or float32 as division makes them. Owns:
** *out_p. */
int tfd__divide(tfd_tensor *t, int n, tfd_tensor **out_p);

/* Sum or mean of in[0..n), which are alike, on `device`, added in order. Owns:
** *out_p. */
int tfd__reduce_tensors(tfd_reduce_op op, tfd_tensor *const *in, int n,
                        tfd_device *device, tfd_tensor **out_p);

/* t dense and on `device`. Owns: *p. */
int tfd__tensor_in_place(tfd_tensor *t, tfd_device *device, tfd_tensor **p);

/* What takes part of other processes' replicas, of strategies that have such:
** the reduction over all replicas in sync, of which in[0..n) are those here,
** and their elements joined along an axis; both on the strategy's first device.
** One component where there are several replicas is the process's own: then
** there is one for each process. Every process does the same. They are given
** up at `until`, 0 = after the group's timeout. Owns: *out_p. */
int tfd__reduce_over_workers(tfd_strategy *s, tfd_reduce_op op,
                             const char *what, tfd_tensor *const *in, int n,
                             tfd__deadline until, tfd_tensor **out_p);
int tfd__join_over_workers(tfd_strategy *s, int axis, const char *what,
                           tfd_tensor *const *in, int n, tfd__deadline until,
                           tfd_tensor **out_p);
/* What the first process has, in all of them, on the strategy's first device.
** `rows`: sizes along axis 0 may differ. Errors: InvalidArgument, everywhere,
** when others do. Owns: *out_p. */
int tfd__first_over_workers(tfd_strategy *s, bool rows, const char *what,
                            tfd_tensor *t, tfd_tensor **out_p);
/* The same of a tensor or variable, recorded where a recorder is. */
int tfd__first_of_all(tfd_strategy *s, const char *what, tfd_object *x,
                      tfd_tensor **out_p);
/* The reduction over all replicas in sync, wherever they are. Owns: *out_p. */
int tfd__reduce_in_sync(tfd_strategy *s, tfd_reduce_op op, const char *what,
                        tfd_tensor *const *in, int n, tfd_device *device,
                        tfd__deadline until, tfd_tensor **out_p);

/* What several processes do together is no part of a recorded function. */
int tfd__check_recorder(const tfd_strategy *s, const char *what);

/* --- which variables (together.c) ----------------------------------------- */

/* Collectives are about these from now on; returns what they were about, to be
** set again. Names would not do: two variables may have the same one. */
uint32_t tfd__set_about(uint32_t about);
/* Of n variables in this order, `step` copies and slots for each. */
uint32_t tfd__about_all(tfd_variable *const *targets, int n, int step);
/* And of values of these shapes, whose replicas here all have the same; `step`
** pieces for each. Elements alone would be as many in other orders. */
uint32_t tfd__about_shapes(uint32_t about, const tfd__piece *in, int n,
                           int step);

/* --- in recorded functions (together.c) ---------------------------------- */

/* A reduction or a gather of the strategy's group that a recorder sees: what it
** is, to be asked for again at each call. */
typedef struct tfd__together {
  const char *what;
  tfd_reduce_op op;
  bool
      gathers; /* along the axis, from 0, where sizes of others are not known */
  int axis;
  tfd_object *const *in; /* of all_reduce leaf-major, one for each replica */
  int in_n;
  tfd_device *const *devices; /* NULL = all_reduce; where results go */
  int devices_n;
  const tfd__pack_plan *plan; /* of all_reduce; NULL = as it likes */
  double timeout;             /* seconds, 0 = the group's */
  int (*ask)(tfd_strategy *s, const struct tfd__together *t,
             tfd_value **result_p);
} tfd__together;

/* Must the call be recorded as a whole, and not op by op? */
static inline bool tfd__records_together(const tfd_strategy *s) {
  return tfd__context()->recorder != NULL && !tfd__group_is_alone(s->group);
}

/* Record it. Shapes are those of the inputs, but along the axis of a gather.
** Errors: NotImplemented for slices, and for reductions of sizes that are not
** known. Owns: *result_p. */
int tfd__record_together(tfd_strategy *s, const tfd__together *t,
                         tfd_value **result_p);

/* What strategies that add up do for a reduction, which has its devices and is
** recorded where a recorder is. Owns: *result_p. */
int tfd__reduce_together(tfd_strategy *s, const tfd__together *t,
                         tfd_value **result_p);

/* --- sums in buckets (buckets.c, all_reduce.c) ---------------------------- */

/* Which gradients of an update go to other processes together: dense ones of
** one dtype, the last ones first, for their sums are wanted in the order in
** which a backward pass gives them. A bucket ends once it has more than the
** strategy's pack_bytes. It is the same in all processes, whatever each of them
** does meanwhile. */
typedef struct tfd__bucket_plan {
  int n;       /* 0 = all gradients go at once */
  int *order;  /* the gradients, bucket by bucket; without slices */
  int *ends;   /* of each bucket in `order` */
  void *block; /* owned: where these lie */
} tfd__bucket_plan;

/* Of n gradients of all replicas; freed also after an error. */
int tfd__bucket_plan_new(const tfd_strategy *s, tfd_object *const *grads, int n,
                         tfd__bucket_plan *plan);
void tfd__bucket_plan_free(tfd__bucket_plan *plan);

typedef struct tfd__buckets tfd__buckets;

/* Sums of in[leaf * replicas + i]; list and plan stay until the end. */
int tfd__buckets_new(tfd_strategy *s, const char *what, tfd_object *const *in,
                     int leaves, const tfd__bucket_plan *plan,
                     tfd__buckets **buckets_p);
/* Begin the next bucket, whose gradients there are by now. `attended`: as
** tfd__ticket_attend. Errors: as tfd__group_begin. */
int tfd__buckets_begin(tfd__buckets *b, bool attended);
/* Begin what is left, slices at last, and wait for all.
** Errors: as tfd__ticket_wait. */
int tfd__buckets_finish(tfd__buckets *b);
/* One for each replica here, borrowed. */
tfd_object *const *tfd__buckets_sums(const tfd__buckets *b, int leaf);
/* NULL allowed. What has begun and is not done fails the group. */
void tfd__buckets_free(tfd__buckets *b);

/* Should the strategy's sums go on while the processor computes? It costs a
** core's time; see README. Errors: ValueError for TFDIST_OVERLAP. */
int tfd__find_overlap(tfd_strategy *s);

/* An update of all replicas, as tfd_strategy_update or _parts was given it. */
typedef struct tfd__update {
  tfd_strategy *strategy;
  int op;
  tfd_variable *const *targets;
  int targets_n;
  tfd_object *const *grads;
  int grads_n;
  bool summed;
  const double *reals;
  int reals_n;
  const char *what;    /* of sums in buckets, in messages; NULL = it has none */
  tfd__buckets *begun; /* these; NULL = none */
  void **room_p;       /* memory of one call after the other, which `make` finds
                       ** or leaves and the owner frees; NULL = none is kept */
  int (*make)(const struct tfd__update *u);
} tfd__update;

/* Record it. Gradients may be slices. */
int tfd__record_update(const tfd__update *u);

/* Are all components slices? */
bool tfd__all_slices(tfd_object *const *components, int n);

/* InvalidArgument: local replica i has v, the first one `first`. */
int tfd__components_differ(const tfd_strategy *s, const char *what, int i,
                           const tfd__view *v, const tfd__view *first,
                           const char *expected);

/* All components have one dtype and shape. Errors: InvalidArgument. */
int tfd__check_components(const tfd_strategy *s, const char *what,
                          tfd_tensor *const *in, int n);

#endif
