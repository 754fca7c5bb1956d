/* What stands between kernels that refuse values and those that write where
** values show. */
#include "backend/cuda/kernels/stop_args.h"
#include "backend/cuda/kernels/dialect.h"

/* One block, a thread for each word and two for each stream. What the host has
** read is no word any more, but *refused says it. */
KERNEL(256, gate)(const tfd_cu_gate a) {
  int t = (int)threadIdx.x;
  uint64_t at = TFD_CU_GO_ON;

  if (t < a.n) {
    if (a.words[a.places[t]] != TFD_CU_GO_ON) at = a.seqs[t];
  } else if (t < a.n + 2 && a.refused != NULL) {
    uint64_t seq = a.refused[t - a.n];

    if (seq > a.told && seq <= a.seq) at = seq;
  } else if (t >= a.n + 2 && t < a.n + 4 && a.other != NULL) {
    uint64_t seq = a.other[t - a.n - 2];

    if (seq > a.other_told && seq <= a.until) at = a.seq;
  }
  BARRIER();
  if (t == 0 && a.clear != 0) *a.stop = TFD_CU_GO_ON;
  if (t == 0 && a.refused != NULL && *a.refused <= a.told) {
    *a.refused = TFD_CU_GO_ON;
  }
  BARRIER();
  if (at == TFD_CU_GO_ON) return;
  atomicMin((unsigned long long *)a.stop, at);
  if (a.refused != NULL) atomicMin((unsigned long long *)a.refused, at);
  if (t >= a.n + 2) note_bad(a.noted, 0, 0);
}
END_KERNEL(256, gate)
