#ifndef TFD_COMM_TCP_HELLO_H
#define TFD_COMM_TCP_HELLO_H
/* What both sides of a connection say before anything else. */

#include "comm/tcp/tcp.h"

enum { TFD_TALK_BYTES = TFD_HELLO_BYTES + TFD_PROOF_BYTES + TFD_VERDICT_BYTES };
#define TFD_TALK_SECONDS 5.0

/* A verdict is a number, words and, where both have a secret, a proof over all
** that was said: neither is believed without. */
typedef struct tfd__talk {
  int socket;
  bool connects; /* this side did */
  tfd__hello mine;
  tfd__hello theirs;
  const tfd__network *network; /* the secret; addresses if known */
  const char *transport;       /* its name now; NULL = unknown */
  /* (optional) What else there is against who says `theirs` and has proved the
  ** secret; who accepts knows. */
  tfd__verdict (*judge)(void *arg, struct tfd__talk *t);
  void *arg;
  char host[TFD_FAR_BYTES]; /* (optional) whose it is; who accepts knows */
  tfd__deadline until;
  uint8_t my_hello[TFD_HELLO_BYTES];
  uint8_t out[TFD_TALK_BYTES];
  size_t out_n;
  size_t out_done;
  uint8_t in[TFD_TALK_BYTES];
  size_t in_n;
  size_t wanted; /* bytes of `in` up to the end of this part */
  bool heard_all;
  bool comparable;     /* what is a proof on this side is one on theirs */
  tfd__verdict judged; /* on their hello, until they have proved anything */
  /* Results, when it is over. */
  bool agreed;
  bool proved;          /* they know the secret, or neither side has one */
  tfd__verdict verdict; /* the first reason against, of either side */
  int error;            /* the system's errno; 0 = the other side hung up */
  /* Words to the verdict: of this side, as `judge` says who is in the way, or
  ** what it has where they differ; and what theirs are. */
  char why[TFD_WHY_BYTES];
  char told[TFD_WHY_BYTES];
} tfd__talk;

/* Errors: Unavailable without random bytes. */
int tfd__talk_begin(tfd__talk *t, int socket, bool connects,
                    const tfd__hello *mine, const tfd__network *network);
/* Send and hear what can be without waiting. *over_p: it has come to an end,
** good or bad. Errors: Unavailable without libcrypto. */
int tfd__talk_go_on(tfd__talk *t, bool *over_p);

/* May words of both sides be said of it, and is it nobody's but the user's to
** mend? Then who connected ends. */
static inline bool tfd__is_difference(tfd__verdict v) {
  return v == TFD_VERDICT_PROTOCOL || v == TFD_VERDICT_CLUSTER ||
         v == TFD_VERDICT_LOCAL || v == TFD_VERDICT_TRANSPORT;
}

/* Is it between processes of one cluster, and so that both end? A process of
** another may be anybody's. */
static inline bool tfd__is_within_cluster(tfd__verdict v) {
  return v == TFD_VERDICT_LOCAL || v == TFD_VERDICT_TRANSPORT;
}

/* --- refusals (refuse.c) -------------------------------------------------- */

/* Put into t->why what this side has, where the verdict is that sides differ;
** "" = the hellos say it. */
void tfd__refusal_why(tfd__talk *t);
/* Fail with what both have, after a talk whose `proved` is true: in the same
** words on both sides. */
int tfd__fail_apart(const tfd__network *network, const tfd__talk *t,
                    int process);
/* Why a meeting has failed, as process `from` found, to one that has been met.
 */
void tfd__refusal_send(int socket, int from, const char *note);
/* Is there such a frame among those that have come, after others or before?
** Then it is in *f, and its words in note. Bytes are whoever's. */
bool tfd__refusal_find(const uint8_t *bytes, size_t n, tfd__frame *f,
                       char note[TFD_NOTE_BYTES + 1]);
/* Look for one, and leave what has come where it is. */
bool tfd__refusal_hear(int socket, tfd__frame *f,
                       char note[TFD_NOTE_BYTES + 1]);

#endif
