/* The memory of tapes' entries: chunks, each twice as large as the one before,
** which the thread keeps for its next tapes. A training loop in steady state
** takes no fresh memory for them. */
#include "autograd/tape.h"

#define FIRST_CHUNK ((size_t)8 << 10)
#define LARGEST_CHUNK ((size_t)256 << 10)
/* On LuaJIT the tapes of TFD_HEADERS_KEPT small ops wait for the collector,
** about 250 bytes for each op. */
#define KEPT_BYTES ((size_t)10 << 20)

static _Thread_local tfd__chunk *kept = NULL;
static _Thread_local size_t kept_bytes = 0;
static _Thread_local tfd__own_end own_end;

static void free_kept(void) {
  while (kept != NULL) {
    tfd__chunk *c = kept;

    kept = c->next;
    tfd__free(c);
  }
  kept_bytes = 0;
}

static tfd__chunk *take(size_t capacity, size_t bytes) {
  tfd__chunk *c = kept;

  if (c != NULL && c->capacity >= bytes) {
    kept = c->next;
    kept_bytes -= c->capacity;
    return c;
  }
  if (capacity < bytes) capacity = bytes;
  c = tfd__alloc(sizeof *c + capacity);
  if (c == NULL) {
    (void)tfd__no_memory(capacity, "gradient tape");
    return NULL;
  }
  c->capacity = capacity;
  return c;
}

static void give(tfd__chunk *c) {
  if (c->capacity > LARGEST_CHUNK || kept_bytes + c->capacity > KEPT_BYTES) {
    tfd__free(c);
    return;
  }
  if (kept == NULL) tfd__at_end(&own_end, free_kept);
  c->next = kept;
  kept = c;
  kept_bytes += c->capacity;
}

int tfd__chunks_grow(tfd_tape *tape, size_t bytes) {
  tfd__chunk *c = tape->current;
  size_t capacity = c == NULL ? FIRST_CHUNK : c->capacity * 2;

  if (bytes > UINT32_MAX) return tfd__no_memory(bytes, "gradient tape");
  if (capacity > LARGEST_CHUNK) capacity = LARGEST_CHUNK;
  c = take(capacity, bytes);
  if (c == NULL) return TFD_RESOURCE_EXHAUSTED;
  c->next = NULL;
  c->used = 0;
  if (tape->current != NULL) {
    tape->current->next = c;
  } else {
    tape->first = c;
  }
  tape->current = c;
  return TFD_OK;
}

void tfd__chunks_drop(tfd_tape *tape) {
  tfd__chunk *c = tape->first;

  while (c != NULL) {
    tfd__chunk *next = c->next;

    give(c);
    c = next;
  }
  tape->first = NULL;
  tape->current = NULL;
}
