#ifndef TFD_COMM_SHM_H
#define TFD_COMM_SHM_H
/* Groups whose processes are on one machine: bytes go through memory that all
** have mapped. Private to this folder.
**
** Files: segment (one memory for all, and who may have it), arena (parts of it
** that are lent to tensors), tally (counters in it, and waiting for them), move
** (what a round stages, adds up and takes), shm (the provider: collectives made
** of rounds), quick (those of few bytes whose ranks are in step).
**
** S1 The memory has no name and no file: it is gone with the last process.
** S2 Its size is sealed, and the pages of all that is touched are there:
**    touching it cannot fail.
** S3 Nothing in it is an address or a size that is used unchecked.
** S4 Nobody holds a lock in it: a process may die at any moment. Who is gone,
**    silent or has failed is the mesh's to find; whoever waits here looks at
**    the group at least every 20 ms. */

#include "comm/looks.h"
#include "comm/tcp/mesh.h"
#include "comm/tcp/turns.h"

/* --- tally ---------------------------------------------------------------- */

/* What a process has done, as numbers of rounds from 1 on. */
typedef enum tfd__mark {
  TFD_MARK_REDUCED = 0, /* its share of the sum lies in its slot */
  TFD_MARK_FINISHED,    /* it reads no slot of the round any more */
  TFD_MARKS,
  TFD_MARK_STAGED = TFD_MARKS /* what it gives lies there: see tfd__brief */
} tfd__mark;

/* Slots for rounds that follow one another, and bytes in one line that are
** given beside the mark. */
enum { TFD_DEPTH = 2, TFD_BRIEF_BYTES = 48 };

/* All that others need of a round of few bytes comes with one cache line. */
typedef struct tfd__brief {
  _Alignas(128) atomic_uint_least64_t round; /* that is staged; written last */
  uint64_t hash;                             /* of its frame */
  char bytes[TFD_BRIEF_BYTES];
} tfd__brief;

/* Where in its arena lies what a process gives, and where it wants results:
** tfd__arena_place of the value's first element; 0 = in slots. */
typedef struct tfd__reach {
  uint64_t given;
  uint64_t taken;
  uint64_t writes; /* its sums go where others want them */
} tfd__reach;

/* One process's; lines that others write are apart from those it writes. */
typedef struct tfd__cell {
  tfd__brief briefs[TFD_DEPTH];
  _Alignas(128) atomic_uint_least64_t marks[TFD_MARKS];
  _Alignas(128) atomic_uint asleep; /* it waits for `bell` to change */
  atomic_uint bell;
  _Alignas(128) tfd__frame frames[TFD_DEPTH]; /* what the rounds are about */
  tfd__reach reaches[TFD_DEPTH];              /* of rounds of two steps */
} tfd__cell;

typedef struct tfd__tally {
  tfd__cell *cells; /* of all processes */
  int process;
  int processes;
  tfd__looks looks;
} tfd__tally;

/* Say that this process has come so far. */
void tfd__tally_publish(tfd__tally *b, tfd__mark mark, uint64_t round);
/* The same for those who look; who sleeps hears of it by the next sweep. */
void tfd__tally_set(tfd__tally *b, tfd__mark mark, uint64_t round);
void tfd__tally_sweep(tfd__tally *b);
/* Look for a moment, then, if that is how waits go here, for longer; sweeps
** unless all were there at once. */
bool tfd__tally_soon(tfd__tally *b, tfd__mark mark, uint64_t round);
/* Has every process? *late_p, when not NULL, is one that has not. */
bool tfd__tally_reached(const tfd__tally *b, tfd__mark mark, uint64_t round,
                        int *late_p);
/* Wait until it has, `until` has passed or 20 ms have, or somebody rang. */
bool tfd__tally_wait(tfd__tally *b, tfd__mark mark, uint64_t round,
                     tfd__deadline until);
/* This process's own waits look again. Threads: any. */
void tfd__tally_ring(tfd__tally *b);

/* --- segment -------------------------------------------------------------- */

typedef struct tfd__arena tfd__arena;

/* Cells, an arena for each process, slots. */
typedef struct tfd__segment {
  void *memory;
  size_t bytes;
  size_t front;       /* bytes of the cells */
  size_t arena_bytes; /* of each arena */
  size_t slot;        /* bytes of one slot */
  tfd__cell *cells;
  tfd__arena *arena; /* this process's */
} tfd__segment;

/* The same memory in all processes of a circle.
** Blocks: until all have said whether they have it.
** Errors: Unavailable, the same in all processes, when they do not share a
**   machine and a user, or one of them could not map it; what fails the
**   group. */
int tfd__segment_open(const tfd__circle *circle, const tfd__network *network,
                      tfd__segment *segment);
void tfd__segment_close(tfd__segment *segment);
/* Where process p's slot for a round begins: what it gives, or results. */
char *tfd__segment_slot(const tfd__segment *s, int process, uint64_t round,
                        bool results);

/* --- arena ---------------------------------------------------------------- */

/* The part of a segment from `offset` on is this process's to lend. Takes the
** mapping and its file over. */
int tfd__arena_new(void *memory, size_t bytes, int file, size_t offset,
                   size_t size, tfd__arena **arena_p);
/* The group needs it no more; blocks that are lent live on. */
void tfd__arena_drop(tfd__arena *a);
/* Memory of a device of this process, always the same one; *buffer_p stays NULL
** when there is none to lend. */
int tfd__arena_lend(tfd__arena *a, tfd_device *device, size_t bytes,
                    tfd__buffer **buffer_p);
/* Where in process p's arena these bytes lie, as others are told; 0 = not
** there. */
uint64_t tfd__arena_place(const tfd__segment *s, int process, const void *data,
                          size_t bytes);
/* Bytes at `offset` from a place that process p told; NULL = they are not in
** its arena. */
char *tfd__arena_at(const tfd__segment *s, int process, uint64_t place,
                    size_t offset, size_t bytes);

/* --- collectives under way ------------------------------------------------ */

typedef enum tfd__shm_phase {
  TFD_SHM_INPUT = 0, /* the devices compute what is given */
  TFD_SHM_ROUNDS,
  TFD_SHM_DONE
} tfd__shm_phase;

/* The value under way. */
typedef struct tfd__shm_value {
  int64_t total; /* elements that the rounds go through */
  int64_t each;  /* of them in one round */
  int64_t later; /* and in one that begins when this one's frames were seen */
  int64_t rounds;
  int64_t staged;
  int64_t done;
  size_t size; /* of an element */
  int dtype;
  bool two_steps;
  bool brief;     /* what is given goes beside the mark */
  bool fits;      /* the round's frames were looked at */
  bool submitted; /* its sums are with the devices */
  bool reduced;   /* its share is in its slot */
  tfd__reach reach;
  tfd__run_of mine;
  tfd__frame frame;
} tfd__shm_value;

typedef struct tfd__shm_work {
  tfd__turn turn; /* first: what has the turn is the work */
  tfd__kept kept;
  tfd__run_of *sums; /* of this process's ranks, value by value; owned where
                     ** `owned` says so */
  bool *owned;
  uint64_t number; /* of the collective */
  tfd__shm_phase phase;
  int k;
  tfd__shm_value v;
} tfd__shm_work;

typedef struct tfd__shm_group {
  tfd__circle circle;
  tfd__segment segment;
  tfd__tally tally;
  atomic_bool open;     /* segment and tally are there */
  tfd__buffer window;   /* the segment, for kernels */
  uint64_t rounds;      /* of all values before the one under way */
  uint64_t early;       /* round that was staged before its collective began */
  uint64_t together;    /* round before which all had finished the last one */
  atomic_int under_way; /* collectives */
} tfd__shm_group;

/* --- what rounds move (move.c) -------------------------------------------- */

int tfd__shm_values(const tfd__shm_work *w);
bool tfd__shm_reduces(const tfd__shm_work *w);
/* Few bytes: reading all of them from everybody beats a second step. */
enum { TFD_SHM_SMALL = 8192 };
/* Begin with value w->k. */
void tfd__shm_plan(const tfd__group *g, tfd__shm_work *w);
/* Number of round j among all that the group has. */
uint64_t tfd__shm_number(const tfd__shm_group *own, int64_t j);
/* What process q gives for a round. */
char *tfd__shm_given(const tfd__shm_group *own, int q, uint64_t number,
                     bool brief);
/* A round's bytes are there: its frame, then its mark. */
void tfd__shm_announce(tfd__shm_group *own, const tfd__frame *f,
                       uint64_t number);
/* All have staged the value's first round: how they go on. */
void tfd__shm_widen(const tfd__group *g, tfd__shm_work *w);
/* Is everybody at the same round of the same collective? Errors: they run
** apart. */
int tfd__shm_check(const tfd__shm_group *own, const tfd__frame *mine,
                   uint64_t number);
/* Stage the next round; its slots are free. */
void tfd__shm_stage(tfd__group *g, tfd__shm_work *w);
/* All have staged the round: get results, or this process's share of them. */
int tfd__shm_take(tfd__group *g, tfd__shm_work *w);
/* Sums that no kernel makes on this thread are with the devices when
** tfd__shm_take returns, and this is to be done when they are there. */
void tfd__shm_copy_share(tfd__group *g, const tfd__shm_work *w);
/* All have added up their shares of the round. */
void tfd__shm_take_shares(tfd__group *g, const tfd__shm_work *w);

/* --- few bytes (quick.c) -------------------------------------------------- */

/* As a provider's `quick`. */
int tfd__shm_quick(tfd__group *g, const tfd__collective *c, uint64_t number,
                   tfd__quick *progress_p);

#endif
