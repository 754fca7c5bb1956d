#ifndef TFD_COMM_TCP_WORK_H
#define TFD_COMM_TCP_WORK_H
/* Collectives under way over sockets: what tcp and stream share. Private to
** this folder. */

#include "comm/tcp/tcp.h"
#include "comm/tcp/turns.h"
#include "comm/ways.h"

/* Bytes of a frame at most; frames that may have come before they are added
** up. */
enum { TFD_TCP_FRAME = 256 << 10, TFD_TCP_WINDOW = 4 };

typedef enum tfd__tcp_phase {
  TFD_TCP_INPUT = 0, /* the devices are computing what is sent */
  TFD_TCP_EXCHANGE,
  TFD_TCP_REDUCE, /* the device adds up */
  TFD_TCP_SHARE,
  TFD_TCP_STEPS,  /* of a way that has them */
  TFD_TCP_STREAM, /* long values: exchange, sum and share at once */
  TFD_TCP_DIVIDE, /* the device makes a mean of their sum */
  TFD_TCP_DONE
} tfd__tcp_phase;

/* One value under way. */
typedef struct tfd__tcp_part {
  int64_t numel;
  int dtype;
  tfd__run_of mine; /* what this process gives; owned when owns_mine */
  bool owns_mine;
  tfd__run_of theirs; /* owned: what the others gave, process by process; of a
                      ** way with steps, what came in one */
  tfd__stretch share; /* what is added up here */
} tfd__tcp_part;

/* Of the frames whose sums are this process's. */
typedef struct tfd__tcp_cursor {
  int k;      /* value */
  int64_t at; /* element of its share */
  int frames; /* before it */
} tfd__tcp_cursor;

typedef struct tfd__tcp_work {
  tfd__turn turn; /* first: what has the turn is the work */
  tfd__kept kept;
  tfd__tcp_part *parts;
  tfd__post *posts;
  tfd__post **waited; /* of this phase */
  int posts_n;
  uint64_t number; /* of the collective */
  tfd__way way;
  int step;
  tfd__tcp_phase phase;
  bool streams;
  tfd__run_of ring;           /* owned: TFD_TCP_WINDOW frames of each process */
  tfd__tcp_cursor received;   /* what is posted next */
  tfd__tcp_cursor summed;     /* what is added up next */
  int posted[TFD_TCP_WINDOW]; /* first post of each frame in the ring */
} tfd__tcp_work;

typedef struct tfd__tcp_group {
  tfd__circle circle;
  int process;
  int processes;
  tfd__way way; /* of all_reduces; AUTO = the cheapest in order */
} tfd__tcp_group;

/* Elements [begin, end) of a run. */
tfd__run_of tfd__tcp_cut(const tfd__run_of *run, int64_t begin, int64_t end);
/* Where elements s of the result of value k are wanted here. */
tfd__run_of tfd__tcp_result(const tfd__group *g, const tfd__tcp_work *w, int k,
                            tfd__stretch s);
/* What a process adds up of a value. */
tfd__stretch tfd__tcp_share(const tfd__tcp_work *w, const tfd__tcp_part *p,
                            int processes, int process);
/* A frame to a process or from it; a run is NULL or as long as a frame at most.
** `numel` is the whole value's. */
void tfd__tcp_post(tfd__group *g, tfd__tcp_work *w, bool send, int process,
                   int tag, int64_t numel, const tfd__run_of *run);
/* A run in as many frames as it needs, at least one. */
void tfd__tcp_posts(tfd__group *g, tfd__tcp_work *w, bool send, int process,
                    int tag, int64_t numel, const tfd__run_of *run);

/* --- long values (stream.c) ----------------------------------------------- */

/* Are there long values, and all frames are added up on this thread? */
bool tfd__tcp_can_stream(const tfd__group *g, const tfd__collective *c,
                         tfd__way way);
int tfd__tcp_begin_stream(tfd__group *g, tfd__tcp_work *w);
/* As a provider's `wait`, but for the end of it. */
int tfd__tcp_stream(tfd__group *g, tfd__tcp_work *w, tfd__deadline until,
                    bool *over_p);

#endif
