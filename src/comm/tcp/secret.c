/* Proofs that both sides know a secret, by OpenSSL, which is opened when first
** needed: clusters on one machine do without. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "comm/tcp/tcp.h"

/* As libcrypto declares them; both have been the same since version 1.0. */
typedef const void *(*sha256_fn)(void);
typedef unsigned char *(*hmac_fn)(const void *method, const void *key,
                                  int key_bytes, const unsigned char *data,
                                  size_t bytes, unsigned char *proof,
                                  unsigned *proof_bytes);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sha256_fn sha256;
static hmac_fn hmac;

static void open_library(void) {
  static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
  void *library = NULL;
  size_t i;

  for (i = 0; i < 2 && library == NULL; i++) {
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  }
  if (library == NULL) return;
  *(void **)&sha256 = dlsym(library, "EVP_sha256");
  *(void **)&hmac = dlsym(library, "HMAC");
}

int tfd__hmac(const void *key, size_t key_bytes, const void *data, size_t bytes,
              uint8_t proof[TFD_PROOF_BYTES]) {
  unsigned n = 0;

  (void)pthread_once(&once, open_library);
  if (sha256 == NULL || hmac == NULL) {
    (void)tfd__fail(TFD_UNAVAILABLE,
                    "group: a cluster with a secret needs OpenSSL's "
                    "libcrypto, which is not installed");
    return tfd__hint("apt-get install libssl3");
  }
  if (hmac(sha256(), key, (int)key_bytes, data, bytes, proof, &n) == NULL ||
      n != TFD_PROOF_BYTES) {
    return tfd__fail(TFD_INTERNAL, "group: OpenSSL makes no HMAC-SHA256");
  }
  return TFD_OK;
}

int tfd__random_bytes(void *p, size_t bytes) {
  if (getrandom(p, bytes, 0) == (ssize_t)bytes) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE, "group: no random bytes: %s",
                   strerror(errno));
}

bool tfd__same_bytes(const void *a, const void *b, size_t bytes) {
  const volatile uint8_t *x = a;
  const volatile uint8_t *y = b;
  uint8_t differs = 0;
  size_t i;

  for (i = 0; i < bytes; i++) differs |= (uint8_t)(x[i] ^ y[i]);
  return differs == 0;
}
