#include "ops/attributes.h"

#include <string.h>

/* Filled by the list macro; the schemas are read once, before main, so that
** looking an op up is an array access. */
static tfd__op ops[TFD_OP_N] = {
#define OP(name_, schema_, infer_, kernel_, grad_, flags_) \
  [TFD_OP_##name_] = {.name = #name_,                      \
                      .schema = schema_,                   \
                      .infer = tfd__infer_##infer_,        \
                      .kernel = TFD_KERNEL_##kernel_,      \
                      .flags = flags_},
#include "ops/defs/all.def"
#undef OP
};

static const char *const grad_names[TFD_OP_N] = {
#define OP(name_, schema_, infer_, kernel_, grad_, flags_) \
  [TFD_OP_##name_] = #grad_,
#include "ops/defs/all.def"
#undef OP
};

__attribute__((constructor)) static void parse_schemas(void) {
  int i;

  for (i = 0; i < TFD_OP_N; i++) {
    ops[i].differentiable = strcmp(grad_names[i], "none") != 0;
    tfd__params_read(&ops[i]);
  }
}

const tfd__op *tfd__op_at(int op) {
  return &ops[op];
}

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

int tfd_op_count(void) {
  return TFD_OP_N;
}

const char *tfd_op_name(int op) {
  return op >= 0 && op < TFD_OP_N ? ops[op].name : "";
}

const char *tfd_op_schema(int op) {
  return op >= 0 && op < TFD_OP_N ? ops[op].schema : "";
}

bool tfd_op_is_differentiable(int op) {
  return op >= 0 && op < TFD_OP_N && ops[op].differentiable;
}
