/* Shape inference of every op with any views and attributes: no overflow, no
** wild read, and a view never leaves the memory of what it shows.
**
** Nothing is computed and no memory is behind the views, so sizes may be
** anything. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_INPUTS = 24 };

/* First and last element that a view reaches, counted from its data. */
static bool extent(const tfd__view *v, __int128 *low, __int128 *high) {
  int i;

  *low = 0;
  *high = 0;
  if (v->numel == 0) return false;
  for (i = 0; i < v->rank; i++) {
    __int128 reach = (__int128)(v->dims[i] - 1) * v->strides[i];

    if (reach < 0) *low += reach;
    if (reach > 0) *high += reach;
  }
  return true;
}

static void check_view(const tfd__view *v) {
  __int128 numel = 1;
  int i;

  MUST(tfd__dtype_ok(v->dtype));
  MUST(v->rank >= 0 && v->rank <= TFD_MAX_RANK);
  for (i = 0; i < v->rank; i++) MUST(v->dims[i] >= 0);
  for (i = 0; i < v->rank && numel != 0; i++) {
    numel *= v->dims[i];
    if (numel > INT64_MAX) {
      /* A later 0 makes it nothing after all. */
      numel = INT64_MAX;
    }
  }
  for (i = 0; i < v->rank; i++) {
    if (v->dims[i] == 0) numel = 0;
  }
  MUST(v->numel == (int64_t)numel);
}

/* A size: mostly small, sometimes up to 2^40. */
static int64_t input_size(input *in) {
  uint8_t b = input_byte(in);

  return b < 240 ? b % 6 : (int64_t)1 << (b - 215);
}

/* A dense view, transposed, reversed or with gaps now and then. */
static bool input_view(input *in, tfd__view *v) {
  int64_t dims[TFD_MAX_RANK];
  int rank = input_below(in, TFD_MAX_RANK + 1);
  int dtype = 1 + input_below(in, TFD_DTYPE_END - 1);
  int how = input_below(in, 8);
  int i;

  memset(v, 0, sizeof *v);
  for (i = 0; i < rank; i++) dims[i] = input_size(in);
  if (tfd__view_set(v, dtype, dims, rank) != TFD_OK) return false;
  if (how == 1 && rank > 1) {
    int64_t d = v->dims[0];
    int64_t s = v->strides[0];

    v->dims[0] = v->dims[rank - 1];
    v->strides[0] = v->strides[rank - 1];
    v->dims[rank - 1] = d;
    v->strides[rank - 1] = s;
  } else if (how == 2 && rank > 0) {
    v->strides[0] = -v->strides[0];
  } else if (how == 3 && rank > 0) {
    v->strides[rank - 1] = 0;
  }
  tfd__view_refresh(v);
  return true;
}

static void check_outputs(const tfd__infer *s) {
  __int128 low = 0;
  __int128 high = 0;
  int i;

  for (i = 0; i < s->out_n; i++) {
    const tfd__out_spec *o = &s->out[i];
    __int128 first = 0;
    __int128 last = 0;

    check_view(&o->view);
    if (!s->alias || !extent(&o->view, &first, &last)) continue;
    MUST(extent(s->in[0], &low, &high));
    if (s->dense_first && !s->in[0]->dense) {
      low = 0;
      high = s->in[0]->numel - 1;
    }
    MUST(o->offset + first >= low);
    MUST(o->offset + last <= high);
  }
}

static int inputs_of(input *in, const tfd__op *op) {
  return op->list_input ? 1 + input_below(in, MOST_INPUTS) : op->in_n;
}

static bool is_optional(const tfd__op *op, int i) {
  const char *p = op->schema;

  while (i-- > 0 && p != NULL) {
    p = strchr(p, ' ');
    if (p != NULL) p++;
  }
  if (p != NULL) p = strchr(p, ':');
  return p != NULL && p[1] != '\0' && p[2] == '?';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static tfd__view views[MOST_INPUTS];
  const tfd__view *pointers[MOST_INPUTS];
  int64_t ints[TFD_MAX_INTS] = {0};
  double reals[TFD_MAX_REALS] = {0};
  input in = {data, size};
  const tfd__op *op = NULL;
  tfd__infer s;
  int i;

  op = tfd__op_at((input_byte(&in) | input_byte(&in) << 8) % TFD_OP_N);
  memset(&s, 0, sizeof s);
  s.op = op;
  s.name = op->name;
  s.in_n = inputs_of(&in, op);
  if (s.in_n > MOST_INPUTS) s.in_n = MOST_INPUTS;
  for (i = 0; i < s.in_n; i++) {
    pointers[i] = &views[i];
    if (!op->list_input && is_optional(op, i) && input_below(&in, 2) == 0) {
      pointers[i] = NULL;
    } else if (i > 0 && input_below(&in, 3) == 0) {
      views[i] = views[i - 1];
    } else if (!input_view(&in, &views[i])) {
      return 0;
    }
  }
  input_slots(&in, op->schema, ints, reals);
  s.in = pointers;
  s.ints = ints;
  s.reals = reals;
  s.out_n = 1;
  s.out = s.small;
  if (op->infer(&s) == TFD_OK) check_outputs(&s);
  tfd__free(s.large);
  return 0;
}
