#ifndef TFD_GRAPH_LOWER_H
#define TFD_GRAPH_LOWER_H
/* The making of a program, between the files that do it: emit (calls on
** places), fused (groups), nodes, updates (of optimizers), blocks (calls row
** by row), lower (the whole of it). */

#include "graph/graph.h"

typedef struct tfd__lowering {
  tfd_graph *g;
  tfd__body b; /* without common subexpressions; groups lie together */
  tfd__program *p;
  tfd__place *places; /* of each value */
  int *last;          /* node that uses it last */
  int *next_write;    /* of each node that reads a variable: the next write */
  int *groups;        /* of each node, -1 = it is in none */
  int *scales; /* of each update: value that scales its gradient, or -1 */
  int *until;  /* of each stretch: the last node that uses it */
  int until_n, until_room;
  tfd__place *seen; /* of each view of the program */
  int seen_n, seen_room;
  int *kernels; /* of each call of the program: its id */
  int kernels_n, kernels_room;
  int *fresh; /* of each stretch: buffer that it is, -1 = in the arena */
  bool fuses; /* several nodes may be one call */
  bool small; /* whatever their sizes, by few rows at a time: for tests */
  bool impossible;
} tfd__lowering;

static inline bool tfd__same_place(const tfd__place *a, const tfd__place *b) {
  return a->kind == b->kind && a->of == b->of;
}
/* A dense place of its own, which is used until that node. */
int tfd__emit_place(tfd__lowering *l, const tfd__view *like, int until,
                    tfd__place *place);
/* The place of a variable's new value, output `target` of the node. */
void tfd__emit_target(tfd__lowering *l, const tfd__node *n, int target,
                      const tfd__view *view, tfd__place *place);
/* One kernel call on these places, NULL = absent, in the name of a node. */
int tfd__emit_call(tfd__lowering *l, int node, tfd__kernel_id kernel,
                   const char *name, const tfd__place *const *in, int in_n,
                   const tfd__place *const *out, int out_n);
/* One more view behind those of the last call, which takes it into account. */
int tfd__emit_view(tfd__lowering *l, const tfd__place *place);
/* The last call's attributes are those of the node. */
int tfd__emit_attributes(tfd__lowering *l, const tfd__node *n);
/* The last call's next attribute is this number, or this address. */
int tfd__emit_int(tfd__lowering *l, int64_t number);
int tfd__emit_address(tfd__lowering *l, const void *address);
/* Of a group: "fused(add, multiply, tanh)", "add" of one. NULL = no memory. */
char *tfd__group_name(const tfd__node *nodes, int n);
/* What the program has of its own for a call; without a name there was no
** memory. Owns: it, from here on. */
int tfd__emit_own(tfd__lowering *l, tfd__fused own);
/* The last call, a product, keeps its weight, a variable's. */
int tfd__emit_kept(tfd__lowering *l, int variable, size_t bytes);
/* `place` becomes a dense copy of what it was, used until that node. */
int tfd__emit_copy(tfd__lowering *l, int node, int until, tfd__place *place);

/* Nodes first .. first + n - 1, a group, as one call. *done_p says whether that
** went and is worth it; else they are to be lowered one by one. */
int tfd__lower_group(tfd__lowering *l, int first, int n, bool *done_p);

/* Nodes from k on by their own calls: one, or a whole group; *n_p is how
** many. */
int tfd__lower_from(tfd__lowering *l, int k, int *n_p);

/* Likewise, where node k is an update of an optimizer: it and those that follow
** become one call. */
int tfd__lower_scales(tfd__lowering *l); /* before places are given */
bool tfd__lower_is_update(const tfd__lowering *l, int k);
int tfd__lower_updates(tfd__lowering *l, int k, int *n_p);

/* Let calls of the finished list that follow each other go row by row together.
 */
int tfd__lower_blocks(tfd__lowering *l);

#endif
