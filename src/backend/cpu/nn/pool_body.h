/* Template: define POOL_T (float or double), POOL_BITS (the integer of its
** size), POOL_WIDE (1: there are vectors of 8) and POOL_ID(name). Pooling at
** one output position: channels go by vectors that stay in registers while the
** taps pass. Each function handles channels [c, end); `out` is the position's
** first element in the output. */

typedef POOL_T POOL_ID(vec) __attribute__((vector_size(TFD_VECTOR_BYTES)));
typedef POOL_BITS POOL_ID(mask) __attribute__((vector_size(TFD_VECTOR_BYTES)));
typedef POOL_T POOL_ID(loose)
    __attribute__((vector_size(TFD_VECTOR_BYTES), aligned(4), may_alias));

enum { POOL_ID(width) = TFD_VECTOR_BYTES / (int)sizeof(POOL_T) };

#define POOL_LOAD(p) (*(const POOL_ID(loose) *)(p))
#define POOL_STORE(p, v) (*(POOL_ID(loose) *)(p) = (v))

static inline __attribute__((always_inline)) void
POOL_ID(at_max)(const pool_job *job, const tap_box *taps, int64_t out,
                int64_t c, int64_t end) {
  const POOL_T *x = (const POOL_T *)job->x + taps->first;
  POOL_T *y = (POOL_T *)job->out + out;

  for (; c + POOL_ID(width) <= end; c += POOL_ID(width)) {
    POOL_ID(vec) best = POOL_LOAD(x + c);

    EACH_TAP(taps, i) {
      POOL_ID(vec) v = POOL_LOAD(x + i + c);
      POOL_ID(mask) more = v > best;

      best = (POOL_ID(vec))((more & (POOL_ID(mask))v) |
                            (~more & (POOL_ID(mask))best));
    }
    POOL_STORE(y + c, best);
  }
  for (; c < end; c++) {
    y[c] = x[c];
    EACH_TAP(taps, i) y[c] = x[i + c] > y[c] ? x[i + c] : y[c];
  }
}

/* The tap that gave the maximum is the first one equal to it: `open` holds
** what is still to be handed out. */
static inline __attribute__((always_inline)) void
POOL_ID(at_max_grad)(const pool_job *job, const tap_box *taps, int64_t out,
                     int64_t c, int64_t end) {
  const POOL_T *x = (const POOL_T *)job->x + taps->first;
  const POOL_T *y = (const POOL_T *)job->y + out;
  const POOL_T *dy = (const POOL_T *)job->dy + out;
  POOL_T *dx = (POOL_T *)job->out + taps->first;

  for (; c + POOL_ID(width) <= end; c += POOL_ID(width)) {
    POOL_ID(vec) best = POOL_LOAD(y + c);
    POOL_ID(mask) open = (POOL_ID(mask))POOL_LOAD(dy + c);

    EACH_TAP(taps, i) {
      POOL_ID(mask) hit = POOL_LOAD(x + i + c) == best;
      POOL_ID(vec) part = (POOL_ID(vec))(open & hit);

      POOL_STORE(dx + i + c, POOL_LOAD(dx + i + c) + part);
      open &= ~hit;
    }
  }
  for (; c < end; c++) {
    POOL_T open = dy[c];

    EACH_TAP(taps, i) {
      bool hit = x[i + c] == y[c];

      dx[i + c] += hit ? open : 0;
      open = hit ? 0 : open;
    }
  }
}

/* Picks the third operand's value at the tap that gave the maximum. */
static inline __attribute__((always_inline)) void
POOL_ID(at_max_pick)(const pool_job *job, const tap_box *taps, int64_t out,
                     int64_t c, int64_t end) {
  const POOL_T *x = (const POOL_T *)job->x + taps->first;
  const POOL_T *y = (const POOL_T *)job->y + out;
  const POOL_T *from = (const POOL_T *)job->dy + taps->first;
  POOL_T *to = (POOL_T *)job->out + out;

  for (; c < end; c++) {
    bool open = true;

    to[c] = 0;
    EACH_TAP(taps, i) {
      bool hit = open && x[i + c] == y[c];

      to[c] = hit ? from[i + c] : to[c];
      open = open && !hit;
    }
  }
}

/* The maximum and its element's position in the image, or in the batch. */
static inline __attribute__((always_inline)) void
POOL_ID(at_argmax)(const pool_job *job, const tap_box *taps, int64_t out,
                   int64_t c, int64_t end) {
  const POOL_T *x = (const POOL_T *)job->x + taps->first;
  POOL_T *y = (POOL_T *)job->out + out;
  int64_t *where = job->argmax + out;
  int64_t image = out / (job->positions * end);
  int64_t origin =
      taps->first - (job->whole_batch ? 0 : image * job->pixels * end);

  for (; c < end; c++) {
    int64_t best = 0;

    EACH_TAP(taps, i) best = x[i + c] > x[best + c] ? i : best;
    y[c] = x[best + c];
    where[c] = origin + best + c;
  }
}

static inline __attribute__((always_inline)) void
POOL_ID(at_avg)(const pool_job *job, const tap_box *taps, int64_t out,
                int64_t c, int64_t end) {
  const POOL_T *x = (const POOL_T *)job->x + taps->first;
  POOL_T *y = (POOL_T *)job->out + out;
  POOL_T share = 1 / (POOL_T)(taps->n[0] * taps->n[1] * taps->n[2]);

  for (; c + POOL_ID(width) <= end; c += POOL_ID(width)) {
    POOL_ID(vec) sum = {0};

    EACH_TAP(taps, i) sum += POOL_LOAD(x + i + c);
    POOL_STORE(y + c, sum * share);
  }
  for (; c < end; c++) {
    POOL_T sum = 0;

    EACH_TAP(taps, i) sum += x[i + c];
    y[c] = sum * share;
  }
}

static inline __attribute__((always_inline)) void
POOL_ID(at_avg_grad)(const pool_job *job, const tap_box *taps, int64_t out,
                     int64_t c, int64_t end) {
  const POOL_T *dy = (const POOL_T *)job->dy + out;
  POOL_T *dx = (POOL_T *)job->out + taps->first;
  POOL_T share = 1 / (POOL_T)(taps->n[0] * taps->n[1] * taps->n[2]);

  for (; c + POOL_ID(width) <= end; c += POOL_ID(width)) {
    POOL_ID(vec) part = POOL_LOAD(dy + c) * share;

    EACH_TAP(taps, i)
    POOL_STORE(dx + i + c, POOL_LOAD(dx + i + c) + part);
  }
  for (; c < end; c++) EACH_TAP(taps, i) dx[i + c] += dy[c] * share;
}

#undef POOL_LOAD
#undef POOL_STORE

/* --- mixed widths --------------------------------------------------------- */

#if POOL_WIDE
#define POOL_LANES 8
#define POOL_PIECE(name) POOL_ID(name##_8)
#include "backend/cpu/nn/pool_lanes.h"
#endif
#define POOL_LANES 4
#define POOL_PIECE(name) POOL_ID(name##_4)
#include "backend/cpu/nn/pool_lanes.h"
#define POOL_LANES 2
#define POOL_PIECE(name) POOL_ID(name##_2)
#include "backend/cpu/nn/pool_lanes.h"

/* Runs `name`(taps, ...) over channels [c, end) from wide to narrow vectors;
** at most one channel is left. */
#if POOL_WIDE
#define POOL_PIECES(name, ...)                                 \
  for (; c + 8 <= end; c += 8) POOL_ID(name##_8)(__VA_ARGS__); \
  if (c + 4 <= end) POOL_ID(name##_4)(__VA_ARGS__), c += 4;    \
  if (c + 2 <= end) POOL_ID(name##_2)(__VA_ARGS__), c += 2
#else
#define POOL_PIECES(name, ...)                                 \
  for (; c + 4 <= end; c += 4) POOL_ID(name##_4)(__VA_ARGS__); \
  if (c + 2 <= end) POOL_ID(name##_2)(__VA_ARGS__), c += 2
#endif

static inline __attribute__((always_inline)) void
POOL_ID(at_max_mixed)(const pool_job *job, const tap_box *taps, int64_t out,
                      int64_t c, int64_t end) {
  const POOL_T *x = (const POOL_T *)job->x + taps->first;
  POOL_T *y = (POOL_T *)job->out + out;

  POOL_PIECES(put_max, taps, x + c, y + c);
  if (c < end) {
    POOL_T best = x[c];

    EACH_TAP(taps, i) best = x[i + c] > best ? x[i + c] : best;
    y[c] = best;
  }
}

static inline __attribute__((always_inline)) void
POOL_ID(max_grad_of)(const pool_job *job, const tap_box *taps, int64_t out,
                     int64_t c, int64_t end, bool apart) {
  const POOL_T *x = (const POOL_T *)job->x + taps->first;
  const POOL_T *y = (const POOL_T *)job->y + out;
  const POOL_T *dy = (const POOL_T *)job->dy + out;
  POOL_T *dx = (POOL_T *)job->out + taps->first;

  POOL_PIECES(add_max_grad, taps, x + c, y + c, dy + c, dx + c, apart);
  if (c < end) {
    POOL_T best = y[c];
    POOL_T open = dy[c];

    EACH_TAP(taps, i) {
      bool hit = x[i + c] == best;

      dx[i + c] = (apart ? 0 : dx[i + c]) + (hit ? open : 0);
      open = hit ? 0 : open;
    }
  }
}

static inline __attribute__((always_inline)) void
POOL_ID(at_max_grad_mixed)(const pool_job *job, const tap_box *taps,
                           int64_t out, int64_t c, int64_t end) {
  if (job->apart)
    POOL_ID(max_grad_of)(job, taps, out, c, end, true);
  else
    POOL_ID(max_grad_of)(job, taps, out, c, end, false);
}

static inline __attribute__((always_inline)) void
POOL_ID(at_avg_mixed)(const pool_job *job, const tap_box *taps, int64_t out,
                      int64_t c, int64_t end) {
  const POOL_T *x = (const POOL_T *)job->x + taps->first;
  POOL_T *y = (POOL_T *)job->out + out;
  POOL_T share = 1 / (POOL_T)(taps->n[0] * taps->n[1] * taps->n[2]);

  POOL_PIECES(put_avg, taps, x + c, y + c, share);
  if (c < end) {
    POOL_T sum = 0;

    EACH_TAP(taps, i) sum += x[i + c];
    y[c] = sum * share;
  }
}

static inline __attribute__((always_inline)) void
POOL_ID(avg_grad_of)(const pool_job *job, const tap_box *taps, int64_t out,
                     int64_t c, int64_t end, bool apart) {
  const POOL_T *dy = (const POOL_T *)job->dy + out;
  POOL_T *dx = (POOL_T *)job->out + taps->first;
  POOL_T share = 1 / (POOL_T)(taps->n[0] * taps->n[1] * taps->n[2]);

  POOL_PIECES(add_avg_grad, taps, dy + c, dx + c, share, apart);
  if (c < end) {
    POOL_T part = dy[c] * share;

    EACH_TAP(taps, i) dx[i + c] = (apart ? 0 : dx[i + c]) + part;
  }
}

static inline __attribute__((always_inline)) void
POOL_ID(at_avg_grad_mixed)(const pool_job *job, const tap_box *taps,
                           int64_t out, int64_t c, int64_t end) {
  if (job->apart)
    POOL_ID(avg_grad_of)(job, taps, out, c, end, true);
  else
    POOL_ID(avg_grad_of)(job, taps, out, c, end, false);
}

POSITIONS(POOL_T, POOL_ID(max))
POSITIONS(POOL_T, POOL_ID(max_pick))
POSITIONS(POOL_T, POOL_ID(argmax))
POSITIONS(POOL_T, POOL_ID(avg))
IMAGES(POOL_T, POOL_ID(max_grad))
IMAGES(POOL_T, POOL_ID(avg_grad))
POSITIONS(POOL_T, POOL_ID(max_mixed))
POSITIONS(POOL_T, POOL_ID(avg_mixed))
IMAGES(POOL_T, POOL_ID(max_grad_mixed))
IMAGES(POOL_T, POOL_ID(avg_grad_mixed))

#undef POOL_PIECES
