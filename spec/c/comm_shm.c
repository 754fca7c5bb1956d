/* Groups of processes that share memory: the case table, the same faults as
 *over
 ** sockets, and what only memory can do wrong. */
#define _GNU_SOURCE
#include <unistd.h>

#include "comm_processes.h"

static void every_case(void **state) {
  int processes;

  (void)state;
  for (processes = 1; processes <= MOST; processes++) {
    run_all(all_cases, processes, 1);
  }
  run_all(all_cases, 1, 2);
  run_all(all_cases, 2, 2);
  run_all(all_cases, 3, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case),
      FAULT_TESTS,
  };

  tested = "shm";
  configure("2", "queued");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
