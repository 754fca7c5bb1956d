/* Ops by name, with attributes as text: what programs in C call. The schema
** says what there is, so nothing here can differ from it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attributes.h"

/* "name=value" of the text that is being read. */
typedef struct given {
  const tfd__op *op;
  const tfd__param *param;
  const char *word; /* value */
  size_t length;
} given;

static const char *expected(char kind) {
  switch (kind) {
  case 'b':
    return "true or false";
  case 'd':
    return "a dtype's name";
  case 'e':
    return "one of its words";
  case 'f':
    return "a number";
  case 'l':
    return "whole numbers as in [0,1]";
  default:
    return "a whole number";
  }
}

static int bad_value(const given *g) {
  return tfd__fail(TFD_VALUE_ERROR, "%s: %s=%.*s; expected %s", g->op->name,
                   g->param->name, (int)g->length, g->word,
                   expected(g->param->kind));
}

static bool is_word(const given *g, const char *word) {
  return strlen(word) == g->length && memcmp(word, g->word, g->length) == 0;
}

/* A number that ends where `end` says; false for anything else. */
static bool read_whole(const char *text, const char *end, int64_t *x_p) {
  char *stop = NULL;

  errno = 0;
  *x_p = strtoll(text, &stop, 10);
  return errno == 0 && stop == end && stop != text;
}

/* "[1,-2]", "[]" or a single number, into a list's slots. */
static int read_list(const given *g, int64_t *slots) {
  const char *p = g->word;
  const char *end = p + g->length;
  int n = 0;

  if (*p != '[') {
    slots[0] = 1;
    return read_whole(p, end, &slots[1]) ? TFD_OK : bad_value(g);
  }
  if (end[-1] != ']') return bad_value(g);
  end--;
  p++;
  while (p < end) {
    const char *comma = memchr(p, ',', (size_t)(end - p));
    const char *stop = comma == NULL ? end : comma;

    if (n == TFD_MAX_RANK || !read_whole(p, stop, &slots[1 + n++])) {
      return bad_value(g);
    }
    p = comma == NULL ? end : comma + 1;
  }
  slots[0] = n;
  return TFD_OK;
}

static int read_value(const given *g, int64_t *ints, double *reals) {
  const tfd__param *p = g->param;
  char *stop = NULL;
  int number = 0;

  switch (p->kind) {
  case 'f':
    reals[p->slot] = strtod(g->word, &stop);
    return stop == g->word + g->length && g->length > 0 ? TFD_OK : bad_value(g);
  case 'b':
    ints[p->slot] = is_word(g, "true");
    return ints[p->slot] != 0 || is_word(g, "false") ? TFD_OK : bad_value(g);
  case 'l':
    return read_list(g, &ints[p->slot]);
  case 'i':
    return read_whole(g->word, g->word + g->length, &ints[p->slot])
               ? TFD_OK
               : bad_value(g);
  case 'e':
    number = tfd__param_choice(p, g->word, g->length);
    break;
  default:
    for (number = TFD_DTYPE_END - 1; number > 0; number--) {
      if (is_word(g, tfd__dtype_name(number))) break;
    }
    if (number == 0) number = -1;
    break;
  }
  if (number < 0) return bad_value(g);
  ints[p->slot] = number;
  return TFD_OK;
}

/* "axis, keepdims" */
static const char *attribute_names(const tfd__op *op, char *text, size_t n) {
  size_t at = 0;
  int i;

  text[0] = '\0';
  for (i = op->in_n; i < op->params_n && at < n; i++) {
    at += (size_t)snprintf(text + at, n - at, "%s%s", i == op->in_n ? "" : ", ",
                           op->params[i].name);
  }
  return text[0] == '\0' ? "none" : text;
}

static int find_attribute(given *g, const char *name, size_t length,
                          uint64_t *seen) {
  char names[256];
  uint64_t bit = 0;

  g->param = tfd__param_find(g->op, name, length);
  if (g->param == NULL || g->param - g->op->params < g->op->in_n) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: there is no attribute \"%.*s\"; there are: %s",
                     g->op->name, (int)length, name,
                     attribute_names(g->op, names, sizeof names));
  }
  bit = (uint64_t)1 << (g->param - g->op->params);
  if ((*seen & bit) != 0) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: %s is given twice", g->op->name,
                     g->param->name);
  }
  *seen |= bit;
  return TFD_OK;
}

int tfd__attributes_read(const tfd__op *op, const char *text, int64_t *ints,
                         double *reals) {
  given g = {.op = op};
  uint64_t seen = 0;
  int i;

  tfd__op_defaults(op, ints, reals);
  while (text != NULL && *(text += strspn(text, " ")) != '\0') {
    size_t length = strcspn(text, "= ");

    if (text[length] != '=') {
      return tfd__fail(TFD_VALUE_ERROR,
                       "%s: \"%s\" in the attributes; expected name=value",
                       op->name, text);
    }
    TFD_TRY(find_attribute(&g, text, length, &seen));
    g.word = text + length + 1;
    g.length = strcspn(g.word, " ");
    TFD_TRY(read_value(&g, ints, reals));
    text = g.word + g.length;
  }
  for (i = op->in_n; i < op->params_n; i++) {
    if (!op->params[i].required || (seen >> i & 1) != 0) continue;
    return tfd__fail(TFD_VALUE_ERROR, "%s: the attribute %s is missing",
                     op->name, op->params[i].name);
  }
  return TFD_OK;
}

int tfd_op_call(const char *name, const char *attributes,
                tfd_object *const *inputs, int inputs_n, tfd_tensor **outputs,
                int outputs_capacity, int *outputs_n_p) {
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_LIST(inputs, inputs_n);
  TFD_GIVEN_LIST(outputs, outputs_capacity);
  TFD_GIVEN_POINTER(outputs_n_p);

  tfd_object *all[TFD_CALL_VIEWS] = {NULL};
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS] = {0};
  const tfd__op *op = NULL;
  int number = 0;
  int i;

  TFD_TRY(tfd_op_find(name, &number));
  op = tfd__op_at(number);
  TFD_TRY(tfd__attributes_read(op, attributes, ints, reals));
  if (!op->list_input && inputs_n < op->in_n) { /* the rest is absent */
    for (i = 0; i < inputs_n; i++) all[i] = inputs[i];
    inputs = all;
    inputs_n = op->in_n;
  }
  return tfd_op_run(number, inputs, inputs_n, ints, op->ints_n, reals,
                    op->reals_n, outputs, outputs_capacity, outputs_n_p);
}
