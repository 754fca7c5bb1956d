#ifndef TFD_BASE_SPIN_H
#define TFD_BASE_SPIN_H
/* L0 base: the bound on how long idle OpenMP threads spin, as libgomp takes it
** from the environment before it starts: 1000 looks, about 25 to 50 us. Longer
** than waking a thread takes, so that a quiet machine loses little; too short
** to hold up much where other programs want the cores. */
#define TFD_SPIN_NAME "GOMP_SPINCOUNT"
#define TFD_SPIN TFD_SPIN_NAME "=1000"

/* Beginnings of the variables by which users say it themselves. */
#define TFD_SPIN_WISHES TFD_SPIN_NAME "=", "OMP_WAIT_POLICY="

#endif
