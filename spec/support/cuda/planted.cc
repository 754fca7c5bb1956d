/* planted SEED: run each planted kernel with and without its bug, a line for
** each: name, what the model says without the bug, what it says with it. */
#include "planted.h"

#include <stdio.h>
#include <stdlib.h>

#include "model.h"

static const char *outcome(const tfd_model_kernel *k, bool right,
                           unsigned seed) {
  planted_args args = {};
  void *memory[2];

  for (void *&p : memory) {
    if (posix_memalign(&p, 512, PLANTED_N * sizeof(float)) != 0) abort();
    for (int i = 0; i < PLANTED_N; i++) ((float *)p)[i] = (float)i;
    tfd_race_memory(p, PLANTED_N * sizeof(float), true);
  }
  args.in = (const float *)memory[0];
  args.out = (float *)memory[1];
  args.right = right;
  const char *problem = tfd_model_run(k, 2, 256, &args, seed);

  for (void *p : memory) {
    tfd_race_memory(p, PLANTED_N * sizeof(float), false);
    free(p);
  }
  return problem == nullptr ? "nothing" : problem;
}

int main(int argc, char **argv) {
  unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 0;

  for (const tfd_model_kernel *k = tfd_model_kernels; k != nullptr;
       k = k->next) {
    printf("%s\t%s\t", k->name, outcome(k, true, seed));
    printf("%s\n", outcome(k, false, seed));
  }
  return 0;
}
