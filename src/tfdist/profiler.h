/* What ran when. Part of tfdist.h. */
#ifndef TFDIST_H
#error "include tfdist.h, which is the whole API"
#endif
#ifndef TFDIST_PROFILER_H
#define TFDIST_PROFILER_H

/* --- Profiler ----------------------------------------------------------- */

/** Begin a timeline of all devices and of the calling thread, the host's.
 * Errors: AlreadyExists when there is one.
 * Source: tf.profiler.experimental.start */
TFD_API int tfd_profiler_start(void);
/** True while there is one. */
TFD_API bool tfd_profiler_is_running(void);
/** Nanoseconds of the timeline's clock, which only goes forward. */
TFD_API int64_t tfd_profiler_now(void);
/** Note a range of the caller's from `begin` until now; nothing without a
 * timeline. step: the number of a training step; replica: whose; -1 = none. */
TFD_API int tfd_profiler_note(const char *name, int64_t begin, int64_t step,
                              int replica);
/** End the timeline and write it to `path` in Chrome's trace format, "" =
 * nowhere. Errors: Unavailable when there is none; the system's for the file.
 * Source: tf.profiler.experimental.stop */
TFD_API int tfd_profiler_stop(const char *path);
/** Where the time of the timeline that ended last went, a table for people. The
 * text lives until the next one ends. */
TFD_API const char *tfd_profiler_table(void);

#endif
