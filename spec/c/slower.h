#ifndef TFD_SPEC_SLOWER_H
#define TFD_SPEC_SLOWER_H

/* The thread sanitizer makes each access of memory some twenty times slower:
** long values are so many times shorter there, and of numbers of processes every
** second one runs. What it looks for does not hang on them. */
#if defined(__SANITIZE_THREAD__)
enum { SHORTER = 8, STRIDE = 2 };
#else
enum { SHORTER = 1, STRIDE = 1 };
#endif

#endif
