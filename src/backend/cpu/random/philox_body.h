/* Template of tfd__philox_bulk over vectors of 64-bit lanes, one block to a
** lane. Words sit in the low halves; a multiplication reads only those, so the
** high halves may hold anything: each product is used as two words at once.
** The includer defines
**   PHILOX_ID(name), PHILOX_LANES, PHILOX_ISA (target attribute),
**   PHILOX_MUL(a, b): low halves to 64-bit products. */

typedef uint64_t PHILOX_ID(vec) __attribute__((vector_size(8 * PHILOX_LANES)));
typedef uint64_t PHILOX_ID(loose)
    __attribute__((vector_size(8 * PHILOX_LANES), aligned(4), may_alias));

PHILOX_ISA static void PHILOX_ID(bulk)(const tfd__philox *p, uint64_t first,
                                       uint32_t *words) {
  enum { LANES = PHILOX_LANES, PAIR = 2 };
  const PHILOX_ID(vec) zero = {0};
  const PHILOX_ID(vec) low = zero + 0xffffffffu;
  PHILOX_ID(vec) count = {0};
  PHILOX_ID(vec) odd = {0};
  PHILOX_ID(vec) even = {0};
  PHILOX_ID(vec) keys[10][2];

  for (uint32_t i = 0; i < 10; i++) {
    keys[i][0] = zero + (p->key[0] + i * 0x9E3779B9u);
    keys[i][1] = zero + (p->key[1] + i * 0xBB67AE85u);
  }
  for (int i = 0; i < LANES; i++) {
    count[i] = (uint64_t)i;
    /* lanes of two vectors, alternating; LANES + i is lane i of the second */
    even[i] = (uint64_t)(i / 2 + i % 2 * LANES);
    odd[i] = even[i] + LANES / 2;
  }
  /* Two vectors at a time hide the latency of the multiplications. */
  for (int at = 0; at < TFD_PHILOX_BLOCKS; at += PAIR * LANES) {
    PHILOX_ID(vec) x[PAIR][4];

    for (int j = 0; j < PAIR; j++) {
      x[j][0] = count + (first + (uint64_t)(at + j * LANES));
      x[j][1] = x[j][0] >> 32;
      x[j][2] = zero + p->stream[0];
      x[j][3] = zero + p->stream[1];
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
      for (int j = 0; j < PAIR; j++) {
        PHILOX_ID(vec) p0 = PHILOX_MUL(x[j][0], zero + 0xD2511F53u);
        PHILOX_ID(vec) p1 = PHILOX_MUL(x[j][2], zero + 0xCD9E8D57u);

        x[j][0] = (p1 >> 32) ^ x[j][1] ^ keys[round][0];
        x[j][2] = (p0 >> 32) ^ x[j][3] ^ keys[round][1];
        x[j][1] = p1;
        x[j][3] = p0;
      }
    }
    for (int j = 0; j < PAIR; j++) {
      PHILOX_ID(vec) a = (x[j][0] & low) | x[j][1] << 32;
      PHILOX_ID(vec) b = (x[j][2] & low) | x[j][3] << 32;
      uint32_t *to = words + 4 * (at + j * LANES);

      *(PHILOX_ID(loose) *)to = __builtin_shuffle(a, b, even);
      *(PHILOX_ID(loose) *)(to + 2 * LANES) = __builtin_shuffle(a, b, odd);
    }
  }
}
