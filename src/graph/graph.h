#ifndef TFD_GRAPH_GRAPH_H
#define TFD_GRAPH_GRAPH_H
/* L6 graph: traced functions as data, passes over them, and their execution.
**
** A graph is what a recorder (ops) saw: nodes in the order of the calls, whose
** operands are numbers of values. There are two ways to run one:
** - replay: each node through the dispatcher. Any devices, sizes that become
**   known at the call, tapes that watch, steps of the host.
** - program: all nodes of one device lowered to prepared kernel calls over an
**   arena; a call fills in pointers and is one piece of work of the stream.
** Both give the bits of the ops run one by one.
**
** - pieces: a program for each device and stretch between devices and flows.
**
** A part is a graph inside another one: what its ops take from the graphs
** around it becomes its input. It only records; what runs is extracted from it.
** A flow is a node that runs such graphs: one of them, or one again and again.
** Graphs of flows have no graphs around them; so a flow is a function of its
** operands, but for steps of the host and the variables that it writes.
**
** Files, each above those before it: body (arrays), record, dead, common,
** forward, sizes, algebra, groups, plan, program (what runs), emit, fused,
** nodes, updates, blocks, lower (body to program), find, replay, execute,
** pieces, pieces_call, flow, text, call (the API), part. May include base ..
** ops; not autograd, distribute, comm. Specs: spec/graph, spec/c/graph_*.c. */

#include "backend/blocks.h"
#include "backend/strip.h"
#include "base/environment.h"
#include "base/profile.h"
#include "ops/ops.h"

/* --- the graph as data ---------------------------------------------------- */

typedef enum tfd__origin {
  TFD_FROM_NODE = 0,
  TFD_FROM_INPUT,
  TFD_FROM_CONSTANT,
  TFD_FROM_VARIABLE /* its place: what is read, and what updates begin with */
} tfd__origin;

typedef struct tfd__graph_value {
  tfd__view view; /* as recorded; sizes may be -1; no data */
  tfd_device *device;
  tfd__origin origin;
  int of; /* node, input, constant or variable */
} tfd__graph_value;

/* Fixed size; lists lie in the body's arrays from the index given here. */
typedef struct tfd__node {
  const tfd__op *op; /* NULL = a joint, a step of the host or a flow */
  tfd__joint *joint; /* borrowed of the graph */
  tfd_device *device;
  const char *file; /* NULL = no line of the script's: that of the call */
  const char *note; /* of the context in which it was recorded */
  int line;
  int replica;
  int in; /* operands: numbers of values, -1 = absent */
  int in_n;
  int out; /* the first of its values, which follow each other */
  int out_n;
  int targets; /* numbers of variables; of a flow those that it may write */
  int targets_n;
  int ints;
  int reals;
  int draw;        /* whose words its attributes take, -1 = none */
  int draw_slot;   /* the first of four ints */
  int numbers;     /* of the call that are its reals, from here; -1 = its own */
  bool alias;      /* a view, though the op has a kernel: casts to one's own */
  int flow;        /* number of its flow, -1 = none */
  int host;        /* number of the step of the host, -1 = none */
  bool unfollowed; /* tapes do not see it */
  bool reads;      /* a variable, as an operand: tapes see that in its place */
  bool effect;     /* it is a step of the host, or a flow with such in it */
  bool dead;
} tfd__node;

typedef struct tfd__body {
  tfd__graph_value *values;
  int values_n, values_room;
  tfd__node *nodes;
  int nodes_n, nodes_room;
  int *operands;
  int operands_n, operands_room;
  int *targets;
  int targets_n, targets_room;
  int64_t *ints;
  int ints_n, ints_room;
  double *reals;
  int reals_n, reals_room;
  int *results; /* numbers of values */
  int results_n, results_room;
} tfd__body;

/* Make room for `more` items of `size` bytes in a list. */
int tfd__list_grow(void **list_p, int n, int *room_p, int more, size_t size);
#define TFD_GROW(list, more)                                       \
  tfd__list_grow((void **)&(list), list##_n, &list##_room, (more), \
                 sizeof *(list))

/* An empty value at the end; its number in *number_p. */
int tfd__body_value(tfd__body *b, tfd__graph_value **value_p, int *number_p);
int tfd__body_copy(const tfd__body *from, tfd__body *to);
void tfd__body_free(tfd__body *b);
/* Is the node a view of its input 0? */
static inline bool tfd__node_is_view(const tfd__node *n) {
  return n->op != NULL && (n->alias || n->op->kernel == TFD_KERNEL_none);
}
/* Variable that the node reads, -1 = it is no read. */
int tfd__node_reads(const tfd__body *b, const tfd__node *n);
static inline bool tfd__node_is_host(const tfd__node *n) {
  return n->host >= 0;
}
/* Numbers that the node takes. */
static inline int tfd__node_reals(const tfd__node *n) {
  if (n->op != NULL) return n->op->reals_n;
  return n->joint == NULL ? 0 : n->joint->reals_n;
}
/* Must it run although nobody uses what it gives? */
static inline bool tfd__node_has_effect(const tfd__node *n) {
  return n->effect || n->joint != NULL || n->targets_n > 0;
}

/* Id or address -> number of a value. */
typedef struct tfd__value_map {
  uint64_t *keys; /* 0 = free */
  int *numbers;
  int n;
  int room; /* a power of two, or 0 */
} tfd__value_map;

typedef struct tfd__program tfd__program;
typedef struct tfd__replay tfd__replay;
typedef struct tfd__pieces tfd__pieces;

/* --- parts and flows ------------------------------------------------------ */

/* What an input stands for. */
typedef struct tfd__capture {
  tfd_tensor *outer; /* of a part: what it takes from around, owned; or NULL */
  int64_t source;    /* of an extracted graph: the part's input, or -1 - i for
                     ** the value of variable i before it runs */
  bool late;         /* the one when the gradient is asked for */
} tfd__capture;

/* Graphs that a node runs. Each of their inputs names one of the node's slots,
** which are its operands; while a loop runs, carries and rows among them are
** those of the iteration.
** - choice: slot 0 is the number of the graph that runs; what is out of range
**   takes the last. Results are its.
** - loop: graphs[0] is the body, graphs[1] the condition if there is one. Its
**   slots:
**   how often (absent with a condition, or where the first of the rows says
**   it), carries, rows (tensors of which an iteration gets one row), the rest.
**   The body gives the next carries, then
**   what is stacked. Results: carries, the count, stacks. */
typedef struct tfd__flow {
  tfd_graph **graphs; /* owned references */
  int *slots;         /* of all inputs of all graphs, in their order */
  int graphs_n;
  int carries_n; /* -1 = a choice */
  int rows_n;
  int stacks_n;
  int64_t most;  /* iterations at most, -1 = no bound */
  bool reversed; /* from the last row to the first; stacks are filled so too */
  bool strided;  /* iterations get carries as they lie, else dense */
} tfd__flow;

/* A node whose op ran at the trace, and what was said of its values. */
typedef struct tfd__refusal {
  int node;
  char *text;
} tfd__refusal;

enum { TFD_COUNT_SLOT = 0, TFD_CARRIES_SLOT = 1 }; /* of a loop */

#define TFD_GRAPH_PROGRAMS 8 /* for as many shapes of the inputs */

typedef struct tfd__given tfd__given;
typedef int tfd__run_fn(tfd_graph *g, tfd_tensor *const *inputs,
                        const tfd__given *given, tfd_tensor **outputs,
                        bool *ran_p);

struct tfd_graph {
  tfd__recorder recorder; /* first: symbolic tensors hold references to it */
  char *name;
  tfd__body body;
  tfd__value_map map;
  int *inputs; /* numbers of values */
  int inputs_n, inputs_room;
  tfd_tensor **constants; /* owned references */
  int constants_n, constants_room;
  tfd_variable **variables; /* owned references */
  int variables_n, variables_room;
  tfd_tensor **folded; /* owned references; of a root */
  int folded_n, folded_room;
  tfd__value_map folded_map; /* address -> number in the list */
  uint64_t first_id;         /* that no tensor from before the graph has */
  tfd__refusal *refusals;    /* while it records */
  int refusals_n, refusals_room;
  tfd__joint **joints; /* owned references */
  int joints_n, joints_room;
  int64_t *draws; /* words as they were at the trace, four each */
  int draws_n, draws_room;
  int numbers_n;          /* that each call is given */
  int hosts_n;            /* steps of the host, those in flows too */
  tfd__capture *captures; /* one for each input */
  int captures_n, captures_room;
  tfd__flow *flows;
  int flows_n, flows_room;
  int gradients;     /* node that they begin with, INT_MAX = there are none */
  tfd_graph *parent; /* the graph around a part; owned, NULL = none */
  bool complete;
  bool running;
  bool done;            /* all that runs has run */
  tfd_context *context; /* where it records; owned, NULL = it never did */
  tfd_context *outer;   /* the caller's while it records; owned */
  bool replays;         /* no program can be made of it */
  bool unfollowed;      /* tapes do not see its ops: who calls it records it */
  tfd__run_fn *run;     /* for those below that do not know how */
  tfd__program *programs[TFD_GRAPH_PROGRAMS]; /* the last used first */
  tfd__pieces *pieces;                        /* of devices and flows */
  tfd__replay *replay;                        /* the call that runs */
  tfd_tensor **outputs;                       /* of a program's call */
  char *text;
};

extern const tfd__type tfd__graph_type;

/* record.c */
int tfd__graph_see(tfd__recorder *self, const tfd__pending *op, bool *taken_p);
int tfd__graph_join(tfd__recorder *self, tfd__joint *j, tfd_tensor *const *in,
                    int in_n, tfd_variable *const *targets, int targets_n,
                    const double *reals, tfd_tensor *const *out);
int tfd__map_set(tfd__value_map *m, uint64_t key, int value);
int tfd__map_get(const tfd__value_map *m, uint64_t key); /* -1 = none */
/* Number of the value that t is in this graph; t becomes a constant if it is
** none yet. */
int tfd__graph_value_of(tfd_graph *g, tfd_tensor *t, int *number_p);

/* Append the numbers of what the objects are to the operands, -1 for NULL. To
** read a distributed variable records nodes: who asks takes its own place among
** nodes and values afterwards. */
int tfd__graph_operands(tfd_graph *g, tfd_object *const *objects, int n,
                        int *in_p);

/* refused.c */
const char *tfd__graph_refused(const tfd__tracer *self, const tfd_tensor *t);
void tfd__graph_free_refusals(tfd_graph *g);

/* Add an input of g. */
int tfd__graph_add_input(tfd_graph *g, const tfd__graph_value *value,
                         const tfd__capture *capture, int *number_p);
/* The graph that calls are made of: parts count draws and steps with it. */
static inline tfd_graph *tfd__graph_root(tfd_graph *g) {
  while (g->parent != NULL) g = g->parent;
  return g;
}

/* Recorders ask whether a symbolic tensor of another graph may be used: those
** around it. */
int tfd__graph_adopt(tfd__recorder *self, tfd_tensor *t, const char *what,
                     int i);
void tfd__flow_free(tfd__flow *f);

/* --- passes --------------------------------------------------------------- */

/* Mark nodes that neither have an effect nor serve a result. */
int tfd__pass_dead(tfd__body *b);
/* Let nodes that compute the same share one; variables are read once between
** two writes. */
int tfd__pass_common(tfd__body *b, int variables_n);

/* Let reads of a variable between two writes be what the first one gave, where
** nobody uses them after the second. */
int tfd__pass_forward(tfd__body *b, int variables_n);

/* Leave out nodes that give the bits of what they take. Sizes must be known. */
int tfd__pass_algebra(const tfd_graph *g, tfd__body *b);

/* Shapes of all values for inputs and variables of these. Errors: those of the
** ops' inference. */
int tfd__pass_sizes(const tfd_graph *g, tfd__body *b,
                    tfd_tensor *const *inputs);
/* Elementwise nodes of one shape that feed each other become groups, which a
** device runs as one pass over memory; so do a product and what its device does
** together with it (`stream` is the device's). Nodes are put in another order,
** in which each group's lie together; groups[k] says which one node k is in, -1
** = none; groups may be of one node. Sizes must be known. */
int tfd__pass_groups(tfd__body *b, int variables_n, const tfd__backend *backend,
                     tfd__stream *stream, int *groups);
/* The value that node n adds to all rows of v along the last axis, -1 = it does
** something else. */
int tfd__added_bias(const tfd__body *b, const tfd__node *n, int v);
/* As how many ops of a fused program the node counts: 0 = it cannot be part of
** one. */
int tfd__fused_ops(const tfd__body *b, const tfd__node *n,
                   const tfd__fuser *fuser);

/* A stretch of the arena that lives from instruction `first` to `last`. */
typedef struct tfd__stretch {
  size_t bytes;
  int first;
  int last;
  size_t offset; /* what the planner sets */
} tfd__stretch;

enum { TFD_ARENA_ALIGN = 64 };

/* Place all stretches; those that live at once do not meet. With `apart` none
** meet. Returns the size in *bytes_p. */
int tfd__plan(tfd__stretch *stretches, int n, bool apart, size_t *bytes_p);

/* --- programs ------------------------------------------------------------- */

/* Where the elements of a value lie. */
typedef enum tfd__place_kind {
  TFD_PLACE_ARENA = 0,
  TFD_PLACE_INPUT,
  TFD_PLACE_CONSTANT,
  TFD_PLACE_VARIABLE,
  TFD_PLACE_RESULT
} tfd__place_kind;

typedef struct tfd__place {
  tfd__view view; /* data is the offset in bytes */
  tfd__place_kind kind;
  int of; /* stretch, input, constant, variable or fresh buffer */
} tfd__place;

static inline size_t tfd__place_offset(const tfd__place *p) {
  return (size_t)(uintptr_t)p->view.data;
}

/* A pointer that each call fills in. */
typedef struct tfd__patch {
  int view;
  int slot;
  size_t offset;
} tfd__patch;

/* Words of a stream go from draw `from` to program->ints[to..to+3]. */
typedef struct tfd__redraw {
  int from;
  int to;
} tfd__redraw;

/* Numbers from..from+n-1 of the call go to program->reals[to...]. */
typedef struct tfd__renumber {
  int from;
  int to;
  int n;
  bool varies; /* they were others once than the time before */
} tfd__renumber;

/* What a call brings besides its inputs. */
struct tfd__given {
  const int64_t *words;
  const double *numbers;
};

/* What the caller gets for a result. */
typedef struct tfd__yield {
  tfd__view view;
  tfd__place_kind kind; /* RESULT, INPUT or CONSTANT */
  int of;
  size_t offset;
  int after; /* it is there once so many calls have run */
} tfd__yield;

/* Nodes that became one call. */
typedef struct tfd__fused {
  tfd__strip *strip;   /* of a group, else NULL */
  tfd__blocks *blocks; /* of calls that go row by row, else NULL */
  char *name;          /* of the call */
} tfd__fused;

/* A weight that a product of the program keeps in a layout of its own: from the
** second call on that finds the variable as the one before did, so that what is
** written again and again takes no memory. */
typedef struct tfd__keeping {
  tfd__kept_weight kept; /* of the call that runs */
  tfd__buffer *buffer;
  int variable;
  int64_t seen; /* version at the call before */
  bool refused; /* there was no memory */
} tfd__keeping;

/* Calls first .. first + n - 1 are recorded together, or (apart) are not. */
typedef struct tfd__batch {
  int first;
  int n;
  bool apart;
  tfd__launches *kept;
} tfd__batch;

/* What a run finds as attributes: the program, which of its calls are to run,
** and from the last of these on the pointers of all slots, words, numbers, and
** for each keeping the version and the memory. */
typedef enum tfd__frame_words {
  TFD_FRAME_PROGRAM = 0,
  TFD_FRAME_FIRST,
  TFD_FRAME_END,
  TFD_FRAME_SLOTS
} tfd__frame_words;

struct tfd__program {
  tfd_device *device;
  const char *name; /* of the graph, for a timeline; lives for ever */
  int64_t *layout;  /* sizes and strides of all inputs: what it is for */
  tfd__call *calls;
  int calls_n, calls_room;
  double *flops; /* of each call */
  int flops_n, flops_room;
  tfd__view *views;
  int views_n, views_room;
  int64_t *ints;
  int ints_n, ints_room;
  double *reals;
  int reals_n, reals_room;
  tfd__patch *patches;
  int patches_n, patches_room;
  tfd__redraw *redraws;
  int redraws_n, redraws_room;
  tfd__renumber *renumbers;
  int renumbers_n, renumbers_room;
  tfd__stretch *stretches;
  int stretches_n, stretches_room;
  tfd__buffer *arena;
  tfd__fused *fused; /* groups */
  int fused_n, fused_room;
  tfd__keeping **keepings;
  int keepings_n, keepings_room;
  tfd_tensor **constants; /* as they are on the device; owned references */
  int constants_n, constants_room;
  size_t *fresh; /* bytes of buffers that are made for each call */
  int fresh_n, fresh_room;
  tfd__yield *yields; /* one for each result */
  int yields_n, yields_room;
  bool *writes; /* for each variable: does it write it? */
  int inputs_n;
  int variables_n;
  int words_n;
  int keepings_at;     /* in the frame */
  tfd__batch *batches; /* of all calls, in order; none = they are not known */
  int batches_n, batches_room;
  bool batches_stale; /* others are better */
  bool *apart;        /* calls that no record takes; NULL = none is known */
  bool ran;           /* the frame and the attributes are those of a call */
  int submitted;      /* calls of the run that is being made */
  bool homeless;      /* there is no memory for more homes */
  /* For each slot what stands in for memory that is another one each time, NULL
  ** = nothing; and the pointers that calls get then. NULL = none has one. */
  tfd__buffer **homes;
  int64_t *at_home;
  int64_t *frame; /* of the call that is being made: see tfd__frame_words */
  tfd__buffer **made;
  tfd_tensor **ready;
};

/* Lower the body for inputs of these shapes. *program_p is NULL when no program
** can be made of it. */
int tfd__lower(tfd_graph *g, tfd_tensor *const *inputs,
               tfd__program **program_p);
void tfd__program_free(tfd__program *p);
/* --- launches (launches.c): a device may start those that come again at once
 */

/* Slot i is about to become `data`, dense memory of these bytes. */
void tfd__launches_see(tfd__program *p, int i, const void *data, size_t bytes);
/* The slots that calls get. */
const int64_t *tfd__launches_slots(tfd__program *p, const int64_t *slots);
/* Run calls first .. end - 1, which are all calls where the device starts
** launches that come again. */
int tfd__launches_run(tfd__program *p, const tfd__call *outer,
                      const int64_t *slots, int first, int end);
/* The homes are in use until position seq. */
void tfd__launches_made(const tfd__program *p, uint64_t seq);
/* Stretches of calls that are started at once by now, and how many calls. */
int tfd__launches_kept(const tfd__program *p, int *calls_p);
void tfd__launches_free(tfd__program *p);
void tfd__fused_free(const tfd__program *p, tfd__fused *own);
/* outputs: room for the results. Owns: what it puts there. */
int tfd__program_call(tfd_graph *g, tfd__program *p, tfd_tensor *const *inputs,
                      const tfd__given *given, tfd_tensor **outputs);
/* The same in steps: what it needs, and what it will give; calls up to number
** `end`, as often as wanted, at last up to calls_n; the end, whatever failed.
** Outputs stay the caller's. Where the device starts launches that come again
** all calls go at once. */
int tfd__program_begin(tfd_graph *g, tfd__program *p, tfd_tensor *const *inputs,
                       const tfd__given *given, tfd_tensor **outputs);
int tfd__program_go(tfd_graph *g, tfd__program *p, int end);
void tfd__program_end(tfd__program *p);

/* The program for inputs of these shapes, NULL where there can be
** none. */
int tfd__graph_program(tfd_graph *g, tfd_tensor *const *inputs,
                       tfd__program **program_p);
/* Run a graph without steps of the host, as a program where that can be.
** outputs: room for the results. Owns: what it puts there. */
int tfd__graph_run(tfd_graph *g, tfd_tensor *const *inputs,
                   const tfd__given *given, tfd_tensor **outputs);

/* Let go of all lists and programs. */
void tfd__graph_clear(tfd_graph *g);

/* --- pieces --------------------------------------------------------------- */

/* Split a graph without steps of the host into programs, one for each device
** and stretch between devices and flows. *pieces_p is NULL when that cannot
** be. */
int tfd__pieces_new(tfd_graph *g, tfd__pieces **pieces_p);
void tfd__pieces_free(tfd__pieces *p);
/* outputs: room for the results. Owns: what it puts there. */
int tfd__pieces_call(tfd_graph *g, tfd__pieces *p, tfd_tensor *const *inputs,
                     const tfd__given *given, tfd_tensor **outputs);
/* Run a graph that no tape follows as a program or as pieces; false in *ran_p
** where it is to be run node by node. Else like tfd__graph_run. */
int tfd__graph_try(tfd_graph *g, tfd_tensor *const *inputs,
                   const tfd__given *given, tfd_tensor **outputs, bool *ran_p);
/* How many there are, and the graph of each, borrowed, NULL for a joint or a
** flow. */
int tfd__pieces_count(const tfd__pieces *p);
tfd_graph *tfd__pieces_graph(const tfd__pieces *p, int i);
/* The node that a joint or a flow is, -1 = it is none. */
int tfd__pieces_alone(const tfd__pieces *p, int i);

/* --- replay --------------------------------------------------------------- */

typedef struct tfd__frame tfd__frame;

struct tfd__replay {
  tfd__frame *frame;   /* of the flow that runs; NULL = none */
  tfd_tensor **values; /* owned references, NULL = none (any more) */
  int *last;           /* node that uses a value last */
  int64_t *words;
  double *numbers;
  int next;     /* node */
  bool resumes; /* the node that failed had no effect: it may run again */
};

int tfd__replay_new(tfd_graph *g, tfd_tensor *const *inputs,
                    const tfd__given *given, tfd__replay **replay_p);
void tfd__replay_free(const tfd_graph *g, tfd__replay *r);
/* Run until the end or a step of the host, which node `next` - 1 then is. */
int tfd__replay_next(tfd_graph *g, tfd__replay *r, tfd_graph_event *event_p);

/* A value as it is now. Owns: *value_p. */
int tfd__replay_value(const tfd_graph *g, const tfd__replay *r, int v,
                      tfd_tensor **value_p);

/* Node k of g, a flow without steps of the host; `last` as tfd__body_lives has
** it. Owns: results, NULL for stacks that nobody uses. */
int tfd__flow_run(tfd_graph *g, int k, const int *last, const tfd__given *given,
                  tfd_tensor *const *operands, tfd_tensor **results);

/* The graph that runs inside, if it is replayed. */
tfd__replay *tfd__frame_inner(const tfd__frame *f, const tfd_graph **g_p);

/* Does the value stay what it is, whatever is written later? It is no
** variable's memory. `maker`: value -> node, -1 = none. */
bool tfd__body_keeps(const tfd__body *b, const int *maker, int v);
/* Last node that uses each value, views of it included; INT_MAX for results. */
void tfd__body_lives(const tfd__body *b, int *last);

#endif
