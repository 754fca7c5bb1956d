#ifndef TFD_SPEC_GIVEN_H
#define TFD_SPEC_GIVEN_H
/* What is handed wrongly, and how a function must refuse it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/given.h"

/* An open handle of each kind, by kind. */
static void *good[TFD_HANDLE_KINDS];
/* Where results would go: they must not. */
static int64_t place[4];
static int64_t never[8];     /* memory that never was a handle */
static int64_t one[1] = {1}; /* one entry, whether integer or handle */
static void *bad = NULL;
static void *bad_list = NULL;

#define OUT ((void *)place)
#define ONE ((void *)one)
#define G(KIND) good[TFD_HANDLE_##KIND]
#define S G(STRATEGY)
#define LIST(KIND) ((void *)&G(KIND))
#define ANOTHER(kind) good[(kind) == TFD_HANDLE_SAVER ? 4 : TFD_HANDLE_SAVER]

static void before(void) {
  (void)tfd__fail(TFD_INTERNAL, "before");
  memset(place, 0x55, sizeof place);
}

/* There is a new message, with the name of this function if of any, and nothing
** was written. */
static void check_refused(const char *call, int line) {
  char name[64];
  size_t n = 0;
  size_t i;

  call += call[0] == '*';
  n = strcspn(call, "(");
  (void)snprintf(name, sizeof name, "%.*s: ", (int)n, call);
  if (strcmp(tfd_error_message(), "before") == 0 ||
      (strncmp(tfd_error_message(), "tfd_", 4) == 0 &&
       strncmp(tfd_error_message(), name, strlen(name)) != 0)) {
    print_error("line %d: %s: \"%s\"\n", line, call, tfd_error_message());
    fail();
  }
  for (i = 0; i < sizeof place; i++)
    assert_int_equal(0x55, ((unsigned char *)place)[i]);
}

#define REFUSED(call)                   \
  do {                                  \
    before();                           \
    assert_int_not_equal(TFD_OK, call); \
    check_refused(#call, __LINE__);     \
  } while (0)
#define REFUSED_GIVES(call, value)  \
  do {                              \
    before();                       \
    assert_true((call) == (value)); \
    check_refused(#call, __LINE__); \
  } while (0)

/* `bad` is nothing, of another kind, and no handle in turn. */
#define BAD_OPTIONAL(KIND, call)      \
  do {                                \
    bad = ANOTHER(TFD_HANDLE_##KIND); \
    REFUSED(call);                    \
    bad = never;                      \
    REFUSED(call);                    \
  } while (0)
#define BAD(KIND, call)       \
  do {                        \
    bad = NULL;               \
    REFUSED(call);            \
    BAD_OPTIONAL(KIND, call); \
  } while (0)
#define BAD_GIVES(KIND, call, value)  \
  do {                                \
    bad = NULL;                       \
    REFUSED_GIVES(call, value);       \
    bad = ANOTHER(TFD_HANDLE_##KIND); \
    REFUSED_GIVES(call, value);       \
    bad = never;                      \
    REFUSED_GIVES(call, value);       \
  } while (0)
/* The same for the one entry of a list. */
#define BAD_ENTRY(KIND, call) \
  do {                        \
    bad_list = &bad;          \
    BAD_OPTIONAL(KIND, call); \
  } while (0)
#define NO_ENTRY(call) \
  do {                 \
    bad_list = &bad;   \
    bad = never;       \
    REFUSED(call);     \
  } while (0)

#endif
