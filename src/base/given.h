#ifndef TFD_BASE_GIVEN_H
#define TFD_BASE_GIVEN_H
/* L0 base: what callers outside the runtime hand to public functions.
**
** Every public function asks first, before it looks into anything: a handle is
** open and of its kind, an address is not NULL, a list has as many entries as
** it says, an enum is one there is. Cost: one load and one comparison for a
** handle, a comparison for the rest. Each macro returns from the function that
** uses it; those ending in _OR are for functions that return a plain value,
** which is `value` then, with the error record set.
** Memory that has gone back to the system cannot be told for sure: a mark found
** there would be luck (see struct tfd_object). Specs: spec/c/given. */

#include "base/memory.h"

/* Record why `given` is no open handle of `kind` (TFD_HANDLE_KINDS = of any)
** and return the code. */
int tfd__bad_handle(const char *function, const char *name, const void *given,
                    tfd_handle_kind kind);
/* The same for entry `index` of a list. */
int tfd__bad_entry(const char *function, const char *name, int64_t index,
                   const void *given, tfd_handle_kind kind);
int tfd__bad_pointer(const char *function, const char *name);
int tfd__bad_list(const char *function, const char *name, int64_t n);
int tfd__bad_enum(const char *function, const char *name, int value, int first,
                  int last);
/* Are all n entries open handles of `kind` (TFD_HANDLE_KINDS = of any kind, or
** NULL)? */
int tfd__check_entries(const char *function, const char *name,
                       const void *entries, int64_t n, tfd_handle_kind kind);

static inline bool tfd__is_open(const void *object, tfd_handle_kind kind) {
  const tfd_object *o = object;

  return o != NULL && o->mark == TFD_OPEN_MARK + (uint32_t)kind;
}

/* Of any kind. */
static inline bool tfd__is_handle(const tfd_object *o) {
  return o != NULL && o->mark - TFD_OPEN_MARK < (uint32_t)TFD_HANDLE_KINDS;
}

#define TFD_GIVEN_IF(bad, record, ...) \
  do {                                 \
    if (!TFD_LIKELY(!(bad))) {         \
      int tfd_rc_ = (record);          \
                                       \
      (void)tfd_rc_;                   \
      return __VA_ARGS__;              \
    }                                  \
  } while (0)

#define TFD_GIVEN_OR(x, KIND, value)                \
  TFD_GIVEN_IF(!tfd__is_open(x, TFD_HANDLE_##KIND), \
               tfd__bad_handle(__func__, #x, x, TFD_HANDLE_##KIND), value)
#define TFD_GIVEN(x, KIND) TFD_GIVEN_OR(x, KIND, tfd_rc_)
#define TFD_GIVEN_OPTIONAL(x, KIND)                                \
  TFD_GIVEN_IF((x) != NULL && !tfd__is_open(x, TFD_HANDLE_##KIND), \
               tfd__bad_handle(__func__, #x, x, TFD_HANDLE_##KIND), tfd_rc_)

/* A text, or where a result goes. */
#define TFD_GIVEN_POINTER_OR(p, value) \
  TFD_GIVEN_IF((p) == NULL, tfd__bad_pointer(__func__, #p), value)
#define TFD_GIVEN_POINTER(p) TFD_GIVEN_POINTER_OR(p, tfd_rc_)

/* n numbers or handles; the handles are asked for one by one later. */
#define TFD_GIVEN_LIST(xs, n)                     \
  TFD_GIVEN_IF((xs) == NULL ? (n) != 0 : (n) < 0, \
               tfd__bad_list(__func__, #xs, n), tfd_rc_)
#define TFD_GIVEN_BYTES(p, n) \
  TFD_GIVEN_IF((p) == NULL && (n) != 0, tfd__bad_pointer(__func__, #p), tfd_rc_)
/* n handles of one kind. KINDS: of any kind, NULL among them. */
#define TFD_GIVEN_HANDLES(xs, n, KIND)                                    \
  do {                                                                    \
    TFD_GIVEN_LIST(xs, n);                                                \
    TFD_TRY(tfd__check_entries(__func__, #xs, xs, n, TFD_HANDLE_##KIND)); \
  } while (0)

#define TFD_GIVEN_ENUM(x, first, last)                                  \
  TFD_GIVEN_IF(                                                         \
      (int)(x) < (int)(first) || (int)(x) > (int)(last),                \
      tfd__bad_enum(__func__, #x, (int)(x), (int)(first), (int)(last)), \
      tfd_rc_)

#endif
