#include "base/given.h"

#include <stdio.h>

/* What messages call the kinds. */
static const char *const kind_names[TFD_HANDLE_KINDS + 1] = {
    [TFD_HANDLE_TENSOR] = "a tensor",
    [TFD_HANDLE_VARIABLE] = "a variable",
    [TFD_HANDLE_SLICES] = "IndexedSlices",
    [TFD_HANDLE_TAPE] = "a gradient tape",
    [TFD_HANDLE_WALK] = "a walk",
    [TFD_HANDLE_CONTEXT] = "a context",
    [TFD_HANDLE_DEVICE] = "a device",
    [TFD_HANDLE_BUFFER] = "a buffer",
    [TFD_HANDLE_GROUP] = "a group",
    [TFD_HANDLE_STRATEGY] = "a strategy",
    [TFD_HANDLE_VALUE] = "a distributed value",
    [TFD_HANDLE_MIRRORED] = "a distributed variable",
    [TFD_HANDLE_RUN] = "a run",
    [TFD_HANDLE_ARCHIVE] = "an archive",
    [TFD_HANDLE_SAVER] = "a saver",
    [TFD_HANDLE_READER] = "a reader",
    [TFD_HANDLE_WRITER] = "a writer",
    [TFD_HANDLE_EXAMPLE] = "an Example",
    [TFD_HANDLE_INPUT] = "an input",
    [TFD_HANDLE_GRAPH] = "a graph",
    [TFD_HANDLE_KINDS] = "an open handle",
};

static int bad(const char *function, const char *name, const void *given,
               tfd_handle_kind kind) {
  const tfd_object *o = given;

  if (o == NULL) {
    return tfd__fail(TFD_TYPE_ERROR, "%s: %s must be %s, got NULL", function,
                     name, kind_names[kind]);
  }
  if (tfd__is_handle(o)) {
    return tfd__fail(TFD_TYPE_ERROR, "%s: %s must be %s, got %s", function,
                     name, kind_names[kind],
                     kind_names[o->mark - TFD_OPEN_MARK]);
  }
  return tfd__fail(TFD_FAILED_PRECONDITION,
                   "%s: %s must be %s, got no open handle (released before, or "
                   "never one)",
                   function, name, kind_names[kind]);
}

int tfd__bad_handle(const char *function, const char *name, const void *given,
                    tfd_handle_kind kind) {
  return bad(function, name, given, kind);
}

int tfd__bad_entry(const char *function, const char *name, int64_t index,
                   const void *given, tfd_handle_kind kind) {
  char entry[64];

  (void)snprintf(entry, sizeof entry, "%s[%lld]", name, (long long)index);
  return bad(function, entry, given, kind);
}

int tfd__bad_pointer(const char *function, const char *name) {
  return tfd__fail(TFD_TYPE_ERROR, "%s: %s must be an address, got NULL",
                   function, name);
}

int tfd__bad_list(const char *function, const char *name, int64_t n) {
  if (n < 0) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: %s has %lld entries; expected 0 or more", function,
                     name, (long long)n);
  }
  return tfd__fail(TFD_TYPE_ERROR, "%s: %s must be %lld entries, got NULL",
                   function, name, (long long)n);
}

int tfd__bad_enum(const char *function, const char *name, int value, int first,
                  int last) {
  return tfd__fail(TFD_VALUE_ERROR, "%s: %s is %d; expected %d to %d", function,
                   name, value, first, last);
}

int tfd__check_entries(const char *function, const char *name,
                       const void *entries, int64_t n, tfd_handle_kind kind) {
  const tfd_object *const *list = entries;
  int64_t i;

  for (i = 0; i < n; i++) {
    if (kind == TFD_HANDLE_KINDS ? list[i] == NULL || tfd__is_handle(list[i])
                                 : tfd__is_open(list[i], kind)) {
      continue;
    }
    return tfd__bad_entry(function, name, i, list[i], kind);
  }
  return TFD_OK;
}
