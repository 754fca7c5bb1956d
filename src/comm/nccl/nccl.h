#ifndef TFD_COMM_NCCL_NCCL_H
#define TFD_COMM_NCCL_NCCL_H
/* The NCCL plug-in: collectives among GPUs. Private to this folder.
**
** Files: library (NCCL as a table, opened at run time; the plug-in's entry),
** comms (communicators: made, tried, ended), watch (the thread that sees
** whether what is under way gets on), far (what other processes are told and
** asked), nccl (the provider).
**
** Every rank has a stream of its own for NCCL, of the highest priority. It
** waits for what the rank's device has queued, and the device for it; the host
** waits for nothing.
** Groups of several processes have a group of provider "staged" beside them,
** over which the hosts see, before they begin a collective, that all begin the
** same one: NCCL would wait for ever, or mix up numbers. It also tells who is
** gone, and does what NCCL does not.
** N1 Calls of NCCL are made under the lock, by one thread at a time;
**    communicators are non-blocking, so that none lasts. What may last, an
**    abort, is made without, of communicators that nobody else can see any
**    more. Who holds it waits for no work of a GPU but that of communicators
**    which are being made: what is under way may need the watching thread to
**    end. So the devices' streams are taken before it, for who has one may wait
**    for its GPU, and they get their work without it: a stream takes only so
**    much at once. Memory of a GPU is neither allocated nor freed under it,
**    which may wait for all that runs there, as the end of communicators does:
**    groups end while nothing is under way.
** N2 A collective that does not get on is noticed by the watching thread: what
**    the devices took from it on is spoiled before its communicators are
**    aborted, so that nobody takes what lies there for results. The next
**    collective makes new communicators: their epoch is one higher.
**    Between processes, where all would have to agree on that, the group fails
**    instead, in all of them.
** N3 NCCL adds up in an order of its own, and half types in their own
**    precision; means are made of parts. */
#include <nccl.h>

#include "backend/cuda/native.h"
#include "comm/private.h"

enum {
  TFD_NCCL_MARKS = 16, /* collectives of a group that are watched at once */
  TFD_NCCL_END_SECONDS = 10
};

typedef struct tfd__nccl_library {
#define FUNCTION(name) __typeof__(&name) name;
#include "comm/nccl/nccl.def"
#undef FUNCTION
} tfd__nccl_library;

extern tfd__nccl_library tfd__nc;

/* Open NCCL and find its functions. Errors: Unavailable with the reason. */
int tfd__nccl_open(void);
/* TFD_OK (also for what is in progress), or Internal with NCCL's words. */
int tfd__nccl_check(ncclResult_t result, ncclComm_t comm, const char *what);

/* --- groups ----------------------------------------------------------------
 */

typedef struct tfd__nccl_rank {
  tfd_device *device;
  const tfd__cuda_native *native;
  ncclComm_t comm; /* NULL = there is none now */
  CUstream stream;
  CUevent ready;       /* the device has come to the collective, */
  tfd__refused marked; /* with this to heed */
  CUevent over;        /* for the first collective, and the last */
} tfd__nccl_rank;

/* A collective under way. */
typedef struct tfd__nccl_mark {
  CUevent over[TFD_MAX_LOCAL_RANKS];
  uint64_t seq[TFD_MAX_LOCAL_RANKS]; /* of the devices, behind it */
  tfd__deadline until;               /* its call's own; 0 = it has none */
  bool recorded;                     /* `over` is */
  char name[48];
} tfd__nccl_mark;

typedef struct tfd__nccl_group {
  struct tfd__nccl_group *next; /* of those that are watched */
  int local;
  int base;
  int size;
  double timeout;
  int epoch; /* of the communicators: how often they were made */
  bool there;
  bool ending;         /* some are being aborted */
  bool closing;        /* nobody has the group any more */
  tfd__group *control; /* owned; NULL = all ranks are here */
  ncclUniqueId id;     /* of the communicators */
  /* The oldest mark passes before, or has failed, if its call has no deadline
  ** of its own. */
  tfd__deadline until;
  tfd__nccl_mark marks[TFD_NCCL_MARKS]; /* a ring, oldest first */
  int marks_first;
  int marks_n;
  tfd__nccl_rank ranks[]; /* the local ones */
} tfd__nccl_group;

typedef struct tfd__nccl_watch {
  tfd__mutex lock; /* rank 5, for groups' are taken under it; N1 */
  tfd__cond changed;
  bool started;
  bool leaving; /* the process ends */
  bool over;    /* the thread has gone */
  tfd__nccl_group *groups;
} tfd__nccl_watch;

extern tfd__nccl_watch tfd__nccl;
extern const tfd__provider tfd__nccl_provider;

/* --- comms: the lock is held -----------------------------------------------
 */

/* Streams and events. */
int tfd__nccl_ranks_new(tfd__nccl_group *own);
/* Communicators that have done a first collective, if there are none. Blocks:
** until all are connected, or the group's timeout. */
int tfd__nccl_connect(tfd__nccl_group *own);
/* Spoil what is under way because of the thread's error, and end the
** communicators. Returns the error's code. */
int tfd__nccl_break(tfd__nccl_group *own);
/* Let go of all. Nothing is under way. */
void tfd__nccl_group_free(tfd__nccl_group *own);
/* Wait for each communicator to be done with what it was asked for. */
int tfd__nccl_settle(tfd__nccl_group *own, tfd__deadline until,
                     const char *what);
/* The error that a communicator has come to by itself. */
int tfd__nccl_look(const tfd__nccl_group *own, const char *what);

/* --- far: groups of several processes ---------------------------------------
 */

/* Set own->control, and what the communicators need; or g->unfit, in all
** processes alike. Blocks: until all have come. */
int tfd__nccl_meet(tfd__group *g, tfd__nccl_group *own,
                   const tfd__group_config *config);
/* Do all processes begin this collective? Blocks: until all do. Errors: those
** of groups; the group has failed. */
int tfd__nccl_agree(tfd__group *g, const tfd__collective *c);
/* Have what NCCL does not know done over own->control. */
int tfd__nccl_pass_on(tfd__group *g, const tfd__collective *c);

/* --- watch ------------------------------------------------------------------
 */

/* Have the group watched, from the first one on by a thread. */
int tfd__nccl_watch_add(tfd__nccl_group *own);
/* Under the lock: something is under way, or the group is closing. */
void tfd__nccl_watch_wake(void);
/* Under the lock: drop the marks that have passed. Errors: of a GPU. */
int tfd__nccl_drop_passed(tfd__nccl_group *own);

#endif
