#include "ops/ops.h"

#include <string.h>

/* Filled by the list macro; counts are parsed from the schemas once, before
** main, so that looking an op up is an array access. */
static tfd__op ops[TFD_OP_N] = {
#define OP(name_, schema_, infer_, kernel_, grad_, flags_)                     \
  [TFD_OP_##name_] = {.name = #name_,                                          \
                      .schema = schema_,                                       \
                      .infer = tfd__infer_##infer_,                            \
                      .kernel = TFD_KERNEL_##kernel_,                          \
                      .flags = flags_},
#include "ops/defs/all.def"
#undef OP
};

static const char *const grad_names[TFD_OP_N] = {
#define OP(name_, schema_, infer_, kernel_, grad_, flags_)                     \
  [TFD_OP_##name_] = #grad_,
#include "ops/defs/all.def"
#undef OP
};

/* "e(a|b|c)" has three choices. */
static uint8_t count_choices(const char *kind) {
  int n = 1;

  for (; *kind != ')' && *kind != '\0'; kind++) n += *kind == '|';
  return (uint8_t)n;
}

static void add_slot(tfd__op *op, uint8_t limit) {
  op->slots[op->ints_n++] = limit;
}

static void count_argument(tfd__op *op, const char *kind) {
  switch (kind[0]) {
  case 't':
  case 'n':
    op->in_n++;
    if (kind[1] == '*') op->list_input = true;
    break;
  case 'f':
    op->reals_n++;
    break;
  case 'l':
    op->slots[op->ints_n] = strncmp(kind, "l=nil", 5) == 0
                                ? TFD_SLOT_LIST_OR_NONE
                                : TFD_SLOT_LIST;
    op->ints_n += TFD_LIST_SLOTS;
    break;
  case 'b':
    add_slot(op, 2);
    break;
  case 'd':
    add_slot(op, TFD_DTYPE_END);
    break;
  case 'e':
    add_slot(op, count_choices(kind));
    break;
  default: /* i */
    add_slot(op, 0);
    break;
  }
}

__attribute__((constructor)) static void parse_schemas(void) {
  int i;

  for (i = 0; i < TFD_OP_N; i++) {
    const char *p = ops[i].schema;

    ops[i].differentiable = strcmp(grad_names[i], "none") != 0;
    while ((p = strchr(p, ':')) != NULL) {
      count_argument(&ops[i], ++p);
    }
  }
}

const tfd__op *tfd__op_at(int op) { return &ops[op]; }

int tfd_op_find(const char *name, int *op_p) {
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_POINTER(op_p);

  int i;

  for (i = 0; i < TFD_OP_N; i++) {
    if (strcmp(ops[i].name, name) == 0) {
      *op_p = i;
      return TFD_OK;
    }
  }
  return tfd__fail(TFD_NOT_IMPLEMENTED, "there is no op \"%s\"", name);
}

int tfd_op_count(void) { return TFD_OP_N; }

const char *tfd_op_name(int op) {
  return op >= 0 && op < TFD_OP_N ? ops[op].name : "";
}

const char *tfd_op_schema(int op) {
  return op >= 0 && op < TFD_OP_N ? ops[op].schema : "";
}

bool tfd_op_is_differentiable(int op) {
  return op >= 0 && op < TFD_OP_N && ops[op].differentiable;
}
