/* Headers as bytes: little-endian, with a checksum of their own. */
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "comm/tcp/tcp.h"

static const uint8_t hello_magic[4] = {'T', 'F', 'D', 'C'};
static const uint8_t frame_magic[4] = {'T', 'F', 'D', 'F'};

static uint8_t *put(uint8_t *p, uint64_t x, int bytes) {
  int i;

  for (i = 0; i < bytes; i++) p[i] = (uint8_t)(x >> (8 * i));
  return p + bytes;
}

static const uint8_t *get(const uint8_t *p, void *x, int bytes) {
  uint64_t value = 0;
  uint32_t small = 0;
  int i;

  for (i = 0; i < bytes; i++) value |= (uint64_t)p[i] << (8 * i);
  small = (uint32_t)value;
  if (bytes == 8) memcpy(x, &value, sizeof value);
  if (bytes <= 4) memcpy(x, &small, sizeof small);
  return p + bytes;
}

static bool check_sum(const uint8_t *bytes, size_t n) {
  uint32_t sum = 0;

  (void)get(bytes + n - 4, &sum, 4);
  return sum == tfd__crc32c(0, bytes, n - 4);
}

/* --- hello ---------------------------------------------------------------- */

uint32_t tfd__transport_number(const char *name) {
  uint32_t h = name == NULL ? 0 : tfd__crc32c(0, name, strlen(name));

  return name != NULL && h == 0 ? 1 : h;
}

/* Whatever the protocol, the magic, its number, the process, whether there is a
** secret and the checksum lie where they are, and proofs follow: else versions
** that differ could not tell each other so and be believed. */
void tfd__hello_write(const tfd__hello *h, uint8_t bytes[TFD_HELLO_BYTES]) {
  uint8_t *p = bytes;

  memset(bytes, 0, TFD_HELLO_BYTES);
  memcpy(p, hello_magic, 4);
  p = put(p + 4, TFD_PROTOCOL, 4);
  p = put(p, h->process, 4);
  p = put(p, h->processes, 4);
  p = put(p, h->local, 4);
  p = put(p, h->channel, 2);
  p = put(p, h->has_secret, 2);
  p = put(p, h->cluster, 8);
  memcpy(p, h->nonce, TFD_NONCE_BYTES);
  p = put(p + TFD_NONCE_BYTES, h->meeting, 4);
  p = put(p, h->pid, 4);
  (void)put(p, h->transport, 4);
  (void)put(bytes + TFD_HELLO_BYTES - 4,
            tfd__crc32c(0, bytes, TFD_HELLO_BYTES - 4), 4);
}

bool tfd__hello_read(const uint8_t bytes[TFD_HELLO_BYTES], tfd__hello *h) {
  const uint8_t *p = bytes + 4;
  uint32_t has_secret = 0;

  if (memcmp(bytes, hello_magic, 4) != 0) return false;
  if (!check_sum(bytes, TFD_HELLO_BYTES)) return false;
  p = get(p, &h->protocol, 4);
  p = get(p, &h->process, 4);
  p = get(p, &h->processes, 4);
  p = get(p, &h->local, 4);
  p = get(p, &h->channel, 2);
  p = get(p, &has_secret, 2);
  p = get(p, &h->cluster, 8);
  h->has_secret = has_secret != 0;
  memcpy(h->nonce, p, TFD_NONCE_BYTES);
  p = get(p + TFD_NONCE_BYTES, &h->meeting, 4);
  p = get(p, &h->pid, 4);
  (void)get(p, &h->transport, 4);
  return true;
}

/* Groups that are made one after the other need not be alike: who is ahead, or
** behind, is told that. */
static tfd__verdict judge_group(const tfd__hello *mine,
                                const tfd__hello *theirs) {
  if (theirs->meeting != mine->meeting) return TFD_VERDICT_GOOD;
  if (theirs->local != mine->local) return TFD_VERDICT_LOCAL;
  if (theirs->transport != mine->transport && theirs->transport != 0 &&
      mine->transport != 0) {
    return TFD_VERDICT_TRANSPORT;
  }
  return TFD_VERDICT_GOOD;
}

tfd__verdict tfd__hello_judge(const tfd__hello *mine,
                              const tfd__hello *theirs) {
  if (theirs->protocol != TFD_PROTOCOL) return TFD_VERDICT_PROTOCOL;
  if (theirs->has_secret != mine->has_secret) {
    return TFD_VERDICT_SECRET_MISSING;
  }
  if (theirs->cluster != mine->cluster ||
      theirs->processes != mine->processes) {
    return TFD_VERDICT_CLUSTER;
  }
  if (theirs->process >= mine->processes || theirs->process == mine->process ||
      theirs->channel >= TFD_CHANNELS) {
    return TFD_VERDICT_PROCESS;
  }
  return judge_group(mine, theirs);
}

const char *tfd__verdict_text(tfd__verdict v) {
  static const char *const texts[TFD_VERDICTS] = {
      [TFD_VERDICT_GOOD] = "accepted",
      [TFD_VERDICT_PROTOCOL] = "it is another version of tfdist, or none",
      [TFD_VERDICT_CLUSTER] = "it has another list of addresses",
      [TFD_VERDICT_LOCAL] = "it has another number of devices",
      [TFD_VERDICT_TRANSPORT] = "it has another transport",
      [TFD_VERDICT_PROCESS] = "it is no other task of this cluster",
      [TFD_VERDICT_DUPLICATE] = "that task is connected already",
      [TFD_VERDICT_UNDER_WAY] = "the job is under way with that task in it, or "
                                "has lost it: all have to be started again",
      [TFD_VERDICT_LATER] = "it has not come so far",
      [TFD_VERDICT_SECRET_MISSING] = "one side has a secret, the other none",
      [TFD_VERDICT_SECRET] = "the secrets differ",
  };

  return (unsigned)v < TFD_VERDICTS ? texts[v] : "an unknown reason";
}

/* --- frames --------------------------------------------------------------- */

void tfd__frame_set_place(tfd__frame *f, const tfd__collective *c) {
  tfd__file_end(c->file, f->file, sizeof f->file);
  f->line = c->file == NULL ? 0 : (uint32_t)c->line;
}

/* "all_reduce sum of float32[100] at train.lua:41". */
void tfd__frame_text(const tfd__frame *f, char *text, size_t bytes) {
  size_t n = 0;

  tfd__collective_text(f->what, f->count, 1, text, bytes);
  n = strlen(text);
  if (f->line > 0) {
    (void)snprintf(text + n, bytes - n, " at %s:%u", f->file, f->line);
  }
}

static int run_apart(const tfd__frame *here_frame,
                     const tfd__frame *there_frame, int here, int there) {
  const tfd__frame *frames[2] = {here_frame, there_frame};
  int who[2] = {here, there};
  char text[2][192];
  tfd__side sides[2];
  char why[512] = "";
  const char *hint = NULL;
  char number[32] = "";
  int low = there < here ? 1 : 0; /* both sides say it in the same words */
  int i;

  for (i = 0; i < 2; i++) {
    tfd__frame_text(frames[i], text[i], sizeof text[i]);
    sides[i] = (tfd__side){who[i], frames[i]->what, text[i]};
  }
  if (there_frame->seq != here_frame->seq) {
    (void)snprintf(number, sizeof number, " (as number %llu)",
                   (unsigned long long)there_frame->seq);
  } else {
    hint = tfd__apart_text(&sides[low], &sides[1 - low], here, why, sizeof why);
  }
  (void)tfd__fail(
      TFD_RUNTIME_ERROR,
      "the processes run apart at collective %llu: process %d calls "
      "%s%s, process %d calls %s%s%s",
      (unsigned long long)here_frame->seq, who[low], text[low],
      low == 1 ? number : "", who[1 - low], text[1 - low],
      low == 1 ? "" : number, why);
  if (hint != NULL) (void)tfd__hint("%s", hint);
  return tfd__exit_with(TFD_EXIT_DESYNC);
}

int tfd__frame_fits(const tfd__frame *want, const tfd__frame *got, int here,
                    int there) {
  if (got->type == TFD_FRAME_DATA && got->seq == want->seq &&
      got->tag == want->tag && got->what == want->what &&
      got->count == want->count && got->length == want->length) {
    return TFD_OK;
  }
  return run_apart(want, got, here, there);
}

void tfd__frame_write(const tfd__frame *f, uint8_t bytes[TFD_FRAME_BYTES]) {
  uint8_t *p = bytes;

  memcpy(p, frame_magic, 4);
  p = put(p + 4, f->type, 4);
  p = put(p, f->tag, 4);
  p = put(p, f->sum, 4);
  p = put(p, f->seq, 8);
  p = put(p, f->what, 8);
  p = put(p, f->count, 8);
  p = put(p, f->length, 8);
  p = put(p, f->line, 4);
  memcpy(p, f->file, TFD_PLACE_BYTES);
  (void)put(p + TFD_PLACE_BYTES, tfd__crc32c(0, bytes, TFD_FRAME_BYTES - 4), 4);
}

bool tfd__frame_read(const uint8_t bytes[TFD_FRAME_BYTES], tfd__frame *f) {
  const uint8_t *p = bytes + 4;

  if (memcmp(bytes, frame_magic, 4) != 0) return false;
  if (!check_sum(bytes, TFD_FRAME_BYTES)) return false;
  p = get(p, &f->type, 4);
  p = get(p, &f->tag, 4);
  p = get(p, &f->sum, 4);
  p = get(p, &f->seq, 8);
  p = get(p, &f->what, 8);
  p = get(p, &f->count, 8);
  p = get(p, &f->length, 8);
  p = get(p, &f->line, 4);
  memcpy(f->file, p, TFD_PLACE_BYTES);
  f->file[TFD_PLACE_BYTES - 1] = '\0';
  return f->type >= TFD_FRAME_DATA && f->type < TFD_FRAME_TYPES;
}
