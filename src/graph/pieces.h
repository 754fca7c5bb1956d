#ifndef TFD_GRAPH_PIECES_H
#define TFD_GRAPH_PIECES_H
/* What pieces.c and pieces_call.c share. */

#include "graph/graph.h"

typedef struct tfd__one_piece {
  tfd_graph *graph; /* owned; NULL = a joint or a flow alone */
  int alone;        /* which node of the whole's body that is, -1 = none */
  tfd_device *device;
  int level;
  int early; /* the joint whose parts begin while this program and those of its
             ** level that follow run; -1 = none */
  int *in;   /* numbers of the whole's values */
  int in_n, in_room;
  int *out;
  int out_n, out_room;
} tfd__one_piece;

struct tfd__pieces {
  tfd__one_piece *list; /* in the order they run */
  int list_n, list_room;
  tfd_tensor **values;     /* of the call, by number; owned while it is made */
  tfd_tensor **few;        /* inputs and results of a piece */
  tfd__program **programs; /* of pieces that run by turns; borrowed */
  int *last;               /* of values, as frames have it; NULL = no flows */
  int *results;            /* of the whole: numbers of values that there are */
  int results_n;
};

#endif
