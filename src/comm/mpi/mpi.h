#ifndef TFD_COMM_MPI_MPI_H
#define TFD_COMM_MPI_MPI_H
/* The MPI plug-in: one source, built once for each MPI there is, for their
** binary interfaces differ. Private to this folder.
**
** Files: lent (what the library lends), world (the thread, from MPI's start to
** the end of the process), drive (who talks to MPI), group (what is done for a
** group), round (whether all begin the same), move (MPI's calls for each
** collective), ring (long sums, in pieces), work (a collective under way), mpi
** (the provider: what goes in and comes out).
**
** One thread at a time talks to MPI: it drives. MPI gets on only while somebody
** asks it to, so a thread of our own drives as long as anything is under way;
** whoever waits takes its place, for waking each other costs more than a short
** sum. The other ranks of a process are added up before, by its devices.
** M1 A collective's data move once all processes have said that they begin the
**    same one, and in the order in which they were begun. Few elements go with
**    what is said, and their sum is taken once it is known that all said it.
** M2 Memory that MPI has been given stays until MPI is done with it, also when
**    its group has failed and nobody wants it. */
#include <mpi.h>

#include "comm/private.h"
#include "comm/ways.h"

/* What goes with what processes say. */
#define TFD_MPI_SMALL 1024

enum { TFD_MPI_TEXT = 192, TFD_MPI_NOTE_TEXT = 480 };

/* Elements in one MPI call at most: counts are ints. */
#ifndef TFD_MPI_MOST
#define TFD_MPI_MOST (1 << 30)
#endif

/* Sums whose share of each process has at least so many bytes go round a ring,
** in pieces of so many elements, of which so many are on their way at once. */
#ifndef TFD_MPI_SHARE
#define TFD_MPI_SHARE (1 << 14)
#define TFD_MPI_PIECE (1 << 15)
#endif
enum { TFD_MPI_WINDOW = 4 };

/* Tags of rounds, and of data, before they repeat: at most so many collectives
** of a group are under way, of which each has one. Who begins the next one with
** a tag has ended the last one, and MPI keeps the order of what one process
** sends another with one tag. */
enum { TFD_MPI_TAGS = 1024 };

typedef struct tfd__mpi_group tfd__mpi_group;

/* One value under way. MPI reads `give` and writes `take`, which may be the
** same memory; dtypes are those in which it adds up. */
typedef struct tfd__mpi_part {
  tfd__run_of give;
  tfd__run_of take;
  bool owns_give;
  bool owns_take;
} tfd__mpi_part;

typedef enum tfd__mpi_stage {
  TFD_MPI_WAITING = 0, /* for the other processes, or for its own inputs */
  TFD_MPI_MOVING,
  TFD_MPI_MOVED
} tfd__mpi_stage;

/* What a process says of a collective: the least of the hashes of those that it
** has heard of, and of their complements. Where all are equal, they are its
** own. */
typedef struct tfd__mpi_frame {
  uint64_t least[2];
  uint64_t bytes; /* of their sum; 0 = none */
  double sum[TFD_MPI_SMALL / sizeof(double)];
} tfd__mpi_frame;

typedef struct tfd__mpi_round {
  MPI_Request requests[2];
  int step;
  bool posted; /* this step's requests are */
  bool begun;
  tfd__mpi_frame here; /* written before they are read, as `there` */
  tfd__mpi_frame there;
} tfd__mpi_round;

/* Numbers of pieces of the value that goes round. */
typedef struct tfd__mpi_ring {
  int value; /* c.values = all that are long have gone */
  bool cancelled;
  int64_t pieces; /* of each share */
  int64_t asked;  /* for */
  int64_t come;   /* of those, and were added */
  int64_t sent;
  int64_t gone; /* of those: MPI is done with them */
  MPI_Request gets[TFD_MPI_WINDOW];
  MPI_Request sends[TFD_MPI_WINDOW];
  char *places; /* where they come to that are added */
} tfd__mpi_ring;

/* One block of memory with what it points to, but for requests and places. */
typedef struct tfd__mpi_work {
  struct tfd__mpi_work *next; /* of the group, in order */
  tfd__collective c;          /* with pieces and counts of its own */
  tfd__piece *in;
  tfd__piece *out;
  int pieces; /* in each of the two */
  tfd__mpi_part *parts;
  uint64_t *seqs;  /* of the local devices: inputs are there */
  uint64_t number; /* of the collective, from 1 */
  uint64_t hash;   /* of what is called: what all must agree on */
  uint64_t what;   /* tfd__collective_what, and the first value's */
  uint64_t count;  /* number of elements */
  bool is_small;   /* the round brings the results */
  /* The driver's, but for `stage` and `ready` (under the lock). */
  tfd__mpi_stage stage;
  atomic_bool ready; /* inputs are there, says who waited for them */
  bool let_go;
  int turns; /* of callers, in vain */
  MPI_Request *requests;
  int requests_n;
  int requests_room;
  tfd__mpi_ring ring;
  tfd__mpi_round round; /* last: most of it is not cleared */
} tfd__mpi_work;

typedef enum tfd__mpi_note_type {
  TFD_MPI_NOTE_END = 1, /* the process has let go of the group */
  TFD_MPI_NOTE_ABORT
} tfd__mpi_note_type;

typedef struct tfd__mpi_note {
  int32_t type;
  int32_t code;
  int64_t exit;   /* tfd__exit of who hears it; at an end the status */
  uint64_t count; /* collectives that it has begun */
  char text[TFD_MPI_NOTE_TEXT];
} tfd__mpi_note;

/* What a process calls where they run apart. */
typedef struct tfd__mpi_call {
  uint64_t hash;
  uint64_t what;
  char text[TFD_MPI_TEXT];
} tfd__mpi_call;

struct tfd__mpi_group {
  struct tfd__mpi_group *next;
  tfd_device **devices;
  int local;
  int base;
  int size;
  int process;
  int processes;
  uint64_t begun;
  /* Under the lock. */
  tfd__mpi_work *first;
  tfd__error error;     /* why it has failed, code TFD_OK = it has not */
  tfd__mpi_work *early; /* the caller's: it drove it, in vain so far */
  bool open;
  bool tell;           /* others do not know of the failure */
  atomic_bool closing; /* nobody has it any more */
  /* The driver's. */
  MPI_Comm data;    /* what moves, and notes */
  MPI_Comm control; /* rounds */
  MPI_Request making[2];
  bool told;    /* what notes say is settled */
  bool sending; /* they are on their way, or there */
  bool reading;
  tfd__mpi_note sent;
  MPI_Request *sends;
  tfd__mpi_note received;
  MPI_Request receive;
  uint64_t *ended; /* of each process: collectives until its end + 1; 0 = on */
  tfd__mpi_call *calls; /* of each process */
  MPI_Request comparing;
  tfd__mpi_call own_call;
  tfd__deadline compare_until;
  uint64_t apart; /* number of that collective, 0 = none */
  int *statuses;  /* with which processes ended that have */
  /* What processes tell each other for their control over TCP: this one's card,
  ** then all of them. */
  uint8_t *cards; /* under the lock until it is wanted */
  size_t card_bytes;
  bool cards_wanted; /* under the lock, as the next */
  bool cards_there;
  bool cards_asked;
  MPI_Request dealing;
  tfd__mesh *beside;  /* control over TCP; NULL = there is none */
  bool is_controlled; /* under the lock: others hear of failures by that */
  atomic_bool held;   /* somebody has the group, or is letting go of it */
};

/* --- world ---------------------------------------------------------------- */

/* What the thread shares with callers; `lock` is of rank 4 and never held over
** calls of MPI or of the library. */
typedef struct tfd__mpi_world {
  tfd__mutex lock;
  tfd__cond changed; /* for callers */
  tfd__cond news;    /* for the thread */
  bool started;
  bool up;         /* MPI is there, or `error` says why not */
  bool ours;       /* MPI was initialised by this thread */
  bool is_for_all; /* callers may drive */
  bool crowded;    /* more processes on this host than cores */
  bool driven;
  int callers;         /* that drive, or wait until they can */
  bool leaving;        /* the process ends */
  int status;          /* with this exit status */
  bool over;           /* the thread makes no call any more */
  bool more;           /* there is something new for the thread */
  tfd__deadline limit; /* the end waits no longer for the thread */
  tfd__error error;
  tfd__world world;
  MPI_Comm comm;
  MPI_Comm farewell; /* the end's: groups that were given up while they were
                     ** made may have calls under way on the other one */
  MPI_Op least;
  MPI_Op most;
  tfd__mpi_group *groups; /* under the lock */
} tfd__mpi_world;

extern tfd__mpi_world tfd__mpi;
extern const tfd__provider tfd__mpi_provider;

/* Something has changed for the thread or for who waits; the lock is held. */
static inline void tfd__mpi_wake(void) {
  tfd__mpi.more = true;
  tfd__cond_broadcast(&tfd__mpi.changed);
  if (tfd__mpi.callers == 0 || !tfd__mpi.is_for_all) {
    tfd__cond_broadcast(&tfd__mpi.news);
  }
}

/* Start the thread and MPI, once; every caller waits until they are up.
** Errors: DeadlineExceeded; Unavailable, FailedPrecondition with the reason. */
int tfd__mpi_start(double start_timeout);
/* Was MPI asked for: by who started the process, or by TFDIST_TRANSPORT? */
bool tfd__mpi_is_wanted(void);

/* --- drive -------------------------------------------------------------------
 */

/* All groups once; true while anything is under way. *moving_p is set when data
** are. Whose turn it is to drive calls this. */
bool tfd__mpi_step_all(bool *moving_p);
/* A pause after turn number `turn` in vain: the longer the more there were,
** unless data move and are waited for. */
void tfd__mpi_rest(int turn, bool moving, bool waited);
/* For callers, who hold the lock, as in all below: drive until the work is
** done, its group has failed or `until` has passed, or wait for who does. */
void tfd__mpi_drive(tfd__mpi_group *own, tfd__mpi_work *w, tfd__deadline until);
/* The same for its group's only work, and only if nobody else drives. */
void tfd__mpi_drive_now(tfd__mpi_group *own, tfd__mpi_work *w,
                        tfd__deadline until);
/* For the thread: drive, as soon as no caller does, and stop to. */
void tfd__mpi_take(void);
void tfd__mpi_leave(void);

/* --- work --------------------------------------------------------------------
 */

static inline bool tfd__mpi_reduces(const tfd__collective *c) {
  return c->kind == TFD_COLLECTIVE_ALL_REDUCE ||
         c->kind == TFD_COLLECTIVE_REDUCE ||
         c->kind == TFD_COLLECTIVE_REDUCE_SCATTER;
}

/* Of messages of data; 1 is that of notes. */
static inline int tfd__mpi_tag(const tfd__mpi_work *w) {
  return 2 + (int)(w->number % TFD_MPI_TAGS);
}

/* With copies of all that `c` points to. */
int tfd__mpi_work_new(const tfd__group *g, const tfd__collective *c,
                      tfd__mpi_work **w_p);
/* Say what is called, as a number, and whether it is small: what all must agree
** on. */
void tfd__mpi_sign(const tfd__group *g, tfd__mpi_work *w);
/* Does value k go round the ring? */
bool tfd__mpi_is_long(const tfd__mpi_group *g, const tfd__mpi_work *w, int k);
/* What is called, for others to read. */
void tfd__mpi_describe(const tfd__mpi_work *w, char text[TFD_MPI_TEXT]);
void tfd__mpi_work_free(tfd__mpi_work *w);

/* --- round ------------------------------------------------------------------
 */

/* As far as it goes. True when all processes have been heard of; the group
** fails where MPI does. */
bool tfd__mpi_round_on(tfd__mpi_group *g, tfd__mpi_work *w);
/* All have said the same; the round is over. */
bool tfd__mpi_round_agrees(const tfd__mpi_work *w);
/* To where results go. */
void tfd__mpi_round_take(const tfd__mpi_work *w);
/* MPI is done with the round's memory. */
bool tfd__mpi_round_settled(tfd__mpi_work *w);

/* --- group: the driver's part ----------------------------------------------
 */

/* Collectives alone, of a group that is open. */
void tfd__mpi_step_one(tfd__mpi_group *g, bool *moving_p);

/* Do what can be done now. True while anything is under way; *moving_p is set
** when data are. */
bool tfd__mpi_step(tfd__mpi_group *g, bool *moving_p);
/* All processes have let go of it, and its communicators are freed. */
bool tfd__mpi_is_over(tfd__mpi_group *g);
void tfd__mpi_group_free(tfd__mpi_group *g);

/* --- ring --------------------------------------------------------------------
 */

/* Errors: out of memory. */
int tfd__mpi_ring_begin(const tfd__mpi_group *g, tfd__mpi_work *w);
/* As far as it goes. True when all values have gone round; the group fails
** where MPI does. */
bool tfd__mpi_ring_on(tfd__mpi_group *g, tfd__mpi_work *w);
/* Of a group that has failed: no more is wanted. True when MPI is done with its
** memory. */
bool tfd__mpi_ring_settled(tfd__mpi_group *g, tfd__mpi_work *w);

/* --- move -------------------------------------------------------------------
 */

/* Post the requests of a collective, but for what goes round the ring. Errors:
** what MPI says; out of memory. */
int tfd__mpi_post(const tfd__mpi_group *g, tfd__mpi_work *w);
/* The error of an MPI call that answered `code`. */
int tfd__mpi_error(const char *call, int code);
/* The thread's error, if it is the first, is why the group has failed. The lock
** is not held. */
void tfd__mpi_fail(tfd__mpi_group *g, bool tell);
/* The same for what `call` answered. */
void tfd__mpi_fail_call(tfd__mpi_group *g, const char *call, int code);
MPI_Datatype tfd__mpi_type(int dtype);
MPI_Op tfd__mpi_op(tfd_reduce_op op, int dtype);
/* Reductions that MPI's own do not do with the same bits everywhere. */
void tfd__mpi_least(void *in, void *inout, int *n, MPI_Datatype *type);
void tfd__mpi_most(void *in, void *inout, int *n, MPI_Datatype *type);

#endif
