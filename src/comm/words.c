/* Collectives as numbers that processes compare, and as words that people do.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "comm/private.h"

const char *tfd__collective_name(tfd__collective_kind kind) {
  static const char *const names[TFD_COLLECTIVES] = {
      [TFD_COLLECTIVE_ALL_REDUCE] = "all_reduce",
      [TFD_COLLECTIVE_REDUCE] = "reduce",
      [TFD_COLLECTIVE_BROADCAST] = "broadcast",
      [TFD_COLLECTIVE_ALL_GATHER] = "all_gather",
      [TFD_COLLECTIVE_REDUCE_SCATTER] = "reduce_scatter",
      [TFD_COLLECTIVE_BARRIER] = "barrier",
      [TFD_COLLECTIVE_GATHER] = "gather",
      [TFD_COLLECTIVE_SCATTER] = "scatter",
  };

  return names[kind];
}

/* Bits of `what`, from the lowest: kind 4, reduction 4, call 8, dtype 8, root
** 16, name 24. */
uint64_t tfd__collective_what(const tfd__collective *c, int dtype) {
  uint64_t name = tfd__crc32c(c->about, c->what, strlen(c->what)) & 0xffffff;

  if (c->whole != 0) return c->whole | (uint64_t)dtype << 16;
  return (uint64_t)c->kind | (uint64_t)c->op << 4 | (uint64_t)c->call << 8 |
         (uint64_t)dtype << 16 | (uint64_t)c->root << 24 | name << 40;
}

static uint8_t call_of(uint64_t what) {
  return (uint8_t)(what >> 8);
}

void tfd__collective_text(uint64_t what, uint64_t count, int values, char *text,
                          size_t bytes) {
  static const char *const ops[] = {[TFD_REDUCE_SUM] = " sum",
                                    [TFD_REDUCE_MEAN] = " mean",
                                    [TFD_REDUCE_MIN] = " min",
                                    [TFD_REDUCE_MAX] = " max",
                                    [TFD_REDUCE_PROD] = " prod"};
  unsigned kind = (unsigned)(what & 0xf);
  unsigned op = (unsigned)(what >> 4 & 0xf);
  bool reduces = kind == TFD_COLLECTIVE_ALL_REDUCE ||
                 kind == TFD_COLLECTIVE_REDUCE ||
                 kind == TFD_COLLECTIVE_REDUCE_SCATTER;
  int n = snprintf(text, bytes, "%s%s",
                   kind < TFD_COLLECTIVES
                       ? tfd__collective_name((tfd__collective_kind)kind)
                       : "nothing known",
                   reduces && op <= TFD_REDUCE_PROD ? ops[op] : "");

  if (kind != TFD_COLLECTIVE_BARRIER) {
    n += snprintf(text + n, bytes - (size_t)n, " of %s[%llu]%s",
                  tfd__dtype_name((int)(what >> 16 & 0xff)),
                  (unsigned long long)count, values > 1 ? " and others" : "");
  }
  if (tfd__has_root((tfd__collective_kind)kind)) {
    (void)snprintf(text + n, bytes - (size_t)n, " %s rank %llu",
                   tfd__root_gets((tfd__collective_kind)kind) ? "to" : "from",
                   (unsigned long long)(what >> 24 & 0xffff));
  }
}

/* Bytes before " at train.lua:41". */
static size_t before_place(const char *text) {
  const char *place = strstr(text, " at ");

  return place == NULL ? strlen(text) : (size_t)(place - text);
}

/* Of the last call that an error ended here; "" = there was none. */
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static char left[192];

void tfd__note_left(const char *error) {
  pthread_mutex_lock(&left_lock);
  (void)snprintf(left, sizeof left, "%.*s", (int)strcspn(error, "\n"), error);
  pthread_mutex_unlock(&left_lock);
}

const char *tfd__apart_text(const tfd__side *one, const tfd__side *other,
                            int here, char *text, size_t bytes) {
  int lead = (int8_t)(call_of(one->what) - call_of(other->what));
  const tfd__side *ahead = lead > 0 ? one : other;
  size_t n = before_place(one->text);
  int end = 0;

  text[0] = 0;
  if (lead == 0) {
    if (n == before_place(other->text) &&
        memcmp(one->text, other->text, n) == 0) {
      (void)snprintf(text, bytes,
                     "; what differs is the operation, its variables, its "
                     "axes, its shapes, the way of adding up or what it has "
                     "behind the first value");
    }
    return NULL;
  }
  end = snprintf(text, bytes,
                 "; process %d is %d call%s ahead of process %d: one ended "
                 "early there, as by an error that was caught",
                 ahead->process, abs(lead), abs(lead) == 1 ? "" : "s",
                 lead > 0 ? other->process : one->process);
  pthread_mutex_lock(&left_lock);
  if (ahead->process == here && left[0] != 0 && (size_t)end < bytes) {
    (void)snprintf(text + end, bytes - (size_t)end, ": %s", left);
  }
  pthread_mutex_unlock(&left_lock);
  return "let errors end the script, or have all workers leave out a call that "
         "fails on one; all end a loop after the same step";
}

const tfd__view *tfd__leading_view(const tfd__group *g,
                                   const tfd__collective *c) {
  if (c->values == 0 || c->kind == TFD_COLLECTIVE_BARRIER) return NULL;
  return tfd__leader(g, c, 0)->view;
}

void tfd__file_end(const char *name, char *text, size_t bytes) {
  size_t n = name == NULL ? 0 : strlen(name);

  if (n >= bytes) name += n - (bytes - 1);
  memset(text, 0, bytes);
  if (n > 0) memcpy(text, name, strlen(name));
}
