#ifndef TFD_BASE_PROFILE_H
#define TFD_BASE_PROFILE_H
/* L0 base: spans of time that a timeline shows.
**
** Each thread keeps its latest spans in a ring of its own, so that noting one
** is two looks at the clock and a store; without a timeline it is one branch.
**
**   int64_t begin = tfd__span_begin();
**   ... work ...
**   tfd__span_end(TFD_SPAN_OP, name, begin, replica);
**
** Files: profile.c (rings), timeline.c (Chrome's trace format, the table). */

#include <stdatomic.h>

#include "base/thread.h"

typedef enum tfd__span_kind {
  TFD_SPAN_OP = 0,
  TFD_SPAN_GRAPH,    /* a traced function's program, or its nodes one by one */
  TFD_SPAN_TRANSFER, /* bytes between devices, to and from the host */
  TFD_SPAN_COLLECTIVE, /* its begin, its wait */
  TFD_SPAN_WAIT,       /* for a device */
  TFD_SPAN_REPLICA,    /* a replica's turn */
  TFD_SPAN_USER,       /* a range of the script's */
  TFD_SPAN_LUA,        /* what is left of the host's time */
  TFD_SPAN_KINDS
} tfd__span_kind;

typedef struct tfd__span {
  int64_t begin; /* tfd__now_ns */
  int64_t end;
  const char *name; /* lives for ever */
  int64_t step;     /* of a training, -1 = none */
  int replica;      /* -1 = none */
  tfd__span_kind kind;
} tfd__span;

/* The latest spans of a thread. */
#define TFD_TRACK_SPANS 65536
typedef struct tfd__track {
  struct tfd__track *next;
  char name[32];
  bool host;               /* the thread that began the timeline */
  atomic_uint_least64_t n; /* spans ever noted; written by the thread alone */
  tfd__span spans[TFD_TRACK_SPANS];
} tfd__track;

extern atomic_bool tfd__profiling;

/* 0 without a timeline. */
static inline int64_t tfd__span_begin(void) {
  if (TFD_LIKELY(
          !atomic_load_explicit(&tfd__profiling, memory_order_relaxed))) {
    return 0;
  }
  return tfd__now_ns();
}

void tfd__span_note(const tfd__span *span);

static inline void tfd__span_end(tfd__span_kind kind, const char *name,
                                 int64_t begin, int replica) {
  if (TFD_LIKELY(begin == 0)) return;
  tfd__span_note(&(tfd__span){.begin = begin,
                              .end = tfd__now_ns(),
                              .name = name,
                              .step = -1,
                              .replica = replica,
                              .kind = kind});
}

/* A copy of the name that lives for ever; the same for the same name. */
const char *tfd__span_name(const char *name);

/* --- timeline.c ----------------------------------------------------------- */

/* Spans of `tracks` between two times: as a file ("" = none) and as text. */
int tfd__timeline_write(tfd__track *tracks, int64_t from, int64_t to,
                        const char *path, char **table_p);

#endif
