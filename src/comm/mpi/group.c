/* What is done for a group: communicators, rounds, data, notes.
**
** Each collective begins with a round, after which each process knows whether
** all call the same. Where they do not, the processes tell each other what they
** call, and all fail with the same words. Notes, sent once at the most, say
** that a process has let go of the group, or why the group has failed there. */
#include <string.h>

#include "comm/mpi/mpi.h"

enum { TAG = 1, COMPARE_SECONDS = 5, HAD_FAILED = -1 };

void tfd__mpi_group_free(tfd__mpi_group *g) {
  tfd__error_free(&g->error);
  tfd__free(g->devices);
  tfd__free(g->sends);
  tfd__free(g->ended);
  tfd__free(g->calls);
  tfd__free(g->statuses);
  tfd__free(g->cards);
  tfd__free(g);
}

/* --- opening ----------------------------------------------------------------
 */

static bool test(tfd__mpi_group *g, MPI_Request *r) {
  int done = 0;
  int code = MPI_SUCCESS;

  if (*r == MPI_REQUEST_NULL) return true;
  code = MPI_Test(r, &done, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) tfd__mpi_fail_call(g, "MPI_Test", code);
  return code == MPI_SUCCESS && done != 0;
}

static void listen(tfd__mpi_group *g) {
  int left = g->processes - 1;
  int q;

  for (q = 0; q < g->processes; q++) left -= g->ended[q] != 0;
  g->reading = left > 0;
  if (!g->reading) return;
  (void)MPI_Irecv(&g->received, sizeof g->received, MPI_BYTE, MPI_ANY_SOURCE,
                  TAG, g->data, &g->receive);
}

/* One communicator after the other; true when both are there. */
static bool make(tfd__mpi_group *g) {
  MPI_Comm *const comms[2] = {&g->data, &g->control};
  int i;

  if (g->open) return true;
  for (i = 0; i < 2; i++) {
    if (*comms[i] == MPI_COMM_NULL) {
      int code = MPI_Comm_idup(tfd__mpi.comm, comms[i], &g->making[i]);

      if (code != MPI_SUCCESS) {
        tfd__mpi_fail_call(g, "MPI_Comm_idup", code);
        return false;
      }
    }
    if (!test(g, &g->making[i])) return false;
  }
  (void)MPI_Comm_set_errhandler(g->data, MPI_ERRORS_RETURN);
  (void)MPI_Comm_set_errhandler(g->control, MPI_ERRORS_RETURN);
  listen(g);
  tfd__lock(&tfd__mpi.lock);
  g->open = true;
  tfd__mpi_wake();
  tfd__unlock(&tfd__mpi.lock);
  return true;
}

/* --- cards -------------------------------------------------------------------
 */

/* True while they are on their way. */
static bool deal_cards(tfd__mpi_group *g) {
  bool wanted = false;
  int bytes = 0;

  tfd__lock(&tfd__mpi.lock);
  wanted = g->cards_wanted && !g->cards_there;
  bytes = (int)g->card_bytes; /* there since somebody wants them */
  tfd__unlock(&tfd__mpi.lock);
  if (!wanted) return false;
  if (!g->cards_asked) {
    int code = MPI_Iallgather(g->cards, bytes, MPI_BYTE, g->cards + bytes,
                              bytes, MPI_BYTE, g->data, &g->dealing);

    g->cards_asked = true;
    if (code != MPI_SUCCESS) tfd__mpi_fail_call(g, "MPI_Iallgather", code);
  }
  if (!test(g, &g->dealing)) return true;
  g->cards_asked = false;
  tfd__lock(&tfd__mpi.lock);
  g->cards_there = true;
  tfd__mpi_wake();
  tfd__unlock(&tfd__mpi.lock);
  return false;
}

/* --- notes -------------------------------------------------------------------
 */

static tfd_status code_of(const tfd__mpi_note *note) {
  return note->code > 0 && note->code < TFD_STATUS_END ? (tfd_status)note->code
                                                       : TFD_ABORTED;
}

static void read_notes(tfd__mpi_group *g) {
  while (g->reading) {
    MPI_Status status;
    int done = 0;

    if (MPI_Test(&g->receive, &done, &status) != MPI_SUCCESS || !done) return;
    g->ended[status.MPI_SOURCE] = g->received.count + 1;
    if (g->received.type == TFD_MPI_NOTE_END) {
      g->statuses[status.MPI_SOURCE] =
          g->received.code == TFD_OK ? (int)g->received.exit : HAD_FAILED;
    }
    if (g->received.type == TFD_MPI_NOTE_ABORT) {
      g->received.text[TFD_MPI_NOTE_TEXT - 1] = '\0';
      (void)tfd__fail(code_of(&g->received),
                      "stopped because of process %d: %s", status.MPI_SOURCE,
                      g->received.text);
      if (g->received.exit == TFD_EXIT_DESYNC) {
        (void)tfd__exit_with(TFD_EXIT_DESYNC);
      }
      tfd__mpi_fail(g, false);
    }
    listen(g);
  }
}

/* Say what there is to say, once. True while it is on its way. */
static bool send_notes(tfd__mpi_group *g) {
  tfd__mpi_note *note = &g->sent;
  int done = 0;
  int q;

  tfd__lock(&tfd__mpi.lock);
  if (!g->told && (g->tell || g->closing)) {
    g->told = true;
    note->type = g->tell ? TFD_MPI_NOTE_ABORT : TFD_MPI_NOTE_END;
    note->code = (int32_t)g->error.code;
    note->exit =
        g->tell ? (int64_t)g->error.exit : (int64_t)tfd__leaving_status();
    note->count = g->begun;
    if (g->error.message != NULL) {
      strncpy(note->text, g->error.message, TFD_MPI_NOTE_TEXT - 1);
    }
  }
  tfd__unlock(&tfd__mpi.lock);
  if (note->type == 0) return false;
  for (q = 0; !g->sending && q < g->processes; q++) {
    g->sends[q] = MPI_REQUEST_NULL;
    if (q == g->process) continue;
    (void)MPI_Isend(note, sizeof *note, MPI_BYTE, q, TAG, g->data,
                    &g->sends[q]);
  }
  g->sending = true;
  (void)MPI_Testall(g->processes, g->sends, &done, MPI_STATUSES_IGNORE);
  return done == 0;
}

/* --- checks ------------------------------------------------------------------
 */

/* All processes see the same calls, and so name the same two. Texts have the
** script's lines, which may differ where the calls do not. */
static void tell_apart(tfd__mpi_group *g) {
  const tfd__mpi_call *calls = g->calls;
  int other = 1;
  tfd__side sides[2];
  char why[512];
  const char *hint = NULL;

  while (other < g->processes - 1 && calls[0].hash == calls[other].hash) {
    other++;
  }
  sides[0] = (tfd__side){0, calls[0].what, calls[0].text};
  sides[1] = (tfd__side){other, calls[other].what, calls[other].text};
  hint = tfd__apart_text(&sides[0], &sides[1], g->process, why, sizeof why);
  (void)tfd__fail(TFD_RUNTIME_ERROR,
                  "the processes run apart at collective %llu: process 0 calls "
                  "%s, process %d calls %s%s",
                  (unsigned long long)g->apart, calls[0].text, other,
                  calls[other].text, why);
  if (hint != NULL) (void)tfd__hint("%s", hint);
  (void)tfd__exit_with(TFD_EXIT_DESYNC);
  tfd__mpi_fail(g, false);
}

/* Every process is here, for all have seen the same result; but one may have
** gone since. */
static bool compare(tfd__mpi_group *g) {
  if (g->apart == 0) return false;
  if (test(g, &g->comparing)) {
    tell_apart(g);
  } else if (tfd__now_ns() > g->compare_until) {
    (void)tfd__fail(TFD_RUNTIME_ERROR,
                    "the processes run apart at collective %llu; process %d "
                    "calls %s",
                    (unsigned long long)g->apart, g->process, g->own_call.text);
    (void)tfd__exit_with(TFD_EXIT_DESYNC);
    tfd__mpi_fail(g, true);
  }
  return true;
}

static void begin_compare(tfd__mpi_group *g, const tfd__mpi_work *w) {
  int code;

  g->apart = w->number;
  g->compare_until = tfd__deadline_in(COMPARE_SECONDS);
  g->own_call.hash = w->hash;
  g->own_call.what = w->what;
  tfd__mpi_describe(w, g->own_call.text);
  code = MPI_Iallgather(&g->own_call, sizeof g->own_call, MPI_BYTE, g->calls,
                        sizeof g->own_call, MPI_BYTE, g->data, &g->comparing);
  if (code != MPI_SUCCESS) tfd__mpi_fail_call(g, "MPI_Iallgather", code);
}

/* Has somebody let go of the group before he began this? */
static void look_for_ends(tfd__mpi_group *g, const tfd__mpi_work *w) {
  char text[TFD_MPI_TEXT];
  int q;

  for (q = 0; q < g->processes; q++) {
    if (g->ended[q] == 0 || w->number < g->ended[q]) continue;
    if (g->statuses[q] == HAD_FAILED) continue; /* why comes over TCP */
    tfd__mpi_describe(w, text);
    if (g->statuses[q] != 0) {
      (void)tfd__fail(TFD_UNAVAILABLE,
                      "process %d has ended with status %d while process %d "
                      "waits in collective %llu: %s",
                      q, g->statuses[q], g->process,
                      (unsigned long long)w->number, text);
    } else {
      (void)tfd__fail(TFD_RUNTIME_ERROR,
                      "process %d has ended while process %d waits in "
                      "collective %llu: %s",
                      q, g->process, (unsigned long long)w->number, text);
      (void)tfd__exit_with(TFD_EXIT_DESYNC);
    }
    tfd__mpi_fail(g, true);
    return;
  }
}

/* Have all processes begun this very collective? */
static bool check(tfd__mpi_group *g, tfd__mpi_work *w) {
  if (!tfd__mpi_round_on(g, w)) {
    look_for_ends(g, w);
    return false;
  }
  if (tfd__mpi_round_agrees(w)) return true;
  if (g->apart == 0) begin_compare(g, w);
  return false;
}

/* --- data --------------------------------------------------------------------
 */

static bool has_inputs(const tfd__mpi_group *g, const tfd__mpi_work *w) {
  int i;

  if (w->ready) return true;
  for (i = 0; i < g->local; i++) {
    if (!tfd__stream_has_passed(g->devices[i], w->seqs[i])) return false;
  }
  return true;
}

/* It is the caller's again. */
static void hand_back(tfd__mpi_group *g, tfd__mpi_work *w) {
  tfd__mpi_work **link = &g->first;
  bool unwanted = false;

  tfd__lock(&tfd__mpi.lock);
  while (*link != w) link = &(*link)->next;
  *link = w->next;
  w->stage = TFD_MPI_MOVED;
  unwanted = w->let_go;
  tfd__mpi_wake();
  tfd__unlock(&tfd__mpi.lock);
  if (unwanted) tfd__mpi_work_free(w);
}

static bool has_failed(tfd__mpi_group *g) {
  bool failed = false;

  tfd__lock(&tfd__mpi.lock);
  failed = g->error.code != TFD_OK;
  tfd__unlock(&tfd__mpi.lock);
  return failed;
}

static bool has_moved(tfd__mpi_group *g, tfd__mpi_work *w) {
  bool round = tfd__mpi_ring_on(g, w);
  int done = 0;
  int code =
      MPI_Testall(w->requests_n, w->requests, &done, MPI_STATUSES_IGNORE);

  if (code != MPI_SUCCESS) tfd__mpi_fail_call(g, "MPI_Testall", code);
  /* A piece that failed counts as one that has come. */
  return code == MPI_SUCCESS && done != 0 && round && !has_failed(g);
}

/* Begin to move, when its turn has come. Whoever fails here has begun, and
** others may wait for the rest: the group fails. */
static void move(tfd__mpi_group *g, tfd__mpi_work *w) {
  if (tfd__mpi_ring_begin(g, w) != TFD_OK || tfd__mpi_post(g, w) != TFD_OK) {
    tfd__mpi_fail(g, true);
    return;
  }
  w->stage = TFD_MPI_MOVING;
}

/* M2: what MPI has, even if nobody wants it. */
static void drain(tfd__mpi_group *g, tfd__mpi_work *w) {
  int done = 0;

  if (!w->let_go || !tfd__mpi_round_settled(w) ||
      !tfd__mpi_ring_settled(g, w)) {
    return;
  }
  (void)MPI_Testall(w->requests_n, w->requests, &done, MPI_STATUSES_IGNORE);
  if (done) hand_back(g, w);
}

static tfd__mpi_work *after(tfd__mpi_group *g, const tfd__mpi_work *w) {
  tfd__mpi_work *next = NULL;

  tfd__lock(&tfd__mpi.lock);
  next = w == NULL ? g->first : w->next;
  tfd__unlock(&tfd__mpi.lock);
  return next;
}

/* Small ones move with their rounds, and so when their inputs are there. True
** when it has its results. */
static bool begin_move(tfd__mpi_group *g, tfd__mpi_work *w, bool turn) {
  if (w->is_small && !has_inputs(g, w)) return false;
  if (!check(g, w)) return false;
  if (w->is_small) {
    tfd__mpi_round_take(w);
    return true;
  }
  if (turn && has_inputs(g, w)) move(g, w);
  return false;
}

/* In order: what is behind one that cannot move yet does not move either. */
static bool step_works(tfd__mpi_group *g, bool *moving_p) {
  tfd__mpi_work *w = after(g, NULL);
  bool busy = w != NULL;
  uint64_t end = busy ? w->number + TFD_MPI_TAGS : 0;
  bool turn = true;

  while (w != NULL && w->number < end && !has_failed(g)) {
    tfd__mpi_work *next = after(g, w);
    bool has = w->stage == TFD_MPI_WAITING && begin_move(g, w, turn);

    turn = turn && (has || w->stage == TFD_MPI_MOVING);
    *moving_p = *moving_p || w->stage == TFD_MPI_MOVING;
    has = has || (w->stage == TFD_MPI_MOVING && has_moved(g, w));
    if (has) hand_back(g, w);
    w = next;
  }
  return busy;
}

void tfd__mpi_step_one(tfd__mpi_group *g, bool *moving_p) {
  if (!compare(g)) (void)step_works(g, moving_p);
}

static void drain_works(tfd__mpi_group *g) {
  tfd__mpi_work *w = after(g, NULL);

  while (w != NULL) {
    tfd__mpi_work *next = after(g, w);

    drain(g, w);
    w = next;
  }
}

bool tfd__mpi_step(tfd__mpi_group *g, bool *moving_p) {
  bool busy = false;

  if (!make(g)) return !has_failed(g) && !g->closing;
  read_notes(g);
  busy = deal_cards(g);
  if (has_failed(g)) {
    drain_works(g);
  } else {
    busy = compare(g) || step_works(g, moving_p) || busy;
  }
  return send_notes(g) || busy;
}

bool tfd__mpi_is_over(tfd__mpi_group *g) {
  int done = 0;

  if (!g->closing || g->held || !g->sending || g->reading ||
      g->dealing != MPI_REQUEST_NULL || after(g, NULL) != NULL) {
    return false;
  }
  (void)MPI_Testall(g->processes, g->sends, &done, MPI_STATUSES_IGNORE);
  if (!done) return false;
  (void)MPI_Comm_free(&g->data);
  (void)MPI_Comm_free(&g->control);
  return true;
}
