#ifndef TFD_SPEC_SEED_H
#define TFD_SPEC_SEED_H
#include <stdlib.h>
#include <time.h>

/* The seed of what a test draws: TFD_TEST_SEED, which scripts/test.lua sets for
** all of its suites, or another one in each run. The test prints it. */
static unsigned long seed_of_run(void) {
  const char *given = getenv("TFD_TEST_SEED");

  return given != NULL ? strtoul(given, NULL, 10) : (unsigned long)time(NULL);
}

#endif
