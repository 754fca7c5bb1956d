#include "base/failpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/given.h"

enum { RULES = 64, TEXT_BYTES = 2048, ANY_RANK = -1 };

typedef enum act {
  ACT_ERRNO,
  ACT_KILL,
  ACT_STOP,
  ACT_CRASH,
  ACT_EXIT,
  ACT_SLEEP,
  ACT_FLIP
} act;

typedef struct rule {
  tfd__failpoint id;
  act act;
  int value;    /* errno, exit code or milliseconds */
  int64_t pass; /* the one it is for; 0 = each */
  int rank;     /* the process that it is for, or ANY_RANK */
  atomic_int_least64_t passes;
} rule;

static const struct place {
  const char *name;
  const char *what;
  bool bytes;
} places[TFD_FAILPOINTS] = {
#define PLACE(id, name, bytes, what) {name, what, bytes},
    TFD_FAILPOINT_LIST(PLACE)
#undef PLACE
};

static const struct {
  const char *name;
  int value;
} errors[] = {
    {"enospc", ENOSPC},
    {"eio", EIO},
    {"efbig", EFBIG},
    {"edquot", EDQUOT},
    {"eacces", EACCES},
    {"erofs", EROFS},
    {"enomem", ENOMEM},
    {"emfile", EMFILE},
    {"epipe", EPIPE},
    {"econnreset", ECONNRESET},
    {"econnrefused", ECONNREFUSED},
    {"etimedout", ETIMEDOUT},
    {"ehostunreach", EHOSTUNREACH},
    {"enetunreach", ENETUNREACH},
    {"eaddrinuse", EADDRINUSE},
    {"eaddrnotavail", EADDRNOTAVAIL},
};

static const struct {
  const char *name;
  act act;
  int most; /* of the number after it; 0 = takes none */
} acts[] = {
    {"kill", ACT_KILL, 0},   {"stop", ACT_STOP, 0},
    {"crash", ACT_CRASH, 0}, {"flip", ACT_FLIP, 0},
    {"exit", ACT_EXIT, 255}, {"sleep", ACT_SLEEP, 3600000},
};

/* Written while nothing is ordered: who sees that something is sees all of it.
*/
static rule rules[RULES];
static int rules_n;
static atomic_int my_rank;
atomic_bool tfd__failpoints_on;

/* --- reading -------------------------------------------------------------- */

/* A whole number from 0 to `most` that is all of `text`. */
static bool read_number(const char *text, int64_t most, int64_t *n_p) {
  char *end = NULL;
  long long n = 0;

  if (text[0] < '0' || text[0] > '9') return false;
  errno = 0;
  n = strtoll(text, &end, 10);
  if (errno != 0 || *end != '\0' || n > most) return false;
  *n_p = n;
  return true;
}

static bool read_act(char *text, rule *r) {
  char *number = strchr(text, ':');
  int64_t n = 0;
  size_t i;

  for (i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (strcasecmp(text, errors[i].name) != 0) continue;
    r->act = ACT_ERRNO;
    r->value = errors[i].value;
    return true;
  }
  if (number != NULL) *number++ = '\0';
  for (i = 0; i < sizeof acts / sizeof *acts; i++) {
    if (strcasecmp(text, acts[i].name) != 0) continue;
    if ((number != NULL) != (acts[i].most > 0)) return false;
    if (number != NULL && !read_number(number, acts[i].most, &n)) return false;
    r->act = acts[i].act;
    r->value = (int)n;
    return true;
  }
  return false;
}

/* "37" or "rank1". */
static bool read_limit(const char *text, rule *r) {
  int64_t n = 0;

  if (strncasecmp(text, "rank", 4) == 0) {
    if (!read_number(text + 4, INT32_MAX, &n)) return false;
    r->rank = (int)n;
    return true;
  }
  return read_number(text, INT64_MAX, &r->pass) && r->pass > 0;
}

static bool read_place(const char *name, rule *r) {
  int i;

  for (i = 0; i < TFD_FAILPOINTS; i++) {
    if (strcmp(name, places[i].name) != 0) continue;
    r->id = (tfd__failpoint)i;
    return true;
  }
  return false;
}

static int refuse(const char *word, const char *why) {
  (void)tfd__fail(TFD_VALUE_ERROR,
                  "TFDIST_FAILPOINTS: \"%.80s\" %s; expected "
                  "PLACE=ACTION[@PASS][@rankR];...",
                  word, why);
  return tfd__hint("`tfdist --failpoints` lists places and actions");
}

/* One order; `word` is cut into pieces. */
static int read_rule(char *word, rule *r) {
  char kept[81];
  char *action = strchr(word, '=');
  char *limit = NULL;

  (void)snprintf(kept, sizeof kept, "%s", word);
  r->rank = ANY_RANK;
  if (action == NULL) return refuse(kept, "has no action");
  *action++ = '\0';
  if (!read_place(word, r)) return refuse(kept, "names no place");
  limit = strchr(action, '@');
  while (limit != NULL) {
    char *next = NULL;

    *limit++ = '\0';
    next = strchr(limit, '@');
    if (next != NULL) *next = '\0';
    if (!read_limit(limit, r)) {
      return refuse(kept, "has neither a pass nor a rank behind its @");
    }
    if (next != NULL) *next = '@';
    limit = next;
  }
  if (!read_act(action, r)) return refuse(kept, "names no action");
  if (r->act == ACT_FLIP && !places[r->id].bytes) {
    return refuse(kept, "would flip where there are no bytes");
  }
  return TFD_OK;
}

int tfd__failpoints_set(const char *text) {
  char copy[TEXT_BYTES];
  char *rest = NULL;
  char *word = NULL;

  atomic_store(&tfd__failpoints_on, false);
  rules_n = 0;
  if (text == NULL) return TFD_OK;
  if (strlen(text) >= sizeof copy) {
    return refuse(text, "and so on is too long");
  }
  memcpy(copy, text, strlen(text) + 1);
  for (word = strtok_r(copy, "; \t\n", &rest); word != NULL;
       word = strtok_r(NULL, "; \t\n", &rest)) {
    if (rules_n == RULES) return refuse(word, "is one order too many");
    memset(&rules[rules_n], 0, sizeof *rules);
    TFD_TRY(read_rule(word, &rules[rules_n]));
    rules_n++;
  }
  atomic_store(&tfd__failpoints_on, rules_n > 0);
  return TFD_OK;
}

int tfd_test_failpoints(const char *orders) {
  TFD_GIVEN_POINTER(orders);

  return tfd__failpoints_set(orders);
}

int tfd__failpoints_read(void) {
  static bool done;
  const char *text = getenv("TFDIST_FAILPOINTS");

  if (done || text == NULL) return TFD_OK;
  TFD_TRY(tfd__failpoints_set(text));
  done = true; /* passes are counted on, however often this is called */
  return TFD_OK;
}

void tfd__failpoints_rank(int rank) {
  atomic_store_explicit(&my_rank, rank, memory_order_relaxed);
}

const char *tfd__failpoint_name(int id) {
  return id >= 0 && id < TFD_FAILPOINTS ? places[id].name : NULL;
}

const char *tfd__failpoint_what(int id) {
  return id >= 0 && id < TFD_FAILPOINTS ? places[id].what : NULL;
}

const char *tfd__failpoint_actions(void) {
  static char text[512];
  int used = 0;
  size_t i;

  for (i = 0; i < sizeof acts / sizeof *acts; i++) {
    used += snprintf(text + used, sizeof text - (size_t)used, "%s%s ",
                     acts[i].name, acts[i].most > 0 ? ":N" : "");
  }
  for (i = 0; i < sizeof errors / sizeof *errors; i++) {
    used += snprintf(text + used, sizeof text - (size_t)used, "%s ",
                     errors[i].name);
  }
  text[used - 1] = '\0';
  return text;
}

/* --- acting --------------------------------------------------------------- */

static void rest_for(int ms) {
  struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};

  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static int act_on(const rule *r) {
  tfd__log(TFD_LOG_DEBUG, "failpoint %s", places[r->id].name);
  switch (r->act) {
  case ACT_ERRNO:
    return r->value;
  case ACT_KILL:
    (void)kill(getpid(), SIGKILL);
    return 0;
  case ACT_STOP:
    (void)kill(getpid(), SIGSTOP);
    return 0;
  case ACT_CRASH:
    (void)raise(SIGSEGV);
    return 0;
  case ACT_EXIT:
    _exit(r->value);
  case ACT_SLEEP:
    rest_for(r->value);
    return 0;
  default:
    return TFD_FLIP;
  }
}

int tfd__failpoint_pass(tfd__failpoint id) {
  int rank = atomic_load_explicit(&my_rank, memory_order_relaxed);
  int answer = 0;
  int i;

  if (!atomic_load_explicit(&tfd__failpoints_on, memory_order_acquire)) {
    return 0;
  }
  for (i = 0; i < rules_n && answer == 0; i++) {
    rule *r = &rules[i];
    int64_t pass = 0;

    if (r->id != id || (r->rank != ANY_RANK && r->rank != rank)) continue;
    pass = atomic_fetch_add_explicit(&r->passes, 1, memory_order_relaxed) + 1;
    if (r->pass == 0 || r->pass == pass) answer = act_on(r);
  }
  return answer;
}
