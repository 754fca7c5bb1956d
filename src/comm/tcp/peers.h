#ifndef TFD_COMM_TCP_PEERS_H
#define TFD_COMM_TCP_PEERS_H
/* What mesh.c and, below it, data.c and lost.c share; nobody else includes
** it. */

#include <errno.h>
#include <poll.h>

#include "comm/looks.h"
#include "comm/tcp/tcp.h"

enum { CONTROL_BYTES = TFD_FRAME_BYTES + TFD_NOTE_BYTES };

typedef struct tfd__peer {
  int socket[TFD_CHANNELS]; /* -1 = this process, or over */
  char *address;            /* as all know it */
  uint32_t pid;
  tfd__post *sends; /* under the lock, as receives */
  tfd__post *receives;
  /* Whose the data is (see `driven`), */
  uint8_t header[TFD_FRAME_BYTES];
  size_t header_n;
  tfd__frame frame;
  int64_t data_end;  /* when the data connection ended; 0 = it has not */
  int data_error;    /* the system's errno; 0 = the other side closed it */
  int control_error; /* likewise; who reads it sets it */
  /* and the thread's alone. */
  int64_t heard;
  tfd__frame beat;   /* the last one; under the lock */
  atomic_bool left;  /* has said farewell */
  atomic_int status; /* with which it ends; set before */
  bool deaf;         /* its control frames make no sense: none is read */
  bool silent;       /* it is not waited for at the end */
  uint8_t in[CONTROL_BYTES];
  size_t in_n;
  uint8_t out[TFD_FRAME_BYTES + CONTROL_BYTES]; /* an abort behind a beat */
  size_t out_n;
  size_t out_done;
} tfd__peer;

struct tfd__mesh {
  tfd__group *group; /* borrowed: it owns this */
  int process;
  int processes;
  int64_t patience; /* ns of silence */
  int64_t looked;   /* when the thread looked last; its own, as the next */
  int64_t
      late_from; /* since when others wait for this process; 0 = none does */
  int64_t late_said;
  tfd__mutex lock; /* rank 3, below the group's */
  tfd__cond moved;
  int wake;
  atomic_bool driven; /* one of them moves data: it has set this */
  tfd__looks looks;   /* of those who wait */
  bool stopping;
  atomic_bool dropped; /* nobody touches a post any more; set under the lock */
  atomic_bool failed;  /* set under the lock */
  /* Why the group failed, for the others. Who heard of it passes it on: it may
  ** be gone before the process where it began has told everybody. */
  int note_code; /* TFD_OK = not yet */
  int note_from; /* where it began */
  tfd__exit note_exit;
  char note[TFD_NOTE_BYTES + 1];
  tfd__thread thread;
  tfd__peer *peers;
};

static inline bool tfd__is_for_later(int error) {
  return error == EAGAIN || error == EINTR;
}

/* What others are told of this process's progress, and what process p has told
** last. The lock is not held. */
tfd__frame tfd__my_beat(tfd__mesh *m);
tfd__frame tfd__last_beat(tfd__mesh *m, int process);
#define TFD_LAST_HEARD "was last heard of in"
/* "was last heard of in collective 7, all_reduce sum of float32[100] at
** train.lua:41"; `is_in` are the first words. */
void tfd__say_where(const tfd__frame *beat, const char *is_in, char *text,
                    size_t bytes);

/* This thread's error is why. The lock is not held. */
void tfd__mesh_fail(tfd__mesh *m);
/* Process p is why; the error says how, who it is, and where it and this
** process are. Connections stay: it may be there still, and should hear why. */
void tfd__mesh_lost(tfd__mesh *m, int p, const char *how);
void tfd__mesh_damaged(tfd__mesh *m, int p);
/* The thread looks at everything again. */
void tfd__mesh_wake(tfd__mesh *m);

/* Be the one who moves data; false when somebody else is. */
bool tfd__data_take(tfd__mesh *m);
void tfd__data_leave(tfd__mesh *m);
/* For who is: what a peer's data connection is to be polled for, */
short tfd__data_wanted(tfd__mesh *m, const tfd__peer *it);
/* what can be done after these events, */
void tfd__data_serve(tfd__mesh *m, int process, short events);
/* and, when the group has failed, nobody gets anything any more. */
void tfd__data_drop(tfd__mesh *m);
/* Bytes into p[*n_p..size); false when there are no more for now. */
bool tfd__peer_read(tfd__peer *it, tfd__channel c, void *p, size_t *n_p,
                    size_t size);

#endif
