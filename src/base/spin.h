#ifndef TFD_BASE_SPIN_H
#define TFD_BASE_SPIN_H
/* L0 base: the bound on how long idle OpenMP threads spin, as libgomp takes it
** from the environment before it starts: as many looks as take about 25 us.
** Longer than waking a thread takes, so that a quiet machine loses little; too
** short to hold up much where other programs want the cores. What a look costs
** is the processor's pause, 4 to 50 ns, so it is measured. */
#include <stddef.h>
#include <stdint.h>

#define TFD_SPIN_NAME "GOMP_SPINCOUNT"
#define TFD_SPIN_DIGITS 5
#define TFD_SPIN_TEXT (sizeof TFD_SPIN_NAME "=" + TFD_SPIN_DIGITS)

/* Beginnings of the variables by which users say it themselves. */
#define TFD_SPIN_WISHES TFD_SPIN_NAME "=", "OMP_WAIT_POLICY="

/* Looks for 25 us, by how long 64 took; 1000 where that is not known (0). */
unsigned tfd__spin_looks(uint64_t ns_64);
/* "GOMP_SPINCOUNT=looks". Takes some 10 us, calls nothing of the C library. */
void tfd__spin_text(char text[TFD_SPIN_TEXT]);

#endif
