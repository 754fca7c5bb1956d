#ifndef TFD_COMM_TCP_HELLO_H
#define TFD_COMM_TCP_HELLO_H
/* What both sides of a connection say before anything else. */

#include "comm/tcp/tcp.h"

enum { TFD_TALK_BYTES = TFD_HELLO_BYTES + TFD_PROOF_BYTES + TFD_VERDICT_BYTES };
#define TFD_TALK_SECONDS 5.0

typedef struct tfd__talk {
  int socket;
  bool connects; /* this side did */
  tfd__hello mine;
  tfd__hello theirs;
  const tfd__network *network;
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
  /* Results, when it is over. */
  bool agreed;
  tfd__verdict verdict;    /* the first reason against, of either side */
  int error;               /* the system's errno; 0 = the other side hung up */
  char who[TFD_WHO_BYTES]; /* (optional) who is in the way; `judge` says it */
} tfd__talk;

/* Errors: Unavailable without random bytes. */
int tfd__talk_begin(tfd__talk *t, int socket, bool connects,
                    const tfd__hello *mine, const tfd__network *network);
/* Send and hear what can be without waiting. *over_p: it has come to an end,
** good or bad. Errors: Unavailable without libcrypto. */
int tfd__talk_go_on(tfd__talk *t, bool *over_p);

#endif
