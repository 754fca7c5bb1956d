#ifndef TFD_COMM_COMM_H
#define TFD_COMM_COMM_H
/* L4 comm: groups of ranks, and what the ranks of a group do together.
**
** A group has `size` ranks, of which this process has `local`: rank base + i
** is its local rank i and works on devices[i]. The other ranks belong to other
** processes; each process makes the same calls in the same order, once for all
** its local ranks. Who moves and combines the bytes is the group's provider.
** Contract:
** G1 What local rank i gives and gets lies on devices[i], dense. Collectives
**    see runs of elements: shapes are the callers' affair.
** G2 Every rank gets the same bits. Sums are added in the order of ranks, half
**    types in float32, unless the provider says otherwise: what a process's
**    ranks have together, and a host's, is rounded before it meets others'.
** G3 A begun collective owns its memory until it is done: outputs are not read
**    before, inputs not written. Providers that are `ordered` do their work on
**    the devices' streams: there calls that are submitted later come after it,
**    and nobody need wait.
** G4 What leaves ranks apart (a peer that is gone, a deadline, an abort) fails
**    the group. It stays failed: calls, tests and waits answer Aborted with
**    the first cause. What is wrong with a call alone, and a failing kernel,
**    leave the group as it is.
** May include base, types, backend, device; tensors are unknown here. Mutex
** rank 4. Specs: spec/c/comm_*. */

#include "device/device.h"

#define TFD_MAX_LOCAL_RANKS 64

typedef struct tfd__group tfd__group;
typedef struct tfd__ticket tfd__ticket;
typedef struct tfd__provider tfd__provider;

/* --- groups --------------------------------------------------------------- */

/* Several processes, each with as many local ranks: process p has the ranks
** from p * local on. */
typedef struct tfd__network {
  int process; /* this one */
  int processes;
  const char *const *addresses; /* "host:port" of each; all have equal lists */
  const void *secret;           /* what all know and no stranger does */
  size_t secret_bytes;          /* 0 = none: for addresses of one machine */
  bool insecure;                /* none for others either */
  double start_timeout;         /* seconds to find all others; 0 = 300 */
  double beat_timeout; /* seconds of silence that a peer has at most; 0 = 10 */
  /* (comm's own) These processes have met, as some of a greater group; NULL =
  ** they have not. */
  const struct tfd__circle *within;
  /* (comm's own) The name of the provider that they meet for, which is the same
  ** in all; NULL = it need not be. Stays valid for ever. */
  const char *transport;
} tfd__network;

typedef struct tfd__group_config {
  const char *provider;       /* by name; NULL = the best that can */
  tfd_device *const *devices; /* of the local ranks; NULL = one without any */
  int local;
  int base;       /* rank of the first local one */
  int size;       /* ranks in all processes */
  double timeout; /* seconds that a wait without a deadline of its own takes at
                  ** most; 0 = 600 */
  double stall; /* seconds after which a wait says what it waits for; 0 = 30 */
  const tfd__network *network; /* NULL = all ranks are in this process */
  /* Provider "staged": a number of what the processes must all open it for, to
  ** open it at all; 0 = for itself. */
  uint64_t wanted_for;
} tfd__group_config;

/* How far a process is with a group's collectives, as others are told. */
typedef struct tfd__progress {
  uint64_t number; /* of the one begun last; 0 = none */
  uint64_t what;   /* tfd__collective_what of it */
  uint64_t count;
  bool waits; /* it waits for the others */
  int line;
  const char *file;
} tfd__progress;

struct tfd__group {
  tfd_object object; /* kind TFD_HANDLE_GROUP, never seen by users */
  const tfd__provider *provider;
  tfd_device **devices;
  int local;
  int base;
  int size;
  double timeout;
  double stall;
  int id;    /* number of those with other processes, in all of them alike */
  void *own; /* the provider's */
  tfd__group *next; /* of those with other processes; open.c's */
  bool unfit;       /* open found that the provider cannot serve these ranks */
  bool left;        /* the process ends, and has told the others */
  bool inner;       /* another one has it for its own collectives */
  atomic_bool failed;
  tfd__mutex lock;
  tfd__error cause; /* under `lock`, as all that follows */
  uint64_t begun;   /* collectives */
  uint8_t calls;    /* (tfd__group_leave) that are over, modulo 256 */
  uint8_t owed;     /* by the one that goes on: see tfd__group_enter */
  int depth;        /* of those that are not over */
  tfd__progress progress;
  struct tfd__attendant *attendant; /* NULL = it never had one */
  bool near; /* all processes are of this machine, as far as is known */
};

tfd__progress tfd__group_progress(tfd__group *g);

/* Blocks: as long as the provider needs to find the other ranks.
** Errors: NotFound for a provider that is not there, Unavailable for one that
**   cannot serve these ranks, both with what could be done. */
int tfd__group_new(const tfd__group_config *config, tfd__group **group_p);

/* A rank of its own without a device: what strategies without rules have. */
int tfd__group_solo(tfd__group **group_p);

/* Fail the group because of `reason`; every wait ends. Threads: any. */
void tfd__group_abort(tfd__group *g, const char *reason);
/* This process ends because of `reason`: fail all groups that have ranks of
** other processes, which are told. Threads: the one that lets groups go. */
void tfd__groups_abort(const char *reason);
/* This process ends in order: say farewell in all such groups, which cannot be
** used any more. Who still waits for it is told its exit status. Threads: as
** above. */
void tfd__groups_leave(int status);
/* The status of tfd__groups_leave, 0 before. Threads: any. */
int tfd__leaving_status(void);
/* Is there such a group? Threads: any. */
bool tfd__groups_are_far(void);
/* For providers: this thread's error is why the group fails, unless it has
** failed already. Returns the error's code. Threads: any. */
int tfd__group_fail(tfd__group *g);
/* Errors: Aborted with the first cause, once the group has failed; `what` is
** the collective's name wherever a call sees it, so that the words do not hang
** on when it does. */
int tfd__group_check(tfd__group *g, const char *what);

static inline bool tfd__group_is_alone(const tfd__group *g) {
  return g->local == g->size;
}

/* --- collectives ---------------------------------------------------------- */

typedef enum tfd__collective_kind {
  /* Every rank gets the reduction of all ranks' inputs. */
  TFD_COLLECTIVE_ALL_REDUCE = 0,
  /* Rank `root` alone gets it. */
  TFD_COLLECTIVE_REDUCE,
  /* Every rank gets rank root's input. */
  TFD_COLLECTIVE_BROADCAST,
  /* Every rank gets all inputs, one behind the other in the order of ranks. */
  TFD_COLLECTIVE_ALL_GATHER,
  /* Rank r gets part r of the reduction; the parts have equal sizes. */
  TFD_COLLECTIVE_REDUCE_SCATTER,
  /* Done when every rank has begun. */
  TFD_COLLECTIVE_BARRIER,
  /* Rank `root` alone gets all inputs, as in an all_gather. */
  TFD_COLLECTIVE_GATHER,
  /* Rank root's input is cut into pieces, one behind the other: rank r gets
  ** piece r. */
  TFD_COLLECTIVE_SCATTER,
  TFD_COLLECTIVES
} tfd__collective_kind;

const char *tfd__collective_name(tfd__collective_kind kind);

/* Something begins that all processes call alike, in which there may be
** collectives: *mark_p is for tfd__group_leave, which ends it. Errors ended
** `owed` such calls before they met others. Calls may lie within others: the
** outermost one counts. Threads: all three, the one that begins collectives. */
void tfd__group_enter(tfd__group *g, int owed, uint64_t *mark_p);
/* True when the outermost call has met others: then it counts, and what it owed
** does. Who catches an error before the collectives that the others wait in
** gives his next ones to them; where the next call meets nobody either, there
** was nothing to miss. error: what ended it, the first line; NULL = it ended
** well. */
bool tfd__group_leave(tfd__group *g, uint64_t mark, const char *error);
/* `call` of a collective that begins now. */
uint8_t tfd__group_call(tfd__group *g);

/* Elements of one value that one rank gives or gets. */
typedef struct tfd__piece {
  tfd__buffer *buffer; /* NULL: this rank has nothing to give or to get */
  const tfd__view *view;
} tfd__piece;

/* Several values go together: what local rank i has for value k is entry
** k * local + i of `in` and `out`. A rank's output may be its input; where one
** is longer, the shorter one may be this rank's part of it. */
typedef struct tfd__collective {
  tfd__collective_kind kind;
  tfd_reduce_op op; /* means are for floats only */
  int root;
  int values;
  const char *what; /* in messages */
  const tfd__piece *in;
  const tfd__piece *out;
  /* all_gather, gather: what rank r gives for value k, counts[k * size + r]
  ** elements; scatter: what it gets. NULL = all the same. */
  const int64_t *counts;
  int line;         /* script position, 0 = unknown */
  const char *file; /* interned, never freed */
  uint32_t about;   /* which variables it is about, as the context's */
  uint8_t call;     /* the group's `calls`: where it is known, all must agree */
  /* tfd__collective_what, but for the dtype, of the one that it is a part of;
  ** 0 = of none. */
  uint64_t whole;
  /* When it is given up, 0 = after the group's timeout. Only providers look at
  ** it, whose `begin` may wait: tfd__group_run sets it to its own. */
  tfd__deadline until;
} tfd__collective;

/* Begin; the caller owns *ticket_p and ends it. ticket_p may be NULL when the
** provider is ordered: nobody waits then, and failures surface where the
** devices' do. Everything that `c` points to is the caller's again when it has
** returned, but for the buffers' memory (G3).
** Errors: InvalidArgument when pieces do not go together; Aborted. */
int tfd__group_begin(tfd__group *g, const tfd__collective *c,
                     tfd__ticket **ticket_p);
/* Begin and, unless the results come in order anyway, wait until `until` (0 =
** the group's timeout). */
int tfd__group_run(tfd__group *g, const tfd__collective *c,
                   tfd__deadline until);

/* Fresh memory of local rank i for what it gives to collectives of the group,
** or gets: the provider's, where that saves it copies, or the device's.
** Errors: as tfd__buffer_new. */
int tfd__group_buffer(tfd__group *g, int i, size_t bytes,
                      tfd__buffer **buffer_p);

/* How an all_reduce of many values is sent as a few long ones. */
typedef struct tfd__pack_plan {
  int packs;      /* this many, of equal lengths; 0 = packs of whole values */
  int64_t bytes;  /* such a pack ends once it has more; 0 = one pack */
  bool backwards; /* the last value goes first */
} tfd__pack_plan;

/* tfd__group_run of an all_reduce whose values of each dtype go in packs.
** Where a rank's results of a dtype lie behind one another in one buffer, in
** the order in which they are packed, that is the packs' memory, and nothing is
** copied out. */
int tfd__group_all_reduce_packed(tfd__group *g, const tfd__collective *c,
                                 const tfd__pack_plan *plan,
                                 tfd__deadline until);

/* The same of values of one dtype that go in one pack, in two calls. `c`, with
** all that it points to, stays until the end. The provider is not ordered. */
typedef struct tfd__packed tfd__packed;
/* `attended`: as tfd__ticket_attend. Errors: as tfd__group_begin. Owns:
** *packed_p. */
int tfd__packed_begin(tfd__group *g, const tfd__collective *c, bool attended,
                      tfd__packed **packed_p);
/* Wait, after a recall if it was attended. Errors: as tfd__ticket_wait. */
int tfd__packed_wait(tfd__packed *p, tfd__deadline until);
/* Let go of it, done or not, as tfd__ticket_end. NULL allowed. */
void tfd__packed_end(tfd__packed *p);

/* Is it done? Takes a moment, in which devices that need a thread get on.
** Errors: the collective's own; Aborted. */
int tfd__ticket_test(tfd__ticket *t, bool *done_p);
/* Blocks: until it is done. Errors: as test; DeadlineExceeded, which fails the
** group, for nobody knows which ranks have their results; Cancelled. */
int tfd__ticket_wait(tfd__ticket *t, tfd__deadline until);
/* Let go of it, done or not (then the group is aborted). NULL allowed. */
void tfd__ticket_end(tfd__ticket *t);

/* A thread of the group's moves it on while the caller does other things: until
** tfd__group_recall nobody else looks at it. Those of a group are moved on in
** the order in which they were given. What fails the tickets tell whoever waits
** for them then. Where there can be no thread nothing happens.
** Cost: a thread for the group from the first one on; for each ticket that
** processes or devices keep waiting a look every millisecond. */
void tfd__ticket_attend(tfd__ticket *t);
/* The tickets are the caller's again, done or not. Blocks: for such a look. */
void tfd__group_recall(tfd__group *g);

/* --- sums that go on ------------------------------------------------------ */

/* A kernel that adds up what all local ranks have and goes on with the sum, on
** a range of elements: one pass where all ranks' memory can be reached from
** each device. */
typedef struct tfd__fused_call {
  tfd__call call; /* all but kernel and stream */
  int64_t *range; /* among call.ints: first element, one past the last */
  int64_t numel;  /* elements there are */
  uint64_t owner; /* small calls with one owner run in order, on one device */
} tfd__fused_call;

typedef struct tfd__fused {
  tfd__kernel_id kernel;
  int calls;
  int64_t elements; /* of all calls; exact below 1 << 20 */
  /* Complete call number k; what it points to lasts until the next. */
  void (*call)(void *arg, int k, tfd__fused_call *call_p);
  void *arg;
} tfd__fused;

bool tfd__group_can_fuse(const tfd__group *g, tfd__kernel_id kernel);
/* Submit the calls, each element of each once. Outputs are there for what is
** submitted to any of the devices later. Errors: Aborted; out of memory. */
int tfd__group_fuse(tfd__group *g, const tfd__fused *f);

/* --- providers ------------------------------------------------------------ */

#define TFD_PROVIDER_ABI 13

/* How far a provider came at once. */
typedef enum tfd__quick {
  TFD_QUICK_NOT = 0, /* nothing has happened */
  TFD_QUICK_BEGUN,   /* others may have heard of it: it must begin */
  TFD_QUICK_DONE
} tfd__quick;

/* The processes that were started together with this one. */
typedef struct tfd__world {
  int process; /* this one */
  int processes;
  const char *const *hosts; /* of each; texts and list live for ever */
} tfd__world;

typedef bool tfd__tend(void);

/* Who does a group's collectives. A slot that may be NULL says so and gets a
** default when the provider is registered: callers test none for NULL. */
struct tfd__provider {
  int abi;          /* TFD_PROVIDER_ABI; first for ever */
  const char *name; /* "shared" */
  int score;        /* the highest of those that can is taken */
  bool ordered;     /* G3 */
  /* Its reduce_scatter gives every element the bits of its all_reduce, whatever
  ** else is reduced with it. */
  bool scatters_alike;

  /* Why it cannot serve these ranks, as tfd__fail. NULL = it always can. */
  int (*can)(const tfd__group_config *config);
  /* Is it of use to ranks that can be served, when nobody named it? NULL = it
  ** always is. */
  bool (*pays)(const tfd__group_config *config);
  /* What its starter says, for providers that have one. NULL = it has none.
  ** Blocks: until all have said where they are, or start_timeout has passed. */
  int (*world)(double start_timeout, tfd__world *world_p);
  /* Set g->own, find the other ranks. When it turns out then, in all processes
  ** alike, that it cannot serve them, it sets g->unfit and fails. NULL =
  ** nothing. */
  int (*open)(tfd__group *g, const tfd__group_config *config);
  /* Nothing is under way any more. NULL = nothing. */
  void (*close)(tfd__group *g);

  /* Begin; pieces were checked. `t` is NULL or t->own is the provider's. NULL
  ** = made of broadcasts (defaults.c); broadcast itself must be there. */
  int (*begin[TFD_COLLECTIVES])(tfd__group *g, const tfd__collective *c,
                                tfd__ticket *t);
  /* Wait until it is done or `until` has passed, never much longer than 20 ms:
  ** the caller looks for failures and interrupts. Errors: the collective's.
  ** NULL, for ordered ones only = it is done when the devices are. */
  int (*wait)(tfd__ticket *t, tfd__deadline until, bool *done_p);
  /* Move on for a moment what this provider's groups have under way: somebody
  ** may wait there for who waits in another's. False when nothing needs it. The
  ** thread's error stays what it is. Threads: any. NULL = all gets on by
  ** itself. */
  tfd__tend *tend;
  /* What would be waited for at once and is small: do it within the time of a
  ** few waits, without a ticket, if it can be done now; else `begin` follows.
  ** `number` is the ticket's then. Pieces were checked. Errors: the
  ** collective's. NULL = it never can. */
  int (*quick)(tfd__group *g, const tfd__collective *c, uint64_t number,
               tfd__quick *progress_p);
  /* The caller needs it no more. NULL = nothing. */
  void (*end)(tfd__ticket *t);
  /* Who has not come to collective `number` yet, and where they are, as a part
  ** of a sentence; "" = everybody has, or nobody knows. NULL = nobody does. */
  void (*late)(tfd__group *g, uint64_t number, char *text, size_t bytes);
  /* The group has failed: stop what is under way, tell the other ranks.
  ** Threads: any. NULL = nothing. */
  void (*abort)(tfd__group *g);

  /* Memory for local rank i, where the provider reaches it more cheaply than
  ** other memory; *buffer_p stays NULL where it has none. NULL = it never
  ** has. */
  int (*lend)(tfd__group *g, int i, size_t bytes, tfd__buffer **buffer_p);

  /* NULL = never, and both are NULL. */
  bool (*can_fuse)(const tfd__group *g, tfd__kernel_id kernel);
  int (*fuse)(tfd__group *g, const tfd__fused *f);
};

/* Slots of a provider whose collectives all begin in the same way. */
#define TFD_BEGIN_ALL(fn)                                                    \
  {                                                                          \
    [TFD_COLLECTIVE_ALL_REDUCE] = (fn), [TFD_COLLECTIVE_REDUCE] = (fn),      \
    [TFD_COLLECTIVE_BROADCAST] = (fn), [TFD_COLLECTIVE_ALL_GATHER] = (fn),   \
    [TFD_COLLECTIVE_REDUCE_SCATTER] = (fn), [TFD_COLLECTIVE_BARRIER] = (fn), \
    [TFD_COLLECTIVE_GATHER] = (fn), [TFD_COLLECTIVE_SCATTER] = (fn)          \
  }

struct tfd__ticket {
  tfd__group *group; /* owned reference */
  tfd__collective_kind kind;
  bool done;
  uint64_t number;  /* of the group's collectives, from 1 */
  uint64_t flight;  /* where the recorder has it */
  tfd__error error; /* why it has no results; then it is never done */
  void *own;        /* the provider's */
  /* Positions of the local ranks' devices behind which the results are, of
  ** ordered providers. */
  uint64_t seqs[];
};

/* Memory that devices of one process share, and copies where they do not. */
extern const tfd__provider tfd__shared_provider;
/* Several processes of one machine, through memory that they share. */
extern const tfd__provider tfd__shm_provider;
/* Several processes, over TCP, */
extern const tfd__provider tfd__tcp_provider;
/* and with all_reduces in other ways (ways.h). */
extern const tfd__provider tfd__ring_provider;
extern const tfd__provider tfd__halving_provider;
extern const tfd__provider tfd__doubling_provider;
/* Several processes of several hosts: sums inside these, then between them. */
extern const tfd__provider tfd__hosts_provider;

/* Several processes, through memory of their hosts and over one of these. */
extern const tfd__provider tfd__staged_provider;

/* Bytes that each process has for all others. */
typedef struct tfd__exchange {
  const char *what; /* in messages */
  const void *mine;
  size_t bytes; /* as many in each process */
  void *all;    /* result: those of process p from p * bytes on */
  int line;     /* script position, 0 = unknown */
  const char *file;
  tfd__deadline until; /* 0 = the group's timeout */
} tfd__exchange;

/* Among the processes of a group of provider "staged". Blocks: until all have
** come, or the deadline. Errors: of a collective. */
int tfd__staged_exchange(tfd__group *g, const tfd__exchange *e);
/* tfd__group_check of a group of provider "staged" and of what it is made of.
** Threads: any. */
int tfd__staged_check(tfd__group *g, const char *what);
/* For providers made of another group: rc was its answer; if it has failed, g
** fails with its cause. Returns the code of what the caller is told. */
int tfd__group_fail_with(tfd__group *g, const tfd__group *other,
                         const char *what, int rc);

/* Add one to those that are built in; *p itself may go. A name that is there
** already is AlreadyExists. Threads: any. */
int tfd__provider_register(const tfd__provider *p);
/* The provider of this name, or, for NULL, the best below `score` that can
** serve `config`: in a network the one that TFDIST_TRANSPORT names. Plug-ins
** are opened when they are named, by the caller or by the devices' back end.
** Errors: NotFound with what could be done; why a plug-in cannot be opened. */
int tfd__provider_find(const char *name, const tfd__group_config *config,
                       int score, const tfd__provider **provider_p);
/* Errors: as find; FailedPrecondition for a provider that has no starter. */
int tfd__provider_world(const char *name, double start_timeout,
                        tfd__world *world_p);

/* The plug-in for who started this process and its companions ("mpi_openmpi"),
** NULL = nobody that a provider knows. A Slurm step alone is none: there MPI
** ends the process when it finds nobody to talk to. */
const char *tfd__starter(void);

#endif
