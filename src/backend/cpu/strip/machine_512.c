/* The register machine for AVX-512: vectors of 16 floats, masks in registers of
** their own. */
#include "backend/cpu/strip/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>

#define STRIP_ID(name) name##_512
#define STRIP_ISA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES 16

typedef __m512 vec;

#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define LOAD_K(p)                                          \
  KEEP(_mm_cmpneq_epi8_mask(                               \
      _mm_loadu_si128((const __m128i *)(const void *)(p)), \
      _mm_setzero_si128()))
#define STORE_K(p, v) \
  _mm_storeu_si128((__m128i *)(void *)(p), _mm_maskz_set1_epi8(MASK(v), 1))
#define SPLAT(x) _mm512_set1_ps(x)
#define SQRT(x) _mm512_sqrt_ps(x)
#define MORE_OF(x, y) _mm512_max_ps(x, y)
#define LESS_OF(x, y) _mm512_min_ps(x, y)
#define LESS(x, y) _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ)
#define UP_TO(x, y) _mm512_cmp_ps_mask(x, y, _CMP_LE_OQ)
#define SAME(x, y) _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ)
#define DIFFER(x, y) _mm512_cmp_ps_mask(x, y, _CMP_NEQ_UQ)
#define PICK(k, x, y) _mm512_mask_mov_ps(y, k, x)
#define KEEP(k) _mm512_castsi512_ps(_mm512_movm_epi32(k))
#define MASK(x) _mm512_movepi32_mask(_mm512_castps_si512(x))
#define AND(x, y) _mm512_and_ps(x, y)
#define OR(x, y) _mm512_or_ps(x, y)
#define XOR(x, y) _mm512_xor_ps(x, y)
#define NOT(x) _mm512_xor_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32(-1)))
#define NEGATED(x) _mm512_xor_ps(x, SPLAT(-0.0f))
#define MAGNITUDE(x) _mm512_andnot_ps(SPLAT(-0.0f), x)

/* Upper halves that are not zero slow down every SSE instruction. */
#define LEAVE() _mm256_zeroupper()

#include "backend/cpu/strip/machine_body.h"
#endif
