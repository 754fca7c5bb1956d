#ifndef TFD_SPEC_SLOWER_H
#define TFD_SPEC_SLOWER_H

/* The thread sanitizer makes each access of memory some twenty times slower:
** long values are so many times shorter there. What it looks for does not hang
** on their lengths. */
#if defined(__SANITIZE_THREAD__)
enum { SHORTER = 8 };
#else
enum { SHORTER = 1 };
#endif

#endif
