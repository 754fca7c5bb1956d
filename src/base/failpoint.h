#ifndef TFD_BASE_FAILPOINT_H
#define TFD_BASE_FAILPOINT_H
/* L0 base: places in the code where a fault can be ordered from outside.
**
** TFDIST_FAILPOINTS="ckpt.after_data=kill;net.send=enospc@37@rank2": at the
** place, the action happens at each pass, or at the n-th alone, in every
** process or in one alone. A place costs one flag that is never set otherwise.
** Actions: a system error by its name (the place answers as if the system had),
** kill, stop, crash, exit:CODE, sleep:MS, and flip (one bit of the bytes that
** the place handles). Specs: spec/c/base_failpoint. */

#include <stdatomic.h>

#include "base/status.h"

/* Constant, name, whether it handles bytes, what it is. */
#define TFD_FAILPOINT_LIST(X)                                              \
  X(CKPT_CREATE, "ckpt.create", 0, "a file is to be created")              \
  X(CKPT_WRITE, "ckpt.write", 1, "a piece of a file is to be written")     \
  X(CKPT_AFTER_DATA, "ckpt.after_data", 0, "all bytes of it are given")    \
  X(CKPT_SYNC, "ckpt.sync", 0, "it is to be made durable")                 \
  X(CKPT_RENAME, "ckpt.rename", 0, "it is to get its own name")            \
  X(CKPT_AFTER_RENAME, "ckpt.after_rename", 0, "it has it")                \
  X(CKPT_SYNC_FOLDER, "ckpt.sync_folder", 0,                               \
    "a folder's names are to be made durable")                             \
  X(MEET_BEGIN, "meet.begin", 0, "a process looks for the others")         \
  X(MEET_DONE, "meet.done", 0, "it has found them all")                    \
  X(SHM_HAND, "shm.hand", 0, "it hands out shared memory, or asks for it") \
  X(NET_LISTEN, "net.listen", 0, "it takes its address")                   \
  X(NET_NAME, "net.name", 0, "it looks up a host, its own or another's")   \
  X(NET_CONNECT, "net.connect", 0, "it connects to another one")           \
  X(NET_ACCEPT, "net.accept", 0, "it accepts a connection")                \
  X(NET_HELLO, "net.hello", 1, "it says the first bytes of one")           \
  X(NET_VERDICT, "net.verdict", 0, "it agrees with whom it connects to")   \
  X(NET_TRANSPORT, "net.transport", 0,                                     \
    "it tells the others its transport; errors leave it out")              \
  X(NET_SEND, "net.send", 1, "it sends a frame of a collective")           \
  X(NET_RECEIVE, "net.receive", 1, "it has received one")                  \
  X(NET_BEAT, "net.beat", 0, "it sends a heartbeat; errors leave it out")  \
  X(ALLREDUCE_CHUNK, "allreduce.chunk", 0,                                 \
    "a value of an all_reduce goes to its next step")

typedef enum tfd__failpoint {
#define TFD_FAILPOINT_ID(id, name, bytes, what) TFD_FAILPOINT_##id,
  TFD_FAILPOINT_LIST(TFD_FAILPOINT_ID)
#undef TFD_FAILPOINT_ID
      TFD_FAILPOINTS
} tfd__failpoint;

/* What a place is told: 0 = go on, a system's errno, or this. */
#define TFD_FLIP (-1)

extern atomic_bool tfd__failpoints_on;

#define TFD_FAIL(id)                                                     \
  (TFD_LIKELY(                                                           \
       !atomic_load_explicit(&tfd__failpoints_on, memory_order_relaxed)) \
       ? 0                                                               \
       : tfd__failpoint_pass(TFD_FAILPOINT_##id))

int tfd__failpoint_pass(tfd__failpoint id);

/* Order what `text` says, NULL = nothing; what was ordered before is over.
** Errors: ValueError for what is no place or no action, naming it. */
int tfd__failpoints_set(const char *text);
/* The same from TFDIST_FAILPOINTS, unless that was done already. */
int tfd__failpoints_read(void);
/* Which process of a cluster this is: "@rank1" is for one alone. */
void tfd__failpoints_rank(int rank);

/* Name and description of a place, NULL = there are no more. */
const char *tfd__failpoint_name(int id);
const char *tfd__failpoint_what(int id);
/* All actions, between blanks. */
const char *tfd__failpoint_actions(void);

#endif
