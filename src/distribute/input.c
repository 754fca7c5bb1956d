/* Who gets how much of a batch.
**
** Names: G elements in a full batch (-1 = not known), n replicas in sync of all
** workers, worker w has the replicas w * R .. w * R + R - 1. Whole numbers
** below 2^53, so that no product here overflows. */
#include "distribute/distribute.h"

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Rows of a full batch before replica i: G / n for each, one more for the first
** G mod n. */
static int64_t full_before(int64_t G, int n, int i) {
  return G / n * i + least(G % n, i);
}

/* Rows before piece i where G is not known: ceil(rows / n) each, the last that
** is not empty shorter, the rest empty. */
static int64_t even_before(int64_t rows, int n, int i) {
  int64_t size = rows / n + (rows % n != 0);

  return least(size * i, rows);
}

/* With G known every replica gets its share of a full batch as long as rows are
** left, so a short batch fills replicas in order. Otherwise (also for a batch
** larger than G) the pieces are even. */
static int64_t before(int64_t rows, int64_t G, int n, int i) {
  if (G < 0 || rows > G) return even_before(rows, n, i);
  return least(full_before(G, n, i), rows);
}

static int check_numbers(const char *what, int64_t rows, int64_t G, int n,
                         int i) {
  if (rows < 0 || rows > TFD_MAX_ROWS || G < -1 || G > TFD_MAX_ROWS) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: %lld rows of batches of %lld; sizes are 0 or more, "
                     "-1 = a batch size that is not known",
                     what, (long long)rows, (long long)G);
  }
  if (n < 1 || n > TFD_MAX_IN_SYNC) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: %d replicas; expected 1 to %d", what,
                     n, TFD_MAX_IN_SYNC);
  }
  if (i < 0 || i >= n) {
    return tfd__fail(TFD_INDEX_ERROR, "%s: no replica %d; there are %d", what,
                     i, n);
  }
  return TFD_OK;
}

int tfd_input_piece(int64_t rows, int64_t batch, int replicas, int replica,
                    int64_t *first_p, int64_t *count_p) {
  TFD_GIVEN_POINTER(first_p);
  TFD_GIVEN_POINTER(count_p);
  TFD_TRY(check_numbers("input_piece", rows, batch, replicas, replica));

  int64_t first = before(rows, batch, replicas, replica);

  *first_p = first;
  *count_p = before(rows, batch, replicas, replica + 1) - first;
  return TFD_OK;
}

int tfd_input_turn(int64_t batch, int workers, int local, int worker,
                   int64_t turn, int64_t *count_p) {
  TFD_GIVEN_POINTER(count_p);
  if (workers < 1 || local < 1 || workers > TFD_MAX_IN_SYNC / local) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "input_turn: %d workers of %d replicas; expected 1 to %d "
                     "in all",
                     workers, local, TFD_MAX_IN_SYNC);
  }
  if (worker < 0 || worker >= workers || turn < 0) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "input_turn: turn %lld of worker %d; workers are 0 to %d, "
                     "turns count from 0",
                     (long long)turn, worker, workers - 1);
  }

  int n = workers * local;
  int i = (int)((turn % n + (int64_t)worker * local) % n);
  int64_t first = 0;

  TFD_TRY(check_numbers("input_turn", 0, batch, n, i));
  return tfd_input_piece(batch < 0 ? 0 : batch, batch, n, i, &first, count_p);
}

int tfd__strategy_input_share(const tfd_strategy *s, int64_t rows,
                              int64_t batch, int replica, int64_t *first_p,
                              int64_t *count_p) {
  return tfd_input_piece(rows, batch, s->group->size, replica, first_p,
                         count_p);
}

int tfd_strategy_input_share(const tfd_strategy *strategy, int64_t rows,
                             int64_t batch, int replica, int64_t *first_p,
                             int64_t *count_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(first_p);
  TFD_GIVEN_POINTER(count_p);
  return strategy->ops->input_share(strategy, rows, batch, replica, first_p,
                                    count_p);
}

/* Rows first .. first + count - 1 of t, on `device`. Owns: *out_p. */
static int rows_on(tfd_tensor *t, int64_t first, int64_t count,
                   tfd_device *device, tfd_tensor **out_p) {
  int64_t ints[2 * TFD_LIST_SLOTS] = {0};
  tfd_tensor *rows = NULL;
  int rank = t->view.rank;
  int n = 0;
  int i;
  int rc;

  ints[0] = rank; /* where the slice begins */
  ints[1] = first;
  ints[TFD_LIST_SLOTS] = rank; /* and its sizes */
  ints[TFD_LIST_SLOTS + 1] = count;
  for (i = 1; i < rank; i++) {
    ints[TFD_LIST_SLOTS + 1 + i] = t->view.dims[i];
  }
  TFD_TRY(tfd__run(TFD_OP_slice, &t, 1, ints, NULL, &rows, 1, &n));
  if (device == NULL) device = rows->device;
  rc = tfd_tensor_to_device(rows, device, out_p);
  tfd__release(rows);
  return rc;
}

int tfd_strategy_split(tfd_strategy *strategy, tfd_tensor *tensor,
                       int64_t batch, tfd_value **shares_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN(tensor, TENSOR);
  TFD_GIVEN_POINTER(shares_p);

  tfd_object *shares[TFD_MAX_REPLICAS] = {NULL};
  int made = 0;
  int rc = TFD_OK;

  if (tensor->view.rank == 0) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "strategy_split: a scalar has no rows to share among %d "
                     "replicas",
                     strategy->group->size);
  }
  while (rc == TFD_OK && made < strategy->group->local) {
    tfd_tensor *share = NULL;
    int64_t first = 0;
    int64_t count = 0;

    rc = strategy->ops->input_share(strategy, tensor->view.dims[0], batch,
                                    tfd__replica_of(strategy, made), &first,
                                    &count);
    if (rc == TFD_OK) {
      tfd_device *device =
          made < strategy->devices_n ? strategy->devices[made] : NULL;

      rc = rows_on(tensor, first, count, device, &share);
    }
    if (rc == TFD_OK) shares[made++] = &share->object;
  }
  if (rc == TFD_OK) {
    rc = tfd_value_new(strategy, TFD_VALUE_PER_REPLICA, shares, made, shares_p);
  }
  while (made > 0) tfd__release(shares[--made]);
  return rc;
}
