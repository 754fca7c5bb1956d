/* How gradients become sums of parts, and updated parts whole variables. */
#include <string.h>

#include "distribute/parts.h"

/* Bytes from which on a value goes to other processes by itself. */
enum { LONG_BYTES = 1 << 18 };

/* --- extents ------------------------------------------------------------- */

tfd__extent tfd__extent_of(tfd__buffer *b, const tfd__view *v, int64_t begin,
                           int64_t end) {
  tfd__extent w = {.buffer = b, .view = *v};
  int64_t n = end - begin;

  w.view.data = (char *)v->data + (size_t)begin * tfd__dtype_size(v->dtype);
  w.view.numel = n;
  w.view.rank = 1;
  w.view.dense = true;
  w.view.dims[0] = n;
  w.view.strides[0] = 1;
  return w;
}

static int extent_new(tfd_device *device, int dtype, int64_t n,
                      tfd__extent *w) {
  TFD_TRY(tfd__view_set(&w->view, dtype, &n, 1));
  TFD_TRY(tfd__buffer_new(device, tfd__view_bytes(&w->view), &w->buffer));
  w->view.data = w->buffer->data;
  return TFD_OK;
}

void tfd__extent_end(tfd__extent *w) {
  tfd__release(w->buffer);
  w->buffer = NULL;
}

static tfd__extent cut(const tfd__extent *w, int64_t begin, int64_t n) {
  return tfd__extent_of(w->buffer, &w->view, begin, begin + n);
}

static int copy(const tfd__extent *to, const tfd__extent *from) {
  if (to->view.numel == 0 || to->view.data == from->view.data) return TFD_OK;
  return tfd__copy_across(to->buffer, &to->view, from->buffer, &from->view);
}

/* --- packs ---------------------------------------------------------------- */

static bool goes_alone(const tfd__parts_job *j, int k, bool equal) {
  const tfd__view *v = tfd__whole_view(j, k);
  tfd__range first = tfd__part(j, k, 0);

  if (equal && (first.end - first.begin) * j->size != v->numel) return false;
  return tfd__group_is_alone(j->strategy->group) ||
         tfd__view_bytes(v) >= LONG_BYTES;
}

static int pack_with(tfd__parts_job *j, int dtype) {
  int p = 0;

  while (p < j->packs_n && j->packs[p].dtype != dtype) p++;
  if (p == j->packs_n) {
    j->packs[p] = (tfd__part_pack){.dtype = dtype};
    j->packs_n++;
  }
  return p;
}

/* Who goes with whom; with `equal`, values whose parts differ go in packs. */
static void plan(tfd__parts_job *j, bool equal) {
  int k;
  int r;

  j->packs_n = 0;
  memset(j->lengths, 0,
         (size_t)TFD_PART_PACKS * (size_t)j->size * sizeof *j->lengths);
  for (k = 0; k < j->variables; k++) {
    int p = goes_alone(j, k, equal)
                ? -1
                : pack_with(j, tfd__whole_view(j, k)->dtype);

    j->pack_of[k] = p;
    for (r = 0; p >= 0 && r < j->size; r++) {
      int64_t *length = &j->lengths[(ptrdiff_t)p * j->size + r];
      int64_t n = tfd__part(j, k, r).end - tfd__part(j, k, r).begin;

      j->at[(ptrdiff_t)k * j->size + r] = *length;
      *length += n;
      j->packs[p].total += n;
      if (*length > j->packs[p].most) j->packs[p].most = *length;
    }
  }
}

void tfd__parts_drop_packs(tfd__parts_job *j) {
  int p;
  int i;

  for (p = 0; p < j->packs_n; p++) {
    for (i = 0; i < j->n; i++) {
      tfd__extent_end(&j->packs[p].in[i]);
      tfd__extent_end(&j->packs[p].out[i]);
    }
  }
  j->packs_n = 0;
}

/* --- collectives ---------------------------------------------------------- */

/* What local replica i gives and gets of the value that is being added. */
static void add_pieces(tfd__parts_job *j, const tfd__extent *in,
                       const tfd__extent *out) {
  int at = j->pieces++;

  j->views[2 * at] = in->view;
  j->views[2 * at + 1] = out->view;
  j->in[at] = (tfd__piece){in->buffer, &j->views[2 * at]};
  j->to[at] = (tfd__piece){out->buffer, &j->views[2 * at + 1]};
}

static int run_group(tfd__parts_job *j, tfd__collective_kind kind) {
  const tfd_context *context = tfd__context();
  tfd__collective c = {.kind = kind,
                       .op = TFD_REDUCE_SUM,
                       .values = j->values,
                       .what = "apply_gradients",
                       .in = j->in,
                       .out = j->to,
                       .counts =
                           kind == TFD_COLLECTIVE_ALL_GATHER ? j->counts : NULL,
                       .line = context->line,
                       .file = context->file,
                       .about = context->about,
                       .call = tfd__group_call(j->strategy->group)};

  return tfd__group_run(j->strategy->group, &c, 0);
}

/* --- sums ----------------------------------------------------------------- */

static tfd__extent gradient(const tfd__parts_job *j, int k, int i) {
  const tfd_tensor *t = j->moved[(ptrdiff_t)k * j->n + i];

  return tfd__extent_of(t->buffer, &t->view, 0, t->view.numel);
}

/* Each rank's part of the pack has the length of the longest. */
static int fill_pack(tfd__parts_job *j, int p, int i) {
  tfd__part_pack *own = &j->packs[p];
  tfd_device *device = j->strategy->devices[i];
  int k;
  int r;

  TFD_TRY(extent_new(device, own->dtype, own->most * j->size, &own->in[i]));
  TFD_TRY(extent_new(device, own->dtype, own->most, &own->out[i]));
  for (k = 0; k < j->variables; k++) {
    tfd__extent from = gradient(j, k, i);

    for (r = 0; j->pack_of[k] == p && r < j->size; r++) {
      tfd__range s = tfd__part(j, k, r);
      tfd__extent to =
          cut(&own->in[i], r * own->most + j->at[(ptrdiff_t)k * j->size + r],
              s.end - s.begin);
      tfd__extent own_part = cut(&from, s.begin, s.end - s.begin);

      TFD_TRY(copy(&to, &own_part));
    }
  }
  return TFD_OK;
}

static int add_alone(tfd__parts_job *j, int k) {
  int i;

  for (i = 0; i < j->n; i++) {
    tfd__extent *sum = &j->sums[(ptrdiff_t)k * j->n + i];
    tfd__extent from = gradient(j, k, i);

    TFD_TRY(extent_new(j->strategy->devices[i], from.view.dtype,
                       from.view.numel / j->size, sum));
    add_pieces(j, &from, sum);
  }
  j->values++;
  return TFD_OK;
}

/* The sums of packed variables are stretches of their pack's. */
static void show_sums(tfd__parts_job *j) {
  int k;
  int i;

  for (k = 0; k < j->variables; k++) {
    for (i = 0; j->pack_of[k] >= 0 && i < j->n; i++) {
      int r = tfd__replica_of(j->strategy, i);
      tfd__range s = tfd__part(j, k, r);
      tfd__extent *sum = &j->sums[(ptrdiff_t)k * j->n + i];

      *sum = cut(&j->packs[j->pack_of[k]].out[i],
                 j->at[(ptrdiff_t)k * j->size + r], s.end - s.begin);
      tfd__retain(sum->buffer);
    }
  }
}

static int scatter(tfd__parts_job *j) {
  int k;
  int p;
  int i;

  plan(j, true);
  j->pieces = j->values = 0;
  for (k = 0; k < j->variables; k++) {
    if (j->pack_of[k] < 0) TFD_TRY(add_alone(j, k));
  }
  for (p = 0; p < j->packs_n; p++) {
    for (i = 0; i < j->n; i++) {
      TFD_TRY(fill_pack(j, p, i));
      add_pieces(j, &j->packs[p].in[i], &j->packs[p].out[i]);
    }
    j->values++;
  }
  TFD_TRY(run_group(j, TFD_COLLECTIVE_REDUCE_SCATTER));
  show_sums(j);
  tfd__parts_drop_packs(j);
  return TFD_OK;
}

/* Stretches of complete gradients. */
static void show_parts(tfd__parts_job *j) {
  int k;
  int i;

  for (k = 0; k < j->variables; k++) {
    for (i = 0; i < j->n; i++) {
      ptrdiff_t at = (ptrdiff_t)k * j->n + i;
      const tfd_tensor *t = j->moved[at];
      tfd__range s = tfd__part(j, k, tfd__replica_of(j->strategy, i));

      if (j->grads[at]->type == &tfd__slices_type) s.begin = 0;
      if (j->grads[at]->type == &tfd__slices_type) s.end = t->view.numel;
      j->sums[at] = tfd__extent_of(t->buffer, &t->view, s.begin, s.end);
      tfd__retain(t->buffer);
    }
  }
}

static int sum_whole(tfd__parts_job *j) {
  int at;

  TFD_TRY(tfd_strategy_all_reduce(j->strategy, TFD_REDUCE_SUM,
                                  "apply_gradients", j->grads,
                                  j->variables * j->n, &j->whole));
  for (at = 0; at < j->variables * j->n; at++) {
    tfd__release(j->moved[at]);
    j->moved[at] = NULL;
    TFD_TRY(tfd__tensor_in_place((tfd_tensor *)j->whole->components[at],
                                 j->strategy->devices[at % j->n],
                                 &j->moved[at]));
  }
  return TFD_OK;
}

int tfd__parts_add_up(tfd__parts_job *j) {
  const tfd__group *g = j->strategy->group;

  if (!j->summed && g->provider != NULL && g->provider->scatters_alike) {
    return scatter(j);
  }
  if (!j->summed) TFD_TRY(sum_whole(j));
  show_parts(j);
  return TFD_OK;
}

/* --- gathering ------------------------------------------------------------ */

/* Part r of local replica i's copy of variable k, in its new memory. */
static tfd__extent part_in_copy(const tfd__parts_job *j, int k, int i, int r) {
  tfd__view v = *tfd__whole_view(j, k);
  tfd__buffer *b = j->out[(ptrdiff_t)k * j->n + i];

  v.data = b->data;
  return tfd__extent_of(b, &v, tfd__part(j, k, r).begin,
                        tfd__part(j, k, r).end);
}

static void set_count(tfd__parts_job *j, int r, int64_t n) {
  j->counts[(ptrdiff_t)j->values * j->size + r] = n;
}

static void gather_alone(tfd__parts_job *j, int k) {
  int i;
  int r;

  for (i = 0; i < j->n; i++) {
    tfd__extent own = part_in_copy(j, k, i, tfd__replica_of(j->strategy, i));
    tfd__extent all = part_in_copy(j, k, i, 0);

    all =
        tfd__extent_of(all.buffer, &all.view, 0, tfd__whole_view(j, k)->numel);
    add_pieces(j, &own, &all);
  }
  for (r = 0; r < j->size; r++) {
    set_count(j, r, tfd__part(j, k, r).end - tfd__part(j, k, r).begin);
  }
  j->values++;
}

/* Where rank r's part of pack p begins among all. */
static int64_t pack_begin(const tfd__parts_job *j, int p, int r) {
  int64_t begin = 0;
  int q;

  for (q = 0; q < r; q++) begin += j->lengths[(ptrdiff_t)p * j->size + q];
  return begin;
}

/* Copy rank r's parts into replica i's pack (its own), or out of it. */
static int move_pack(tfd__parts_job *j, int p, int i, int r, bool out) {
  tfd__part_pack *own = &j->packs[p];
  int64_t begin = out ? pack_begin(j, p, r) : 0;
  int k;

  for (k = 0; k < j->variables; k++) {
    tfd__extent there;
    tfd__extent here;

    if (j->pack_of[k] != p) continue;
    here = part_in_copy(j, k, i, r);
    there = cut(out ? &own->out[i] : &own->in[i],
                begin + j->at[(ptrdiff_t)k * j->size + r], here.view.numel);
    TFD_TRY(out ? copy(&here, &there) : copy(&there, &here));
  }
  return TFD_OK;
}

static int gather_pack(tfd__parts_job *j, int p) {
  tfd__part_pack *own = &j->packs[p];
  const int64_t *lengths = &j->lengths[(ptrdiff_t)p * j->size];
  int i;
  int r;

  for (i = 0; i < j->n; i++) {
    tfd_device *device = j->strategy->devices[i];

    TFD_TRY(extent_new(device, own->dtype,
                       lengths[tfd__replica_of(j->strategy, i)], &own->in[i]));
    TFD_TRY(extent_new(device, own->dtype, own->total, &own->out[i]));
    TFD_TRY(move_pack(j, p, i, tfd__replica_of(j->strategy, i), false));
    add_pieces(j, &own->in[i], &own->out[i]);
  }
  for (r = 0; r < j->size; r++) set_count(j, r, lengths[r]);
  j->values++;
  return TFD_OK;
}

static int take_packs(tfd__parts_job *j) {
  int p;
  int i;
  int r;

  for (p = 0; p < j->packs_n; p++) {
    for (i = 0; i < j->n; i++) {
      for (r = 0; r < j->size; r++) {
        if (r != tfd__replica_of(j->strategy, i))
          TFD_TRY(move_pack(j, p, i, r, true));
      }
    }
  }
  return TFD_OK;
}

int tfd__parts_gather(tfd__parts_job *j) {
  int k;
  int p;

  plan(j, false);
  j->pieces = j->values = 0;
  for (k = 0; k < j->variables; k++) {
    if (j->pack_of[k] < 0) gather_alone(j, k);
  }
  for (p = 0; p < j->packs_n; p++) TFD_TRY(gather_pack(j, p));
  TFD_TRY(run_group(j, TFD_COLLECTIVE_ALL_GATHER));
  return take_packs(j);
}
