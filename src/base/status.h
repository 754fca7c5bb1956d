#ifndef TFD_BASE_STATUS_H
#define TFD_BASE_STATUS_H
/* L0 base: status codes and the per-thread error record.
**
** The function that decides a failure calls tfd__fail once and returns its
** result; every caller passes the code on with TFD_TRY. A record stays valid
** until the next failing call of the same thread. Success never touches it.
** Base includes nothing of ours but tfdist.h. Specs: spec/c/base. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tfdist.h"

#if defined(__GNUC__)
#define TFD_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define TFD_UNUSED __attribute__((unused))
#define TFD_LIKELY(x) __builtin_expect(!!(x), 1)
/* On the way of every op: inlined whatever its size. */
#define TFD_HOT inline __attribute__((always_inline))
/* Rarely called: kept out of its callers, so that they stay small. */
#define TFD_COLD __attribute__((noinline, cold))
#else
#define TFD_PRINTF(f, a)
#define TFD_UNUSED
#define TFD_LIKELY(x) (x)
#define TFD_HOT inline
#define TFD_COLD
#endif

/* Store `code` with the formatted message; returns `code`. Message form:
** operation first, then the offending values, then what was expected. */
int tfd__fail(tfd_status code, const char *fmt, ...) TFD_PRINTF(2, 3);

/* Attach a hint ("call x with y") to the record just written by tfd__fail;
** returns the record's code, so `return tfd__hint(...)` may follow a fail. */
int tfd__hint(const char *fmt, ...) TFD_PRINTF(1, 2);

/* Prefix the current record's message with "<text>: " (context for files,
** variables, replicas). Keeps code and hint. Returns the record's code. */
int tfd__wrap(const char *fmt, ...) TFD_PRINTF(1, 2);

/* Say where the record just written comes from: the replica (-1 = none) and
** the script position "file:line" (NULL or "" = unknown). For failures that
** surface later than the call that caused them. Returns the record's code. */
int tfd__error_set_place(int replica, const char *where);

/* What was going on, one line or several ("in layer \"dense\" (Dense)"): for
** failures that those who know it will not meet on their way up. Returns the
** record's code. */
int tfd__error_set_note(const char *note);

/* Say what the record just written is about, for callers that react to it: the
** op and the argument, in words that stay valid for ever (NULL = as they are),
** and the bound that a value did not keep (-1 = as it is). Returns the record's
** code. */
int tfd__blame(const char *op, const char *argument, int64_t bound);

/* What a process has to end with that does not survive the record just written.
** Returns the record's code. */
typedef enum tfd__exit {
  TFD_EXIT_ANY = 0,          /* as other errors do */
  TFD_EXIT_USAGE = 2,        /* it was started with what it cannot use */
  TFD_EXIT_INTERNAL = 70,    /* the library is wrong: every TFD_INTERNAL */
  TFD_EXIT_PEER_FAILED = 75, /* another process did; start all again */
  TFD_EXIT_CHIEF_LOST = 76,  /* likewise, and it was process 0 that is gone */
  TFD_EXIT_DESYNC = 77,      /* the processes did different things */
  TFD_EXIT_DEVICE_LOST = 78  /* a device that this process cannot have back */
} tfd__exit;
int tfd__exit_with(tfd__exit code);

/* Write the whole record (NULL = no text); returns `code`. */
int tfd__error_set(tfd_status code, int replica, const char *message,
                   const char *hint, const char *where);
int tfd__error_code(void);

/* A record moved between threads (a stream keeps its first failure). Starts
** as {0}; code TFD_OK means empty. */
typedef struct tfd__error {
  tfd_status code;
  char *message;  /* tfd__alloc'ed or NULL */
  char *hint;     /* tfd__alloc'ed or NULL */
  char *where;    /* tfd__alloc'ed or NULL */
  char *note;     /* tfd__alloc'ed or NULL */
  int replica;    /* -1 = none */
  const char *op; /* as tfd__blame was told; NULL = nothing */
  const char *argument;
  int64_t bound; /* -1 = none */
  tfd__exit exit;
} tfd__error;

/* Copy this thread's record into *e (frees what *e held before). */
void tfd__error_save(tfd__error *e);
/* Make *e this thread's record and return its code; *e is left untouched. */
int tfd__error_raise(const tfd__error *e);
void tfd__error_free(tfd__error *e);

#define TFD_TRY(call)                                   \
  do {                                                  \
    int tfd_rc_ = (call);                               \
    if (!TFD_LIKELY(tfd_rc_ == TFD_OK)) return tfd_rc_; \
  } while (0)

/* TFD_TRY_OR(rc = call, label): on failure keep the code and jump. */
#define TFD_TRY_OR(assignment, label)                    \
  do {                                                   \
    if (!TFD_LIKELY((assignment) == TFD_OK)) goto label; \
  } while (0)

/* Log to stderr if `level` is enabled (TFDIST_LOG=error|warning|info|debug,
** default warning). One line, lower case, no newline in fmt. */
typedef enum tfd__log_level {
  TFD_LOG_ERROR = 0,
  TFD_LOG_WARNING = 1,
  TFD_LOG_INFO = 2,
  TFD_LOG_DEBUG = 3
} tfd__log_level;
void tfd__log(tfd__log_level level, const char *fmt, ...) TFD_PRINTF(2, 3);

#endif
