/* The register machine for AVX2: vectors of 8 floats. */
#include "backend/cpu/strip/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define STRIP_ID(name) name##_256
#define STRIP_ISA __attribute__((target("avx2")))
#define LANES 8
#include "backend/cpu/strip/lanes.h"

#define SQRT(x) ((vec)_mm256_sqrt_ps((__m256)(x)))
#define PICK(k, x, y) \
  ((vec)_mm256_blendv_ps((__m256)(y), (__m256)(x), (__m256)(k)))
#undef MORE_OF
#undef LESS_OF
#define MORE_OF(x, y) ((vec)_mm256_max_ps((__m256)(x), (__m256)(y)))
#define LESS_OF(x, y) ((vec)_mm256_min_ps((__m256)(x), (__m256)(y)))

/* Upper halves that are not zero slow down every SSE instruction. */
#undef LEAVE
#define LEAVE() _mm256_zeroupper()

#include "backend/cpu/strip/machine_body.h"
#endif
