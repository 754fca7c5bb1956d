#ifndef TFD_COMM_PRIVATE_H
#define TFD_COMM_PRIVATE_H
/* What the files of comm share; nobody else includes it. */

#include "base/profile.h"
#include "comm/comm.h"
#include "comm/schedule.h"

/* Do the pieces go together? Errors: InvalidArgument naming ranks. */
int tfd__collective_check(const tfd__group *g, const tfd__collective *c);

/* Rank root alone gives something. */
static inline bool tfd__root_gives(tfd__collective_kind kind) {
  return kind == TFD_COLLECTIVE_BROADCAST || kind == TFD_COLLECTIVE_SCATTER;
}
/* Rank root alone gets something. */
static inline bool tfd__root_gets(tfd__collective_kind kind) {
  return kind == TFD_COLLECTIVE_REDUCE || kind == TFD_COLLECTIVE_GATHER;
}
static inline bool tfd__has_root(tfd__collective_kind kind) {
  return tfd__root_gives(kind) || tfd__root_gets(kind);
}
/* Each rank's piece has a length of its own. */
static inline bool tfd__is_ragged(tfd__collective_kind kind) {
  return kind == TFD_COLLECTIVE_ALL_GATHER || kind == TFD_COLLECTIVE_GATHER ||
         kind == TFD_COLLECTIVE_SCATTER;
}
/* Between the root and each rank a piece, and nothing else. */
static inline bool tfd__moves_pieces(tfd__collective_kind kind) {
  return kind == TFD_COLLECTIVE_GATHER || kind == TFD_COLLECTIVE_SCATTER;
}

static inline const tfd__piece *
tfd__given(const tfd__group *g, const tfd__collective *c, int k, int i) {
  return &c->in[(ptrdiff_t)k * g->local + i];
}
static inline const tfd__piece *
tfd__gotten(const tfd__group *g, const tfd__collective *c, int k, int i) {
  return &c->out[(ptrdiff_t)k * g->local + i];
}

/* What local rank 0 has of value k, as all ranks do: what is there is held
** against it. */
static inline const tfd__piece *tfd__leader(const tfd__group *g,
                                            const tfd__collective *c, int k) {
  return tfd__root_gives(c->kind) ? tfd__gotten(g, c, k, 0)
                                  : tfd__given(g, c, k, 0);
}

/* A group for a greater one's own collectives, which have met by that
** (config->network->within). Nobody else hears of it, no record has it, and it
** is failed by who has it. Errors: as tfd__group_new. */
int tfd__group_inner(const tfd__group_config *config, tfd__group **group_p);
/* The thread of tfd__ticket_attend ends; NULL is allowed. */
void tfd__attendant_free(struct tfd__attendant *a);
/* As far as a collective goes until then. Errors: as tfd__ticket_test. */
int tfd__ticket_look(tfd__ticket *t, tfd__deadline until, bool *done_p);

/* Begin a collective of a group whose ranks are all here, in the shared
** provider's way. */
int tfd__shared_run(tfd__group *g, const tfd__collective *c);

/* Fill the empty slots of a provider's table. Errors: FailedPrecondition for a
** table of another version or without what has no default. */
int tfd__provider_complete(tfd__provider *p);

/* A provider's tend, NULL or not, is one of all; */
void tfd__tended(tfd__tend *tend);
/* all of them are called but `own`. True when one had something to do. */
bool tfd__tend_others(tfd__tend *own);

/* Can the plug-in be opened, and is its table of this version? Errors: why
** not. */
struct tfd__plugin;
int tfd__provider_try(const struct tfd__plugin *plugin);

/* --- work on the devices of this process (local.c) ------------------------ */

/* A run of elements with a view of its own. */
typedef struct tfd__run_of {
  tfd__buffer *buffer; /* borrowed unless somebody says otherwise */
  tfd__view view;      /* of rank 1 */
} tfd__run_of;

/* n elements of a piece from `begin` on. */
tfd__run_of tfd__part_of(const tfd__piece *p, int64_t begin, int64_t n);
/* Fresh memory on `device`; the caller releases ->buffer. */
int tfd__run_new(tfd_device *device, int dtype, int64_t n, tfd__run_of *run_p);
/* In the order of both devices' streams; the same place is nothing to do. */
int tfd__run_copy(const tfd__run_of *to, const tfd__run_of *from);
/* The elements in to's dtype; both on one device. */
int tfd__run_cast(const tfd__collective *c, const tfd__run_of *to,
                  const tfd__run_of *from);
/* Floats, each divided by n where it lies. */
int tfd__run_divide(const tfd__collective *c, const tfd__run_of *to, int n);
/* Can a reduction of this dtype be made at all? Errors: InvalidArgument. */
int tfd__check_reduction(const char *what, tfd_reduce_op op, int dtype);
/* to = the reduction of in[0..n) in this order, on to's device, wherever the
** inputs lie. `to` may be one of them. */
int tfd__reduce_runs(const tfd__collective *c, const tfd__run_of *in, int n,
                     const tfd__run_of *to);

/* --- pieces (pieces.c) ---------------------------------------------------- */

/* What rank r gives for value k of an all_gather or a gather, or gets from a
** scatter. */
int64_t tfd__gather_count(const tfd__group *g, const tfd__collective *c, int k,
                          int r);
/* Where rank r's elements lie in value k of an all_gather, or among all pieces
** of a gather or a scatter. */
tfd__stretch tfd__gathered(const tfd__group *g, const tfd__collective *c, int k,
                           int r);
/* Of value k's numbers of elements, which leave no other trace where processes
** disagree about some; 0 = all the same. */
uint32_t tfd__counts_sum(const tfd__group *g, const tfd__collective *c, int k);
/* Rank r's piece of value k of a gather or a scatter where it lies here: at the
** root, among all pieces, or at rank r. */
tfd__run_of tfd__piece_at(const tfd__group *g, const tfd__collective *c, int k,
                          int r, bool at_root);
/* The pieces of value k that need not leave this process. */
int tfd__move_own_pieces(const tfd__group *g, const tfd__collective *c, int k);

/* --- collectives that outlast their call (kept.c) ------------------------- */

/* The kernel that adds up elements on the calling thread; NULL = the devices
** must, or it is no sum of numbers that are added as they are. */
tfd__kernel tfd__sum_kernel(const tfd__group *g, tfd_reduce_op op, int dtype);
/* May sums of value k be added up further as they come? Not halves, which would
** lose what their sums' last bits are. */
bool tfd__sum_grows(const tfd__group *g, const tfd__collective *c, int k);
/* to = the sum or mean of n runs of its length, of which it may be one, by that
** kernel; into `twins` too. The devices are done with them. */
int tfd__sum_now(tfd__kernel kernel, const tfd__collective *c,
                 const tfd__run_of *in, int n, const tfd__run_of *to,
                 char *const *twins, int twins_n);

typedef struct tfd__kept {
  tfd__collective c; /* with pieces and counts of its own */
  tfd__piece *in;
  tfd__piece *out;
  uint64_t *seqs; /* positions of the local devices to wait for */
  void *block;    /* where all these lie */
} tfd__kept;

int tfd__kept_init(tfd__kept *w, const tfd__group *g, const tfd__collective *c);
void tfd__kept_free(tfd__kept *w, const tfd__group *g);
/* tfd__collective_what of it. */
uint64_t tfd__kept_signature(const tfd__kept *w, int dtype);

/* A fault that was ordered for a step of one value of an all_reduce. */
int tfd__pass_chunk(const tfd__collective *c);

/* What was submitted by now is waited for. */
void tfd__kept_note(tfd__kept *w, const tfd__group *g);
/* Have the devices passed what was noted? A deadline is no failure. */
int tfd__kept_ready(const tfd__kept *w, const tfd__group *g,
                    tfd__deadline until, bool *ready_p);

/* The reduction of value k over the ranks here, on the first one's device: its
** own memory when it is the only one; else *mine is to be released. */
int tfd__kept_reduce(const tfd__kept *w, const tfd__group *g, int k,
                     tfd__run_of *mine, bool *is_new_p);
/* What the first rank here has got (what this process gave itself it need not
** have got) to all ranks here; of pieces, those that stay here. */
int tfd__kept_spread(const tfd__kept *w, const tfd__group *g);

/* --- control beside providers that have none (tcp/control.c) -------------- */

typedef struct tfd__mesh tfd__mesh;

/* Give `bytes` of this process to all, and take those of all, one behind the
** other, by the provider's own means. */
typedef int tfd__tell(void *arg, const void *mine, void *all, size_t bytes);

/* Heartbeats, aborts and farewells between all processes of the world, over
** TCP. *control_p stays NULL where it cannot be had, which is said once. The
** group may fail as soon as it is set.
** Blocks: until all processes have come to it. Errors: tell's. */
int tfd__control_open(tfd__group *g, const tfd__group_config *config,
                      const tfd__world *w, tfd__tell *tell, void *arg,
                      tfd__mesh **control_p);
/* NULL is allowed in all of these: nothing happens, and nobody is late. */
void tfd__control_close(tfd__mesh *control);
void tfd__control_abort(tfd__mesh *control, const tfd__error *cause);
void tfd__control_late(tfd__mesh *control, uint64_t number, char *text,
                       size_t bytes);

/* --- collectives in numbers and words (words.c) --------------------------- */

/* What all processes must agree on, but for numbers of elements: kind,
** reduction, number of the call, dtype, root, and a hash of the name of what
** the user called and of the variables that it is about. */
uint64_t tfd__collective_what(const tfd__collective *c, int dtype);
/* "all_reduce sum of float32[100]": `what`, with `count` elements in the first
** of `values`. Numbers may come from elsewhere: none of them is believed. */
void tfd__collective_text(uint64_t what, uint64_t count, int values, char *text,
                          size_t bytes);
/* What two processes call where they run apart. */
typedef struct tfd__side {
  int process;
  uint64_t what;
  const char *text; /* with the place, which may differ where nothing does */
} tfd__side;
/* For behind both texts, where what differs does not show in them; said by
** process `here`. Returns a hint, NULL = there is none. */
const char *tfd__apart_text(const tfd__side *one, const tfd__side *other,
                            int here, char *text, size_t bytes);
/* An error ended a call here before its collectives: the first line of it. */
void tfd__note_left(const char *error);
/* The view of the first value that all ranks here have; NULL = there is none.
 */
const tfd__view *tfd__leading_view(const tfd__group *g,
                                   const tfd__collective *c);
/* The end of a file's name, for messages; NULL is none. */
void tfd__file_end(const char *name, char *text, size_t bytes);

#endif
