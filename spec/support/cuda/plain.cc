/* The C library's functions for memory, for stand-ins alone: those of the
** address sanitizer refuse devices' memory, which only stand-ins may touch. */
#include <stddef.h>

extern "C" {

void *memcpy(void *to, const void *from, size_t n) {
  char *t = (char *)to;
  const char *f = (const char *)from;

  for (size_t i = 0; i < n; i++) t[i] = f[i];
  return to;
}

void *memmove(void *to, const void *from, size_t n) {
  char *t = (char *)to;
  const char *f = (const char *)from;

  if (t <= f) return memcpy(to, from, n);
  while (n-- > 0) t[n] = f[n];
  return to;
}

void *memset(void *to, int x, size_t n) {
  char *t = (char *)to;

  for (size_t i = 0; i < n; i++) t[i] = (char)x;
  return to;
}

int memcmp(const void *a, const void *b, size_t n) {
  const unsigned char *x = (const unsigned char *)a;
  const unsigned char *y = (const unsigned char *)b;

  for (size_t i = 0; i < n; i++) {
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  }
  return 0;
}
}
