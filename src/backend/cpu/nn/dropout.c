/* Dropout: element i is kept where word i of a Philox stream says so, and the
** kept ones are scaled by 1 / (1 - rate). Running it again with the same
** stream drops the same elements, so no mask is stored for the gradient. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/random/philox.h"

#include <string.h>

typedef struct dropping {
  const tfd__view *in;
  const tfd__view *out;
  tfd__philox stream;
  uint32_t limit; /* words below it are dropped */
  double scale;
} dropping;

#define DROP_LOOP(type, load, store)                                         \
  do {                                                                       \
    const type *x = d->in->data;                                             \
    type *y = d->out->data;                                                  \
                                                                             \
    for (int64_t i = 0; i < n; i++) {                                        \
      y[first + i] =                                                         \
          words[i] < d->limit ? (type)0 : store(load(x[first + i]) * scale); \
    }                                                                        \
  } while (0)
#define PLAIN(x) (x)

TFD_CLONES static void drop_f32(const dropping *d, const uint32_t *words,
                                int64_t first, int64_t n) {
  const float scale = (float)d->scale;

  DROP_LOOP(float, PLAIN, PLAIN);
}

TFD_CLONES static void drop_f64(const dropping *d, const uint32_t *words,
                                int64_t first, int64_t n) {
  const double scale = d->scale;

  DROP_LOOP(double, PLAIN, PLAIN);
}

static void drop_half(const dropping *d, const uint32_t *words, int64_t first,
                      int64_t n) {
  const float scale = (float)d->scale;

  if (d->in->dtype == TFD_FLOAT16) {
    DROP_LOOP(uint16_t, tfd__half_to_float, tfd__float_to_half);
  } else {
    DROP_LOOP(uint16_t, tfd__bf16_to_float, tfd__float_to_bf16);
  }
}

/* Pieces are whole bulks, so an element's word never depends on the cut. */
static void drop_bulks(void *arg, int64_t begin, int64_t end) {
  const dropping *d = arg;
  uint32_t words[TFD_PHILOX_WORDS];

  for (int64_t bulk = begin; bulk < end; bulk++) {
    int64_t first = bulk * TFD_PHILOX_WORDS;
    int64_t n = d->in->numel - first;

    if (n > TFD_PHILOX_WORDS) n = TFD_PHILOX_WORDS;
    tfd__philox_bulk(&d->stream, (uint64_t)bulk * TFD_PHILOX_BLOCKS, words);
    if (d->in->dtype == TFD_FLOAT32) {
      drop_f32(d, words, first, n);
    } else if (d->in->dtype == TFD_FLOAT64) {
      drop_f64(d, words, first, n);
    } else {
      drop_half(d, words, first, n);
    }
  }
}

int tfd__cpu_dropout(const tfd__call *call) {
  double rate = call->reals[0];
  dropping d = {
      .in = tfd__in(call, 0),
      .out = tfd__out(call, 0),
      .stream = tfd__philox_of(call->ints, 0),
      .limit = (uint32_t)(rate * 4294967296.0),
      .scale = 1.0 / (1.0 - rate),
  };
  int64_t bulks = (d.in->numel + TFD_PHILOX_WORDS - 1) / TFD_PHILOX_WORDS;

  tfd__parallel_for(bulks, TFD_GRAIN / TFD_PHILOX_WORDS, drop_bulks, &d);
  return TFD_OK;
}
