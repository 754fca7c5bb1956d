#ifndef TFD_AUTOGRAD_TAPE_H
#define TFD_AUTOGRAD_TAPE_H
/* Private to autograd: what a tape keeps, shared by recording and walking.
**
** Invariants:
** A1 Every tracked value has a slot, a number counted up from 0 per tape. An
**    entry's outputs get fresh slots, so slots grow along the tape and the
**    walk needs plain arrays indexed by slot instead of hash look-ups.
** A2 Only floating-point values are tracked.
** A3 Entries never move; a walk may go on while its tape records more.
** A4 `ids` maps a value's id to its newest slot (a host step may take over
**    the ids of outputs recorded before it). Reads of a variable in a trace
**    have the variable's slot, so that sums grow as they do line by line. */

#include "autograd/autograd.h"

#define TFD_NO_SLOT UINT32_MAX

typedef struct tfd__id_cell {
  uint64_t id;
  uint32_t slot;
  uint32_t stamp; /* the map's, if the cell is in use */
} tfd__id_cell;

/* Open addressing; capacity is a power of two, at most half full. Cells are
** passed on from tape to tape without clearing: another stamp empties them. */
typedef struct tfd__id_map {
  tfd__id_cell *cells;
  uint32_t n;
  uint32_t stamp; /* never 0 */
  int bits;       /* log2 of the capacity, 0 = no cells */
} tfd__id_map;

int tfd__ids_grow(tfd__id_map *m, uint32_t more);
void tfd__ids_free(tfd__id_map *m);

/* Room for `more` further ids, so that tfd__ids_set cannot fail. */
static inline int tfd__ids_reserve(tfd__id_map *m, uint32_t more) {
  uint64_t want = ((uint64_t)m->n + more) * 2;

  if (TFD_LIKELY(m->bits > 0 && want <= UINT64_C(1) << m->bits)) {
    return TFD_OK;
  }
  return tfd__ids_grow(m, more);
}

/* Ids are handed out in sequence: neighbours share a block of 8 cells (two
** cache lines), blocks are scattered so that no long runs of used cells arise.
*/
static inline uint32_t tfd__ids_home(const tfd__id_map *m, uint64_t id) {
  uint64_t block = ((id >> 3) * 0x9e3779b97f4a7c15u) >> (64 - m->bits + 3);

  return (uint32_t)(block << 3 | (id & 7));
}

static inline uint32_t tfd__ids_get(const tfd__id_map *m, uint64_t id) {
  uint32_t mask = 0;
  uint32_t i = 0;

  if (m->n == 0) return TFD_NO_SLOT;
  mask = (UINT32_C(1) << m->bits) - 1;
  i = tfd__ids_home(m, id);
  while (m->cells[i].stamp == m->stamp) {
    if (m->cells[i].id == id) return m->cells[i].slot;
    i = (i + 1) & mask;
  }
  return TFD_NO_SLOT;
}

static inline void tfd__ids_set(tfd__id_map *m, uint64_t id, uint32_t slot) {
  uint32_t mask = (UINT32_C(1) << m->bits) - 1;
  uint32_t i = tfd__ids_home(m, id);

  while (m->cells[i].stamp == m->stamp && m->cells[i].id != id) {
    i = (i + 1) & mask;
  }
  if (m->cells[i].stamp != m->stamp) m->n++;
  m->cells[i].id = id;
  m->cells[i].slot = slot;
  m->cells[i].stamp = m->stamp;
}

/* Shape of a value that nobody needs, inside its entry. */
typedef struct tfd__shape_note {
  tfd_device *device;
  uint64_t id;
  int64_t numel;
  uint8_t dtype;
  uint8_t rank;
  int64_t dims[];
} tfd__shape_note;

typedef enum tfd__note_state {
  TFD_NOTE_ABSENT = 0, /* optional input not given, or released */
  TFD_NOTE_SHAPE,
  TFD_NOTE_SAVED /* owns a reference to the tensor */
} tfd__note_state;

typedef struct tfd__note {
  union {
    tfd_tensor *tensor;
    tfd__shape_note *shape;
  } u;
  uint32_t slot;
  uint32_t state; /* tfd__note_state */
} tfd__note;

/* One recorded step. Behind the notes of inputs and outputs lie the
** attributes, then the shapes. */
typedef struct tfd__entry {
  struct tfd__entry *prev;
  struct tfd__entry *saver; /* of one that may own references: the one before */
  const tfd__op *op;        /* NULL: host step, `number` identifies it */
  int64_t number;
  const int64_t *ints;
  const double *reals;
  uint32_t bytes; /* distance to the next entry of the chunk */
  int32_t in_n;
  int32_t out_n;
  tfd__note notes[]; /* in_n inputs, then out_n outputs */
} tfd__entry;

typedef struct tfd__chunk {
  struct tfd__chunk *next;
  size_t capacity;
  size_t used;
  _Alignas(16) unsigned char data[];
} tfd__chunk;

struct tfd_tape {
  tfd_object object;
  tfd_context *context; /* owned reference */
  bool persistent;
  bool watch_accessed;
  bool follow_all;
  bool follow_constants;
  bool recording;
  bool used;  /* a gradient was taken */
  int paused; /* nested tfd_tape_pause_all; 0 = records */
  int walks;  /* walks in progress */
  tfd__id_map ids;
  uint32_t slots_n;
  tfd__chunk *first;
  tfd__chunk *current;
  tfd__entry *last;
  tfd__entry *saver; /* the newest one */
  int64_t length;
  tfd_variable **variables; /* owned references, in order of first use */
  int variables_n;
  int variables_capacity;
  tfd_tape **around; /* owned references; see tfd_tape_follow_tape */
  int around_n;
  int around_capacity;
  tfd_tensor **constants; /* owned references: followed since others do */
  int constants_n;
  int constants_capacity;
};

/* The recording tapes of one context: its `tapes`. Borrowed pointers: a tape
** takes itself off the list before it goes. */
typedef struct tfd__tapes {
  tfd_tape **items;
  int n;
  int capacity;
} tfd__tapes;

/* Results of the helpers of one rule. The walk owns the first block; further
** ones are chained in front of it. */
#define TFD_TEMPS 30
typedef struct tfd__temp {
  struct tfd__temp *next; /* NULL: the walk's block */
  int n;
  tfd_tensor *items[TFD_TEMPS];
} tfd__temp;

/* Release all results and all blocks but the walk's. */
void tfd__temps_clear(tfd__temp *temps);
/* Number of an op outside core.def by name, looked up once for each cache. */
int tfd__op_named(const char *name, _Atomic int *cache, int *op_p);
/* Fail unless all sizes are known: rules count elements and copy shapes into
** attributes. */
int tfd__sizes_known(const int64_t *dims, int rank);
/* A dense tensor filled with one value, on `device`. */
int tfd__filled(tfd_device *device, int dtype, const int64_t *dims, int rank,
                double value, tfd_tensor **t_p);

/* Release what an entry saved. */
void tfd__entry_release(tfd__entry *e);
/* Drop all entries and ids; watched variables stay. */
void tfd__tape_drop(tfd_tape *tape);

/* A current chunk with room for `bytes`. Errors: ResourceExhausted. */
int tfd__chunks_grow(tfd_tape *tape, size_t bytes);
/* The tape's chunks go, or are kept. */
void tfd__chunks_drop(tfd_tape *tape);

/* First entry of a chunk and the one behind e in the same chunk; NULL past
** the last. */
static inline tfd__entry *tfd__chunk_entry(tfd__chunk *c, size_t at) {
  return at < c->used ? (tfd__entry *)(void *)(c->data + at) : NULL;
}

#endif
