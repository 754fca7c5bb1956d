#ifndef TFD_SPEC_STANDIN_H
#define TFD_SPEC_STANDIN_H
/* What the stand-ins share: work is put on a stream of libcuda's stand-in,
** which runs it when somebody waits, streams in an order that a seed chooses.
** TFD_STANDIN_SEED: order of streams and of a kernel's threads (0 = forward).
** TFD_STANDIN_DEVICES: how many GPUs (1).
** TFD_STANDIN_FIRST: which of the machine's GPUs the first one is (0).
** TFD_STANDIN_TAKES: how much a stream takes before who has more waits (1024).
** TFD_STANDIN_MODE: late, serial (work runs at once), alone (in a thread) or
** threads (one for each stream: their kernels run at the same time).
** TFD_STANDIN_FAIL=CODE@CALL: the CALL-th function returns CODE; after 700 and
** 719 all that come later on its GPU do, too (on all where none is chosen).
** TFD_STANDIN_FAIL_CAPTURE=CODE@CALL: likewise of those called while a stream
** captures; from 900 on, the capture is no longer good.
** TFD_STANDIN_REFUSES=WORDS: what libraries do not support, of products,
** unaligned (of products, by less than 16 bytes), epilogues, nan (which RELU
** epilogues make 0), convolutions, pooling.
** TFD_STANDIN_COUNTS=FILE: how much was launched is written there at exit, and
** which kernels ran. */

#include <cuda.h>

#ifdef __cplusplus
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <mutex>

/* `ready`: may it run now that all before it on the stream has? None = yes. It
** is asked again and again, under the stand-ins' one lock, as `run` is. */
void tfd_standin_enqueue(CUstream stream, std::function<void()> run,
                         std::function<bool()> ready = nullptr);
/* The device that is the calling thread's, -1 = none. */
int tfd_standin_device();
int tfd_standin_device_of(CUstream stream);
/* Which of the machine's GPUs a device is. */
int tfd_standin_gpu(int device);
/* From now on whatever is called there fails, as a GPU that is lost does. */
void tfd_standin_spoil(int device);
/* From now on work runs without anybody who waits, too. */
void tfd_standin_run_alone();
/* All of [data, data + bytes) is device memory. */
bool tfd_standin_is_device(const void *data, size_t bytes);
static inline bool tfd_standin_refuses(const char *what) {
  static const char *const words = getenv("TFD_STANDIN_REFUSES");

  return words != nullptr && strstr(words, what) != nullptr;
}
/* As TF32 keeps x: 10 bits of its fraction. */
static inline double tfd_standin_tf32(double x) {
  float f = (float)x;
  uint32_t u;

  memcpy(&u, &f, sizeof u);
  u = (u + 0x1000u) & 0xffffe000u;
  memcpy(&f, &u, sizeof f);
  return (double)f;
}
/* Hold it for what is shared with work that runs. */
std::unique_lock<std::recursive_mutex> tfd_standin_lock();
extern "C" {
#endif
/* Says that a library is a stand-in. */
extern __attribute__((visibility("default"))) const int tfd_standin;
#ifdef __cplusplus
}
#endif

#endif
