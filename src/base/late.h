#ifndef TFD_BASE_LATE_H
#define TFD_BASE_LATE_H
/* L0 base: this process keeps others waiting, and whoever knows where its
** script is says so. */

/* What is called then; hosts set it. NULL = nothing. Threads: any. */
void tfd__on_late(void (*fn)(void));
void tfd__be_late(void);

#endif
