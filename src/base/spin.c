#include "base/spin.h"

#include "base/thread.h"

#define LOOKS 64
#define SPIN_NS 25000u
#define USUAL_LOOKS 1000u
#define MOST_LOOKS 20000u

unsigned tfd__spin_looks(uint64_t ns_64) {
  uint64_t looks = ns_64 == 0 ? USUAL_LOOKS : SPIN_NS * LOOKS / ns_64;

  if (looks < 100) return 100;
  return looks > MOST_LOOKS ? MOST_LOOKS : (unsigned)looks;
}

/* Nanoseconds by a counter of the processor: that needs no C library. x86's
** ticks at 2 to 4 GHz; 2.5 is near enough. */
static uint64_t counter_ns(void) {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc() * 2 / 5;
#elif defined(__aarch64__)
  uint64_t now, hertz;

  __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(now));
  __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
  return hertz < 1000000 ? 0 : now * 1000 / (hertz / 1000000);
#else
  return 0;
#endif
}

/* The best of four: an interrupt makes one longer. */
static uint64_t time_looks(void) {
  uint64_t best = UINT64_MAX;
  int round, i;

  for (round = 0; round < 4; round++) {
    uint64_t begin = counter_ns();

    for (i = 0; i < LOOKS; i++) tfd__relax();
    begin = counter_ns() - begin;
    if (begin < best) best = begin;
  }
  return best;
}

void tfd__spin_text(char text[TFD_SPIN_TEXT]) {
  static const char name[] = TFD_SPIN_NAME "=";
  unsigned looks = tfd__spin_looks(time_looks());
  unsigned digits = 1, left = looks;
  char *end;

  for (const char *c = name; *c != 0; c++) *text++ = *c;
  while (left >= 10) {
    left /= 10;
    digits++;
  }
  end = text + digits;
  *end = 0;
  for (; digits > 0; digits--) {
    *--end = (char)('0' + looks % 10);
    looks /= 10;
  }
}
