/* Who is where, as heartbeats tell it, and what is said of who is gone. */
#include <stdio.h>
#include <unistd.h>

#include "comm/tcp/peers.h"

/* --- where processes are -------------------------------------------------- */

tfd__frame tfd__my_beat(tfd__mesh *m) {
  tfd__progress now = tfd__group_progress(m->group);
  tfd__collective c = {.line = now.line, .file = now.file};
  tfd__frame f = {.type = TFD_FRAME_BEAT,
                  .tag = now.waits,
                  .seq = now.number,
                  .what = now.what,
                  .count = now.count};

  tfd__frame_set_place(&f, &c);
  return f;
}

tfd__frame tfd__last_beat(tfd__mesh *m, int process) {
  tfd__frame beat;

  tfd__lock(&m->lock);
  beat = m->peers[process].beat;
  tfd__unlock(&m->lock);
  return beat;
}

void tfd__say_where(const tfd__frame *beat, const char *is_in, char *text,
                    size_t bytes) {
  char words[192];

  if (beat->seq == 0) {
    (void)snprintf(text, bytes, "%s no collective", is_in);
    return;
  }
  tfd__frame_text(beat, words, sizeof words);
  (void)snprintf(text, bytes, "%s collective %llu, %s", is_in,
                 (unsigned long long)beat->seq, words);
}

/* --- failures ------------------------------------------------------------- */

void tfd__mesh_wake(tfd__mesh *m) {
  uint64_t one = 1;

  if (write(m->wake, &one, sizeof one) < 0) return; /* full = awake already */
}

void tfd__mesh_fail(tfd__mesh *m) {
  (void)tfd__group_fail(m->group); /* comes back through tfd__mesh_abort */
}

void tfd__mesh_lost(tfd__mesh *m, int p, const char *how) {
  tfd__frame mine = tfd__my_beat(m);
  tfd__frame beat = tfd__last_beat(m, p);
  char there[256];
  char here[256];

  tfd__say_where(&beat, TFD_LAST_HEARD, there, sizeof there);
  tfd__say_where(&mine, "is in", here, sizeof here);
  (void)tfd__fail(TFD_UNAVAILABLE,
                  "process %d of %d %s; process %d (%s, pid %u) %s; process %d "
                  "(this one) %s",
                  p, m->processes, how, p, m->peers[p].address, m->peers[p].pid,
                  there, m->process, here);
  if (p == 0) (void)tfd__exit_with(TFD_EXIT_CHIEF_LOST);
  tfd__mesh_fail(m);
}

void tfd__mesh_damaged(tfd__mesh *m, int process) {
  tfd__mesh_lost(m, process, "sent bytes that are damaged or no frame");
}

int tfd__mesh_fail_left(const tfd__mesh *m, int process, uint64_t collective) {
  int status = atomic_load(&m->peers[process].status);

  if (status != 0) {
    return tfd__fail(TFD_UNAVAILABLE,
                     "process %d has ended with status %d while process %d "
                     "waits for it in collective %llu",
                     process, status, m->process,
                     (unsigned long long)collective);
  }
  (void)tfd__fail(TFD_RUNTIME_ERROR,
                  "process %d has ended while process %d waits for it in "
                  "collective %llu",
                  process, m->process, (unsigned long long)collective);
  return tfd__exit_with(TFD_EXIT_DESYNC);
}
