/* Template for pool_body.h: pooling of POOL_LANES neighbouring channels at one
** output position; pointers are at the first of them. Narrow vectors take the
** channels that are left over, without touching their neighbours. */

typedef POOL_T POOL_PIECE(vec)
    __attribute__((vector_size(POOL_LANES * sizeof(POOL_T))));
typedef POOL_BITS POOL_PIECE(mask)
    __attribute__((vector_size(POOL_LANES * sizeof(POOL_T))));
typedef POOL_T POOL_PIECE(loose)
    __attribute__((vector_size(POOL_LANES * sizeof(POOL_T)),
                   aligned(sizeof(POOL_T)), may_alias));

#define POOL_LOAD(p) (*(const POOL_PIECE(loose) *)(p))
#define POOL_STORE(p, v) (*(POOL_PIECE(loose) *)(p) = (v))

/* Values read before stay in registers: choosing by a masked load instead
** makes the maximum a third slower. */
#define POOL_KEEP() __asm__ volatile("" ::: "memory")

static inline __attribute__((always_inline)) void
POOL_PIECE(put_max)(const tap_box *taps, const POOL_T *x, POOL_T *y) {
  POOL_PIECE(vec) best = POOL_LOAD(x);

  EACH_TAP(taps, i) {
    POOL_PIECE(vec) v = POOL_LOAD(x + i);
    POOL_PIECE(mask) more;

    POOL_KEEP();
    more = v > best;
    best = (POOL_PIECE(vec))((more & (POOL_PIECE(mask))v) |
                             (~more & (POOL_PIECE(mask))best));
  }
  POOL_STORE(y, best);
}

/* The tap that gave the maximum is the first one equal to it: `open` holds
** what is still to be handed out. */
static inline __attribute__((always_inline)) void
POOL_PIECE(add_max_grad)(const tap_box *taps, const POOL_T *x, const POOL_T *y,
                         const POOL_T *dy, POOL_T *dx, bool apart) {
  POOL_PIECE(vec) best = POOL_LOAD(y);
  POOL_PIECE(mask) open = (POOL_PIECE(mask))POOL_LOAD(dy);

  EACH_TAP(taps, i) {
    POOL_PIECE(mask) hit = POOL_LOAD(x + i) == best;
    POOL_PIECE(vec) part = (POOL_PIECE(vec))(open & hit);

    if (!apart) part += POOL_LOAD(dx + i);
    POOL_STORE(dx + i, part);
    open &= ~hit;
  }
}

static inline __attribute__((always_inline)) void
POOL_PIECE(put_avg)(const tap_box *taps, const POOL_T *x, POOL_T *y,
                    POOL_T share) {
  POOL_PIECE(vec) sum = {0};

  EACH_TAP(taps, i) sum += POOL_LOAD(x + i);
  POOL_STORE(y, sum * share);
}

static inline __attribute__((always_inline)) void
POOL_PIECE(add_avg_grad)(const tap_box *taps, const POOL_T *dy, POOL_T *dx,
                         POOL_T share, bool apart) {
  POOL_PIECE(vec) part = POOL_LOAD(dy) * share;

  EACH_TAP(taps, i) {
    POOL_PIECE(vec) sum = part;

    if (!apart) sum += POOL_LOAD(dx + i);
    POOL_STORE(dx + i, sum);
  }
}

#undef POOL_KEEP
#undef POOL_LOAD
#undef POOL_STORE
#undef POOL_LANES
#undef POOL_PIECE
