/* What is said where processes cannot work together, as they were given
** different things: both sides of the connection on which it shows end, in the
** same words, and tell those whom they have met. Only who has proved the secret
** is believed so far. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/crc32c.h"
#include "comm/tcp/hello.h"

/* --- what a side has ------------------------------------------------------ */

/* As many of the addresses as there is room for. */
static void list_addresses(const tfd__network *n, char why[TFD_WHY_BYTES]) {
  static const char more[] = ", ...";
  size_t room = TFD_WHY_BYTES - sizeof more;
  size_t used = 0;
  int p;

  why[0] = '\0';
  for (p = 0; n->addresses != NULL && p < n->processes; p++) {
    const char *a = n->addresses[p];

    if (used + strlen(a) + 2 >= room) {
      memcpy(why + used, more, sizeof more);
      return;
    }
    used +=
        (size_t)snprintf(why + used, room - used, "%s%s", p > 0 ? ", " : "", a);
  }
}

void tfd__refusal_why(tfd__talk *t) {
  if (t->verdict == TFD_VERDICT_CLUSTER) list_addresses(t->network, t->why);
  if (t->verdict == TFD_VERDICT_TRANSPORT && t->transport != NULL) {
    (void)snprintf(t->why, sizeof t->why, "%s", t->transport);
  }
}

/* By its number, which the hello has: whose words did not come before it hung
** up has told that. */
static const char *transport_of(const tfd__hello *h) {
  static const char *const names[] = {"shm",     "tcp",      "ring",
                                      "halving", "doubling", "hierarchical",
                                      "mpi",     "nccl",     "staged"};
  size_t i;

  for (i = 0; i < sizeof names / sizeof *names; i++) {
    if (tfd__transport_number(names[i]) == h->transport) return names[i];
  }
  return "something else";
}

typedef struct side {
  int process;
  const char *address;
  const tfd__hello *hello;
  const char *why;
} side;

static void say_has(const side *s, tfd__verdict v, char *text, size_t bytes) {
  const tfd__hello *h = s->hello;

  switch (v) {
  case TFD_VERDICT_PROTOCOL:
    (void)snprintf(text, bytes, "process %d speaks protocol %u", s->process,
                   h->protocol);
    break;
  case TFD_VERDICT_CLUSTER:
    (void)snprintf(text, bytes, "process %d has the %u addresses %s",
                   s->process, h->processes,
                   s->why[0] == '\0' ? "of another cluster" : s->why);
    break;
  case TFD_VERDICT_LOCAL:
    (void)snprintf(text, bytes, "process %d has %u device%s", s->process,
                   h->local, h->local == 1 ? "" : "s");
    break;
  default:
    (void)snprintf(text, bytes, "process %d goes over %s", s->process,
                   s->why[0] == '\0' ? transport_of(h) : s->why);
  }
}

static const char *hint_of(tfd__verdict v) {
  switch (v) {
  case TFD_VERDICT_PROTOCOL:
    return "run the same tfdist on all machines";
  case TFD_VERDICT_CLUSTER:
    return "give all the same \"cluster\" in TF_CONFIG, in the same words; a "
           "process of another job has to end first";
  case TFD_VERDICT_LOCAL:
    return "all need as many devices: TFDIST_CPU_DEVICES, `tfdist "
           "--cpu-devices`, or GPUs that they see";
  default:
    return "give all the same TFDIST_TRANSPORT and communication options, or "
           "none";
  }
}

int tfd__fail_apart(const tfd__network *network, const tfd__talk *t,
                    int process) {
  tfd__hello mine = t->mine;
  side sides[2] = {
      {network->process, network->addresses[network->process], &mine, t->why},
      {process, network->addresses[process], &t->theirs, t->told}};
  int low = process < network->process ? 1 : 0;
  const side *a = &sides[low];
  const side *b = &sides[1 - low];
  char has[2][TFD_WHY_BYTES + 64];

  mine.protocol = TFD_PROTOCOL;
  say_has(a, t->verdict, has[0], sizeof has[0]);
  say_has(b, t->verdict, has[1], sizeof has[1]);
  (void)tfd__fail(TFD_FAILED_PRECONDITION,
                  "group: process %d (%s, pid %u) and process %d (%s, pid %u) "
                  "do not agree: %s; %s",
                  a->process, a->address, a->hello->pid, b->process, b->address,
                  b->hello->pid, has[0], has[1]);
  return tfd__hint("%s", hint_of(t->verdict));
}

/* --- for those who have met ----------------------------------------------- */

void tfd__refusal_send(int socket, int from, const char *note) {
  uint8_t bytes[TFD_FRAME_BYTES + TFD_NOTE_BYTES];
  size_t n = strlen(note) < TFD_NOTE_BYTES ? strlen(note) : TFD_NOTE_BYTES;
  tfd__frame f = {.type = TFD_FRAME_REFUSAL,
                  .tag = TFD_FAILED_PRECONDITION,
                  .what = (uint64_t)from,
                  .length = n,
                  .sum = tfd__crc32c(0, note, n)};

  tfd__frame_write(&f, bytes);
  memcpy(bytes + TFD_FRAME_BYTES, note, n);
  (void)send(socket, bytes, TFD_FRAME_BYTES + n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool tfd__refusal_find(const uint8_t *bytes, size_t n, tfd__frame *f,
                       char note[TFD_NOTE_BYTES + 1]) {
  size_t at = 0;

  while (n - at >= TFD_FRAME_BYTES && tfd__frame_read(bytes + at, f)) {
    const uint8_t *text = bytes + at + TFD_FRAME_BYTES;

    at += TFD_FRAME_BYTES;
    if (f->length > TFD_NOTE_BYTES || f->length > n - at) return false;
    at += (size_t)f->length;
    if (f->sum != tfd__crc32c(0, text, (size_t)f->length)) return false;
    if (f->type != TFD_FRAME_REFUSAL) continue;
    memcpy(note, text, (size_t)f->length);
    note[f->length] = '\0';
    return true;
  }
  return false;
}

bool tfd__refusal_hear(int socket, tfd__frame *f,
                       char note[TFD_NOTE_BYTES + 1]) {
  uint8_t bytes[4 * TFD_FRAME_BYTES + TFD_NOTE_BYTES];
  ssize_t n = socket < 0
                  ? 0
                  : recv(socket, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);

  return n > 0 && tfd__refusal_find(bytes, (size_t)n, f, note);
}
