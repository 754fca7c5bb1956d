#include "comm/ways.h"

#include <string.h>

static const char *const names[TFD_WAYS] = {
    [TFD_WAY_AUTO] = "auto",     [TFD_WAY_WHOLE] = "whole",
    [TFD_WAY_DIRECT] = "direct", [TFD_WAY_DOUBLING] = "doubling",
    [TFD_WAY_RING] = "ring",     [TFD_WAY_HALVING] = "halving",
};

const char *tfd__way_name(tfd__way way) {
  return names[way];
}

tfd__way tfd__way_named(const char *name) {
  int way = 0;

  while (way < TFD_WAYS && strcmp(names[way], name) != 0) way++;
  return (tfd__way)way;
}

/* --- steps ---------------------------------------------------------------- */

/* The logarithm of the largest power of two that is not above n. */
static int log_of(int n) {
  int log = 0;

  while (2 << log <= n) log++;
  return log;
}

/* Parts [a, b) of `parts` equal ones. */
static tfd__stretch parts_of(int64_t numel, int parts, int a, int b) {
  return (tfd__stretch){tfd__stretch_of(numel, parts, a).begin,
                        tfd__stretch_of(numel, parts, b - 1).end};
}

static tfd__step nothing(void) {
  return (tfd__step){.to = -1, .from = -1};
}

/* Of the 2 * extra first processes, the odd ones have nothing to do with what
** the others do; those are counted without them. */
static int counted(int process, int extra) {
  if (process >= 2 * extra) return process - extra;
  return process % 2 == 0 ? process / 2 : -1;
}

static int process_of(int count, int extra) {
  return count < extra ? 2 * count : count + extra;
}

/* The odd one gives everything to the even one, or gets everything back. */
static tfd__step fold(int process, int extra, int64_t numel, bool back) {
  tfd__step s = nothing();
  bool odd = process % 2 == 1;

  if (process >= 2 * extra) return s;
  if (odd != back) {
    s.to = odd ? process - 1 : process + 1;
    s.out = (tfd__stretch){0, numel};
  } else {
    s.from = odd ? process - 1 : process + 1;
    s.in = (tfd__stretch){0, numel};
    s.adds = !back;
  }
  return s;
}

static tfd__step partner_step(int count, int distance, int extra) {
  int partner = process_of(count ^ distance, extra);
  tfd__step s = {.to = partner, .from = partner};

  s.first = (count & distance) != 0;
  return s;
}

static tfd__step doubling(int count, int extra, int step, int64_t numel) {
  tfd__step s = partner_step(count, 1 << step, extra);

  s.out = (tfd__stretch){0, numel};
  s.in = s.out;
  s.adds = true;
  return s;
}

/* Until step `log` the parts that a process has become fewer, then more. */
static tfd__step halving(int count, int extra, int log, int step,
                         int64_t numel) {
  bool back = step >= log;
  int distance = 1 << (back ? step - log : log - 1 - step);
  tfd__step s = partner_step(count, distance, extra);
  int low = count & ~(2 * distance - 1);
  bool upper = (count & distance) != 0;
  tfd__stretch lower_half = parts_of(numel, 1 << log, low, low + distance);
  tfd__stretch upper_half =
      parts_of(numel, 1 << log, low + distance, low + 2 * distance);

  s.adds = !back;
  s.out = upper == back ? upper_half : lower_half;
  s.in = upper == back ? lower_half : upper_half;
  return s;
}

static tfd__step ring(int processes, int process, int step, int64_t numel) {
  bool back = step >= processes - 1;
  int k = back ? step - processes : step; /* rounds before: parts behind */
  int out = ((process - k) % processes + processes) % processes;
  int in = (out + processes - 1) % processes;

  return (tfd__step){.to = (process + 1) % processes,
                     .from = (process + processes - 1) % processes,
                     .out = parts_of(numel, processes, out, out + 1),
                     .in = parts_of(numel, processes, in, in + 1),
                     .adds = !back,
                     .first = true};
}

int tfd__way_steps(tfd__way way, int processes) {
  int log = log_of(processes);
  int folds = processes == 1 << log ? 0 : 2;

  switch (way) {
  case TFD_WAY_DOUBLING:
    return log + folds;
  case TFD_WAY_HALVING:
    return 2 * log + folds;
  case TFD_WAY_RING:
    return 2 * (processes - 1);
  default:
    return 0;
  }
}

tfd__step tfd__way_step(tfd__way way, int processes, int process, int step,
                        int64_t numel) {
  int log = log_of(processes);
  int extra = processes - (1 << log);
  int count = counted(process, extra);

  if (way == TFD_WAY_RING) return ring(processes, process, step, numel);
  if (extra > 0) {
    bool last = step == tfd__way_steps(way, processes) - 1;

    if (step == 0 || last) return fold(process, extra, numel, last);
    step--;
  }
  if (count < 0) return nothing();
  if (way == TFD_WAY_DOUBLING) return doubling(count, extra, step, numel);
  return halving(count, extra, log, step, numel);
}

/* --- costs ---------------------------------------------------------------- */

const tfd__costs *tfd__costs_of(const char *transport) {
  /* Fitted to all_reduces of 2 processes of one machine of two cores, 4 bytes
  ** to 64 MB (scripts/scale_model.lua); over a network, latencies are
  ** longer and the wire's bytes cost more, by about the same factor. */
  static const struct {
    const char *name;
    tfd__costs costs;
  } list[] = {
      {"shm", {1.5e-7, 1.5e-7, 1.2e-10, 5e-11}},
      {"tcp", {6e-6, 3e-6, 4e-10, 5e-11}},
  };
  size_t i;

  for (i = 0; i < sizeof list / sizeof list[0]; i++) {
    if (strcmp(list[i].name, transport) == 0) return &list[i].costs;
  }
  return NULL;
}

/* `steps` with one message each. */
static double of_steps(const tfd__costs *c, double steps, double sent,
                       double added) {
  return steps * (c->step + c->message) + sent * c->byte + added * c->sum;
}

/* The same with P - 1 messages. */
static double of_all(const tfd__costs *c, double steps, double others,
                     double sent, double added) {
  return steps * (c->step + others * c->message) + sent * c->byte +
         added * c->sum;
}

double tfd__way_cost(tfd__way way, const tfd__costs *c, int processes,
                     double bytes) {
  double p = processes;
  double rest = (p - 1) / p;
  int log = log_of(processes);
  double m = 1 << log;
  bool folds = processes != 1 << log;
  double fold = folds ? of_steps(c, 2, 2 * bytes, bytes) : 0;

  if (processes == 1) return 0;
  switch (way) {
  case TFD_WAY_WHOLE:
    return of_all(c, 1, p - 1, (p - 1) * bytes, (p - 1) * bytes);
  case TFD_WAY_DIRECT:
    return of_all(c, 2, p - 1, 2 * rest * bytes, rest * bytes);
  case TFD_WAY_DOUBLING:
    return fold + of_steps(c, log, log * bytes, log * bytes);
  case TFD_WAY_RING:
    return of_steps(c, 2 * (p - 1), 2 * rest * bytes, rest * bytes);
  case TFD_WAY_HALVING:
    return fold +
           of_steps(c, 2 * log, 2 * (m - 1) / m * bytes, (m - 1) / m * bytes);
  default:
    return tfd__way_cost(tfd__way_best(c, processes, bytes, true), c, processes,
                         bytes);
  }
}

tfd__way tfd__way_best(const tfd__costs *c, int processes, double bytes,
                       bool any) {
  int last = any ? TFD_WAY_HALVING : TFD_WAY_DIRECT;
  int best = TFD_WAY_WHOLE;
  int way;

  for (way = best + 1; way <= last; way++) {
    if (tfd__way_cost((tfd__way)way, c, processes, bytes) <
        tfd__way_cost((tfd__way)best, c, processes, bytes)) {
      best = way;
    }
  }
  return (tfd__way)best;
}

static double in_order(const tfd__costs *c, int processes, double bytes) {
  return tfd__way_cost(tfd__way_best(c, processes, bytes, false), c, processes,
                       bytes);
}

static int most_of_host(int processes, int hosts) {
  return (processes + hosts - 1) / hosts;
}

double tfd__hosts_cost(const tfd__costs *inside, const tfd__costs *between,
                       int processes, int hosts, double bytes) {
  int most = most_of_host(processes, hosts);
  double back = most > 1 ? of_all(inside, 1, most - 1, bytes, 0) : 0;

  return in_order(inside, most, bytes) + in_order(between, hosts, bytes) + back;
}

double tfd__flat_cost(const tfd__costs *between, int processes, int hosts,
                      double bytes) {
  tfd__costs shared = *between;

  shared.byte *= most_of_host(processes, hosts);
  return in_order(&shared, processes, bytes);
}
