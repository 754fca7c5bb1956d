/* The checker of races. Kernels are compiled for the thread sanitizer, but
** linked with these functions instead of its library: each access of a kernel
** comes here first. Every byte of shared and device memory has two stamps, of
** its last write and of its last read: who, and when in the order that
** barriers make. Two accesses clash when one of them writes, both are of one
** launch, and nothing orders them: another block's, or another thread's of the
** same block since its last barrier, unless a warp barrier lies between two
** threads of one warp. A shuffle orders no memory. */
#include "model.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unordered_map>

namespace {

enum { PAGE = 4096, GUARD = 512, CACHE = 64 };

struct stamp {
  uint32_t block; /* 0 = never */
  uint16_t barrier;
  uint16_t warp_barrier;
  uint16_t thread;
  bool atomic;
  bool threads; /* reads: others of its warp read too */
  bool warps;   /* others of its block */
  bool blocks;  /* others of the launch */
};

struct byte {
  stamp written;
  stamp read;
};

struct page {
  byte bytes[PAGE];
  bool live[PAGE]; /* device memory; else it must not be touched */
};

/* Pages of device memory. Never destroyed: kernels run until the end. One
** thread at a time allocates or runs kernels: libcuda's stand-in has a lock. */
std::unordered_map<uintptr_t, page *> &pages =
    *new std::unordered_map<uintptr_t, page *>;
byte shared[64 << 10];

struct access {
  const unsigned char *at;
  size_t bytes;
  bool write;
  bool atomic;
  bool device;
  const void *by; /* place in the program */
};

page *page_of(const void *at) {
  static struct {
    uintptr_t number;
    page *p;
  } cache[CACHE];
  uintptr_t number = (uintptr_t)at / PAGE;
  auto *c = &cache[number % CACHE];

  if (c->number != number || c->p == nullptr) {
    auto it = pages.find(number);

    if (it == pages.end()) return nullptr;
    *c = {number, it->second};
  }
  return c->p;
}

/* The function and its place, for addr2line. */
void stop(const access &a, const char *what) {
  Dl_info info = {};
  size_t place = 0;

  if (dladdr(a.by, &info) != 0) {
    place = (size_t)((const char *)a.by - (const char *)info.dli_fbase);
  }
  tfd_model_stop(
      "%s: thread %u of block %u %s %zu bytes of %s memory (%s+0x%zx)", what,
      tfd_model.thread.x, tfd_model.block.x, a.write ? "writes" : "reads",
      a.bytes, a.device ? "device" : "shared",
      info.dli_fname == nullptr ? "?" : info.dli_fname, place);
}

stamp now(const access &a) {
  const tfd_model_clock &t = tfd_model_time;
  unsigned thread = tfd_model.thread.x;

  return {t.block,
          (uint16_t)t.barrier,
          (uint16_t)t.warp[thread / 32],
          (uint16_t)thread,
          a.atomic,
          false,
          false,
          false};
}

bool same_warp(const stamp &p, const stamp &q) {
  return p.thread / 32 == q.thread / 32;
}

/* Is `p`, of the same launch, ordered before `q`, the present? */
bool ordered(const stamp &p, const stamp &q) {
  if (p.blocks || p.block != q.block) return false;
  if (p.barrier != q.barrier) return true;
  if (p.warps) return false;
  if (!same_warp(p, q)) return false;
  if (p.warp_barrier != q.warp_barrier) return true;
  return p.thread == q.thread && !p.threads;
}

bool in_launch(const stamp &p, bool device) {
  return p.block != 0 && (device ? p.block >= tfd_model_time.launch
                                 : p.block == tfd_model_time.block);
}

void check(byte *x, const access &a) {
  stamp q = now(a);

  if (in_launch(x->written, a.device) && !(x->written.atomic && a.atomic) &&
      !ordered(x->written, q)) {
    stop(a, a.write ? "race: written by another thread too"
                    : "race: written by another thread meanwhile");
  }
  if (a.write && in_launch(x->read, a.device) && !ordered(x->read, q)) {
    stop(a, "race: read by another thread meanwhile");
  }
  if (!a.write && !a.device && x->written.block != tfd_model_time.block) {
    stop(a, "nobody wrote it");
  }
  if (a.write) {
    x->written = q;
    return;
  }
  if (in_launch(x->read, a.device)) {
    const stamp &p = x->read;

    q.blocks = p.blocks || p.block != q.block;
    if (p.block == q.block && p.barrier == q.barrier) {
      q.warps = p.warps || !same_warp(p, q);
      q.threads = p.thread != q.thread ||
                  (p.threads && p.warp_barrier == q.warp_barrier);
    }
  }
  x->read = q;
}

void look(void *at, size_t bytes, bool write, bool atomic, const void *by) {
  access a = {(unsigned char *)at, bytes, write, atomic, false, by};
  const tfd_model_clock &t = tfd_model_time;

  if (!t.running) return;
  if (a.at >= t.arena && a.at < t.arena + t.arena_bytes) {
    if (!tfd_model_shared_at(at, bytes)) stop(a, "outside its array");
  } else {
    a.device = page_of(at) != nullptr;
    if (!a.device) return; /* the thread's own */
  }
  if (bytes > 1 && (uintptr_t)at % bytes != 0 && (bytes & (bytes - 1)) == 0) {
    stop(a, "misaligned");
  }
  for (size_t k = 0; k < bytes; k++) {
    byte *x = &shared[a.at + k - t.arena];

    if (a.device) {
      page *p = page_of(a.at + k);

      if (p == nullptr || !p->live[(uintptr_t)(a.at + k) % PAGE]) {
        stop(a, "outside what was allocated");
      }
      x = &p->bytes[(uintptr_t)(a.at + k) % PAGE];
    }
    check(x, a);
  }
}

} // namespace

extern "C" {

/* Around live memory lies some that is known not to be. */
void tfd_race_memory(void *data, size_t bytes, bool live) {
  uintptr_t begin = (uintptr_t)data;

  for (uintptr_t n = (begin - GUARD) / PAGE;
       n <= (begin + bytes + GUARD) / PAGE; n++) {
    if (pages.find(n) == pages.end()) {
      pages[n] = (page *)calloc(1, sizeof(page));
    }
  }
  for (uintptr_t at = begin; at < begin + bytes; at++) {
    page *p = pages[at / PAGE];

    p->live[at % PAGE] = live;
    p->bytes[at % PAGE] = {};
  }
}

void tfd_race_atomic(void *at, size_t bytes) {
  look(at, bytes, true, true, __builtin_return_address(0));
}

/* What the compiler calls. */
#define HOOK(name, bytes, write)                                \
  void __tsan_##name(void *at) {                                \
    look(at, bytes, write, false, __builtin_return_address(0)); \
  }
#define HOOKS(bytes)                        \
  HOOK(read##bytes, bytes, false)           \
  HOOK(write##bytes, bytes, true)           \
  HOOK(unaligned_read##bytes, bytes, false) \
  HOOK(unaligned_write##bytes, bytes, true)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *at, size_t bytes) {
  look(at, bytes, false, false, __builtin_return_address(0));
}
void __tsan_write_range(void *at, size_t bytes) {
  look(at, bytes, true, false, __builtin_return_address(0));
}
void __tsan_init(void) {}
void __tsan_vptr_update(void **, void *) {}
}
