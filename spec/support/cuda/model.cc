/* Runs kernels: see cuda_model.h. A fiber runs threads one after the other;
** when a thread stops, the next ones get a fiber of their own, so kernels
** without barriers never switch. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

thread_local tfd_model_now tfd_model;
thread_local tfd_model_clock tfd_model_time;
tfd_model_kernel *tfd_model_kernels;

namespace {

enum {
  MOST = 1024,
  WARP = 32,
  STACK = 64 << 10,
  ARENA = 48 << 10,
  RED = 64, /* bytes around each shared array that nobody may write */
  ARRAYS = 16
};

enum state { UNSTARTED, READY, AT_BARRIER, AT_SHUFFLE, DONE, STOPPED };

#if defined(__x86_64__)

/* What a function must keep, on the stack that is left; swapcontext asks the
** system for more. */
struct context {
  void *stack;
};

extern "C" void tfd_model_switch(void **from, void *to);
asm(".text\n"
    ".local tfd_model_switch\n"
    ".type tfd_model_switch, @function\n"
    "tfd_model_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n"
    "  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n"
    "  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size tfd_model_switch, .-tfd_model_switch\n");

void switch_to(context *from, context *to) {
  tfd_model_switch(&from->stack, to->stack);
}

void prepare(context *c, void *stack, size_t bytes, void (*run)()) {
  void **top = (void **)((char *)stack + bytes);

  memset(top - 8, 0, 8 * sizeof *top);
  top[-2] = (void *)run;
  c->stack = top - 8;
}

#else

typedef ucontext_t context;

void switch_to(context *from, context *to) {
  swapcontext(from, to);
}

void prepare(context *c, void *stack, size_t bytes, void (*run)()) {
  getcontext(c);
  c->uc_stack.ss_sp = stack;
  c->uc_stack.ss_size = bytes;
  c->uc_link = nullptr;
  makecontext(c, run, 0);
}

#endif

struct fiber {
  context where;
  void *stack;
  fiber *next; /* idle ones */
};

struct thread {
  state now;
  fiber *on;
  int line;
  unsigned char value[16];
  unsigned from;
  bool ordered; /* a warp barrier, not a shuffle */
};

struct array {
  const void *key;
  size_t at;
  size_t bytes;
};

struct block {
  thread threads[MOST];
  unsigned n;
  unsigned started;
  unsigned done;
  unsigned order[MOST]; /* in which threads are preferred */
  unsigned now;
  const tfd_model_kernel *kernel;
  const void *args;
  fiber *running;
  fiber *idle;
  context scheduler;
  unsigned char arena[ARENA];
  size_t arena_used;
  array arrays[ARRAYS];
  int arrays_n;
  char problem[256];
};

thread_local block *b;

void report_list(const char *form, va_list list) {
  if (b->problem[0] != '\0') return;
  vsnprintf(b->problem, sizeof b->problem, form, list);
}

void report(const char *form, ...) {
  va_list list;

  va_start(list, form);
  report_list(form, list);
  va_end(list);
}

void set_now(unsigned t) {
  b->now = t;
  tfd_model.thread = {t, 0, 0};
}

/* A fiber's life: threads that have not started, one after the other. */
void fiber_main() {
  while (b->started < b->n && b->problem[0] == '\0') {
    unsigned t = b->order[b->started++];

    set_now(t);
    b->threads[t].now = READY;
    b->threads[t].on = b->running;
    b->kernel->run(b->args);
    b->threads[b->now].now = DONE;
    b->done++;
    /* Resumed threads end on the fiber they began on; it goes on here. */
  }
  fiber *self = b->running;

  self->next = b->idle;
  b->idle = self;
  switch_to(&self->where, &b->scheduler);
}

fiber *new_fiber() {
  fiber *f = b->idle;

  if (f != nullptr) {
    b->idle = f->next;
  } else {
    f = (fiber *)calloc(1, sizeof *f);
    f->stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  prepare(&f->where, f->stack, STACK, fiber_main);
  return f;
}

void run_fiber(fiber *f) {
  b->running = f;
  switch_to(&b->scheduler, &f->where);
}

/* The running thread stops until somebody makes it ready. */
void stop(state why, int line) {
  unsigned t = b->now;
  fiber *f = b->running;

  b->threads[t].now = why;
  b->threads[t].line = line;
  b->threads[t].on = f;
  switch_to(&f->where, &b->scheduler);
  set_now(t);
}

/* All threads wait at barriers: let them go. */
void open_barrier() {
  int line = 0;

  if (b->done > 0) {
    report("a barrier is waited for by %u threads, %u have left",
           b->n - b->done, b->done);
  }
  for (unsigned t = 0; t < b->n; t++) {
    thread *x = &b->threads[t];

    if (x->now != AT_BARRIER) continue;
    if (line != 0 && x->line != line) {
      report("barriers of lines %d and %d are waited for at once", line,
             x->line);
    }
    line = x->line;
    x->now = READY;
  }
  tfd_model_time.barrier++;
}

/* Give the lanes of a warp that all wait at one shuffle their values. */
bool open_shuffle(unsigned first) {
  unsigned char values[WARP][16];

  for (unsigned k = 0; k < WARP; k++) {
    const thread *x = &b->threads[first + k];

    if (x->now != AT_SHUFFLE) return false;
    if (x->line != b->threads[first].line ||
        x->ordered != b->threads[first].ordered) {
      report("shuffles of lines %d and %d meet in one warp", x->line,
             b->threads[first].line);
    }
    memcpy(values[k], x->value, sizeof x->value);
  }
  for (unsigned k = 0; k < WARP; k++) {
    thread *x = &b->threads[first + k];

    memcpy(x->value, values[x->from % WARP], sizeof x->value);
    x->now = READY;
  }
  /* Shuffles order no memory. */
  if (b->threads[first].ordered) tfd_model_time.warp[first / WARP]++;
  return true;
}

unsigned count(state which) {
  unsigned n = 0;

  for (unsigned t = 0; t < b->n; t++) n += b->threads[t].now == which;
  return n;
}

bool release() {
  bool some = false;

  for (unsigned first = 0; first + WARP <= b->n; first += WARP) {
    some = open_shuffle(first) || some;
  }
  if (!some && count(AT_BARRIER) + b->done == b->n && b->done < b->n) {
    open_barrier();
    some = true;
  }
  return some;
}

void check_arrays() {
  for (int i = 0; i < b->arrays_n; i++) {
    const array *a = &b->arrays[i];

    for (size_t k = 0; k < RED; k++) {
      if (b->arena[a->at - RED + k] != 0xA5 ||
          b->arena[a->at + a->bytes + k] != 0xA5) {
        report("a write outside a shared array of %zu bytes", a->bytes);
      }
    }
  }
}

void run_block() {
  for (unsigned t = 0; t < b->n; t++) b->threads[t].now = UNSTARTED;
  b->started = b->done = 0;
  b->arena_used = 0;
  b->arrays_n = 0;
  memset(b->arena, 0xFF, sizeof b->arena);
  tfd_model_time.block++;
  tfd_model_time.barrier = 0;
  memset(tfd_model_time.warp, 0, sizeof tfd_model_time.warp);
  while (b->done < b->n && b->problem[0] == '\0') {
    if (b->started < b->n) {
      run_fiber(new_fiber());
      continue;
    }
    unsigned ready = b->n;

    for (unsigned i = 0; i < b->n && ready == b->n; i++) {
      if (b->threads[b->order[i]].now == READY) ready = b->order[i];
    }
    if (ready < b->n) {
      set_now(ready);
      run_fiber(b->threads[ready].on);
    } else if (!release()) {
      report("stuck: %u of %u threads are done, %u wait at barriers, %u at "
             "shuffles",
             b->done, b->n, count(AT_BARRIER), count(AT_SHUFFLE));
    }
  }
  check_arrays();
}

uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  return x ^ x >> 16;
}

/* Seed 0: forward, 1: backward, others: warps in a random order, kept for the
** block: a warp that may run always does before the next. */
void order_threads(unsigned seed, unsigned number) {
  unsigned warps = (b->n + WARP - 1) / WARP;
  unsigned rank[MOST / WARP];
  unsigned at = 0;

  for (unsigned w = 0; w < warps; w++) rank[w] = w;
  for (unsigned w = warps; w > 1 && seed > 1; w--) {
    unsigned k = mix(seed * 7919u + number * 31u + w) % w;
    unsigned kept = rank[w - 1];

    rank[w - 1] = rank[k];
    rank[k] = kept;
  }
  for (unsigned w = 0; w < warps; w++) {
    unsigned warp = seed == 1 ? warps - 1 - rank[w] : rank[w];

    for (unsigned k = 0; k < WARP; k++) {
      unsigned t = warp * WARP + (seed == 1 ? WARP - 1 - k : k);

      if (t < b->n) b->order[at++] = t;
    }
  }
}

} // namespace

void tfd_model_barrier(int line) {
  stop(AT_BARRIER, line);
}

static void exchange(void *value, size_t bytes, unsigned from, bool ordered,
                     int line) {
  thread *x = &b->threads[b->now];

  memcpy(x->value, value, bytes);
  x->from = from;
  x->ordered = ordered;
  stop(AT_SHUFFLE, line);
  memcpy(value, b->threads[b->now].value, bytes);
}

void tfd_model_shuffle(void *value, size_t bytes, unsigned from, int line) {
  exchange(value, bytes, from, false, line);
}

void tfd_model_warp_barrier(int line) {
  unsigned char nothing = 0;

  exchange(&nothing, sizeof nothing, 0, true, line);
}

unsigned long long tfd_model_atomic_min(unsigned long long *at,
                                        unsigned long long x) {
  unsigned long long old;

  if (tfd_race_atomic != nullptr) tfd_race_atomic(at, sizeof *at);
  old = *at;
  if (x < old) *at = x;
  return old;
}

bool tfd_model_shared_at(const void *at, size_t bytes) {
  size_t offset = (size_t)((const unsigned char *)at - b->arena);

  for (int i = 0; i < b->arrays_n; i++) {
    const array *a = &b->arrays[i];

    if (offset >= a->at && offset + bytes <= a->at + a->bytes) return true;
  }
  return false;
}

void tfd_model_stop(const char *form, ...) {
  va_list list;

  va_start(list, form);
  report_list(form, list);
  va_end(list);
  stop(STOPPED, 0);
  abort(); /* nobody goes on with a stopped thread */
}

void *tfd_model_shared(const void *key, size_t bytes) {
  size_t room = (bytes + 15) / 16 * 16 + 2 * RED;

  for (int i = 0; i < b->arrays_n; i++) {
    if (b->arrays[i].key == key) return b->arena + b->arrays[i].at;
  }
  if (b->arrays_n == ARRAYS || b->arena_used + room > ARENA) {
    fprintf(stderr, "model: too much shared memory in %s\n", b->kernel->name);
    abort();
  }
  array *a = &b->arrays[b->arrays_n++];

  *a = {key, b->arena_used + RED, bytes};
  memset(b->arena + b->arena_used, 0xA5, RED);
  memset(b->arena + a->at + bytes, 0xA5, RED);
  b->arena_used += room;
  return b->arena + a->at;
}

const char *tfd_model_run(const tfd_model_kernel *kernel, unsigned grid,
                          unsigned threads, const void *args, unsigned seed) {
  if (b == nullptr) b = (block *)calloc(1, sizeof *b);
  b->n = threads;
  b->kernel = kernel;
  b->args = args;
  b->problem[0] = '\0';
  tfd_model_time.running = true;
  tfd_model_time.launch = tfd_model_time.block + 1;
  tfd_model_time.arena = b->arena;
  tfd_model_time.arena_bytes = sizeof b->arena;
  tfd_model.block_dim = {threads, 1, 1};
  tfd_model.grid_dim = {grid, 1, 1};
  for (unsigned k = 0; k < grid && b->problem[0] == '\0'; k++) {
    unsigned number = seed == 1 ? grid - 1 - k : k;

    tfd_model.block = {number, 0, 0};
    order_threads(seed, number);
    run_block();
  }
  tfd_model_time.running = false;
  return b->problem[0] == '\0' ? nullptr : b->problem;
}
