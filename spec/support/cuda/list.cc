/* The kernels as the model knows them: name, launch bound, bytes of argument.
 */
#include <stdio.h>

#include "model.h"

int main() {
  for (const tfd_model_kernel *k = tfd_model_kernels; k != nullptr; k = k->next)
    printf("%s %u %zu\n", k->name, k->threads, k->bytes);
  return 0;
}
