#include "ops/attributes.h"

#include <stdlib.h>
#include <string.h>

/* Arguments of all ops, one after another. */
enum { MOST_PARAMS = 2048 };
static tfd__param all[MOST_PARAMS];
static int all_n = 0;

/* --- reading schemas ------------------------------------------------------ */

static uint8_t count_choices(const char *choices) {
  int n = 1;

  for (; *choices != ')' && *choices != '\0'; choices++) n += *choices == '|';
  return (uint8_t)n;
}

int tfd__param_choice(const tfd__param *p, const char *word, size_t length) {
  const char *choice = p->choices;
  int position = 0;

  for (position = 0; position < p->limit; position++) {
    size_t n = strcspn(choice, "|)");

    if (n == length && memcmp(choice, word, n) == 0) return position;
    choice += n + 1;
  }
  return -1;
}

static int64_t dtype_default(const char *word, size_t length) {
  int dtype = 0;

  for (dtype = 1; dtype < TFD_DTYPE_END; dtype++) {
    const char *name = tfd__dtype_name(dtype);

    if (strlen(name) == length && memcmp(name, word, length) == 0) return dtype;
  }
  return 0;
}

/* `word` is NULL for a required attribute. A list is absent by default, or a
** list of one ("l=3"). */
static void read_default(tfd__param *p, const char *word, size_t length) {
  if (word == NULL) return;
  if (strncmp(word, "nil", length) == 0) {
    p->count = -1;
    return;
  }
  switch (p->kind) {
  case 'b':
    p->value = word[0] == 't';
    break;
  case 'd':
    p->value = dtype_default(word, length);
    break;
  case 'e':
    p->value = tfd__param_choice(p, word, length);
    break;
  case 'f':
    p->real = strtod(word, NULL);
    break;
  default:
    p->value = strtoll(word, NULL, 10);
    p->count = 1;
    break;
  }
}

/* Where the attribute lies, and what its slots may hold. */
static void place(tfd__op *op, tfd__param *p, const char *kind) {
  if (p->kind == 'f') {
    p->slot = (uint8_t)op->reals_n++;
    return;
  }
  p->slot = (uint8_t)op->ints_n;
  op->ints_n += p->kind == 'l' ? TFD_LIST_SLOTS : 1;
  if (p->kind == 'b') p->limit = 2;
  if (p->kind == 'd') p->limit = TFD_DTYPE_END;
  if (p->kind == 'e') {
    p->choices = kind + 2;
    p->limit = count_choices(p->choices);
  }
}

/* One "name:kind[=default]" of `length` characters. */
static void read_param(tfd__op *op, tfd__param *p, const char *text,
                       size_t length) {
  const char *kind = (const char *)memchr(text, ':', length) + 1;
  const char *word = memchr(kind, '=', length - (size_t)(kind - text));

  memcpy(p->name, text, (size_t)(kind - 1 - text));
  p->kind = kind[0];
  if (p->kind == 't' || p->kind == 'n') {
    p->list = kind[1] == '*';
    p->required = kind[1] != '?';
    p->slot = (uint8_t)op->in_n++;
    if (p->list) op->list_input = true;
    return;
  }
  place(op, p, kind);
  p->required = word == NULL;
  if (word != NULL) word++;
  read_default(p, word, word == NULL ? 0 : length - (size_t)(word - text));
  p->span = p->limit;
  if (p->kind == 'l') {
    /* Kernels rely on it that lists fit; -1 only where there may be none. */
    p->low = p->count == -1 ? -1 : 0;
    p->span = (uint8_t)(TFD_MAX_RANK + 1 - p->low);
  }
}

void tfd__params_read(tfd__op *op) {
  const char *p = op->schema;

  op->params = &all[all_n];
  while (*p != '\0' && all_n < MOST_PARAMS) {
    size_t length = strcspn(p, " ");

    read_param(op, &all[all_n++], p, length);
    op->params_n++;
    p += length + strspn(p + length, " ");
  }
}

/* --- the rule ------------------------------------------------------------- */

const tfd__param *tfd__param_find(const tfd__op *op, const char *name,
                                  size_t length) {
  int i = 0;

  for (i = 0; i < op->params_n; i++) {
    const tfd__param *p = &op->params[i];

    if (strncmp(p->name, name, length) == 0 && p->name[length] == '\0')
      return p;
  }
  return NULL;
}

static bool fits(const tfd__param *p, const int64_t *ints) {
  return p->span == 0 || (uint64_t)(ints[p->slot] - p->low) < p->span;
}

int tfd__param_check(const tfd__op *op, const tfd__param *p,
                     const int64_t *ints) {
  int64_t x = 0;

  if (fits(p, ints)) return TFD_OK;
  x = ints[p->slot];
  if (p->kind == 'l') {
    return tfd__fail(TFD_VALUE_ERROR, "%s: %s has %lld entries; %d is the most",
                     op->name, p->name, (long long)x, TFD_MAX_RANK);
  }
  return tfd__fail(TFD_VALUE_ERROR, "%s: %s is %lld; expected 0 to %d",
                   op->name, p->name, (long long)x, p->limit - 1);
}

int tfd__check_slots(const tfd__op *op, const int64_t *ints) {
  int i = 0;

  for (i = op->in_n; i < op->params_n; i++) {
    if (TFD_LIKELY(fits(&op->params[i], ints))) continue;
    return tfd__param_check(op, &op->params[i], ints);
  }
  return TFD_OK;
}

bool tfd__is_optional(const tfd__op *op, int i) {
  return i < op->in_n && !op->params[i].required;
}

void tfd__op_defaults(const tfd__op *op, int64_t *ints, double *reals) {
  int i = 0;

  memset(ints, 0, (size_t)op->ints_n * sizeof *ints);
  for (i = op->in_n; i < op->params_n; i++) {
    const tfd__param *p = &op->params[i];

    if (p->kind == 'f') {
      reals[p->slot] = p->real;
    } else if (p->kind == 'l') {
      ints[p->slot] = p->count;
      ints[p->slot + 1] = p->value;
    } else {
      ints[p->slot] = p->value;
    }
  }
}
