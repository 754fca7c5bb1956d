#ifndef BENCH_PIN_H
#define BENCH_PIN_H
/* A core for each of several processes, as mpirun's have: processes that wake
** each other are put on one core, where a look for what the other does is in
** vain. Needs _GNU_SOURCE. */

#include <sched.h>
#include <stddef.h>

/* This process, the k-th of n, gets the k-th core that it may have; where there
** are fewer than n it keeps all. */
static void pin_process(int k, int n) {
  cpu_set_t all;
  cpu_set_t own;
  size_t cpu = 0;

  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  if (CPU_COUNT(&all) < n) return;
  for (; k > 0 || !CPU_ISSET(cpu, &all); cpu++) k -= CPU_ISSET(cpu, &all) != 0;
  CPU_ZERO(&own);
  CPU_SET(cpu, &own);
  (void)sched_setaffinity(0, sizeof own, &own);
}

#endif
