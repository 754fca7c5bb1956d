/* The text of a fused kernel. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/fuse.h"
#include "base/memory.h"

enum { ROOM = 96 << 10 };

typedef struct text {
  const tfd__strip_text *of;
  char *data;
  size_t n;
} text;

__attribute__((format(printf, 2, 3))) static void put(text *t, const char *form,
                                                      ...) {
  va_list list;
  int n;

  va_start(list, form);
  n = vsnprintf(t->data + t->n, ROOM - t->n, form, list);
  va_end(list);
  t->n += (size_t)n;
  if (t->n >= ROOM) t->n = ROOM - 1; /* seen at the end */
}

/* --- ops ------------------------------------------------------------------ */

/* Names of the ops by the form they have. */
typedef struct forms {
  const char *float_unary;
  const char *int_unary;
  const char *float_binary;
  const char *int_binary;
  const char *test;
  const char *compare;
} forms;

static const forms ops[TFD_KERNEL_N] = {
#define FLOAT_UNARY(name, e) [TFD_KERNEL_##name].float_unary = #name,
#define INT_UNARY(name, e) [TFD_KERNEL_##name].int_unary = #name,
#define FLOAT_BINARY(name, e) [TFD_KERNEL_##name].float_binary = #name,
#define INT_BINARY(name, e) [TFD_KERNEL_##name].int_binary = #name,
#define TEST(name, e) [TFD_KERNEL_##name].test = #name,
#define COMPARE(name, e) [TFD_KERNEL_##name].compare = #name,
#include "backend/cuda/kernels/ops.def"
#undef FLOAT_UNARY
#undef INT_UNARY
#undef FLOAT_BINARY
#undef INT_BINARY
#undef TEST
#undef COMPARE
};

bool tfd__cuda_source_takes(tfd__kernel_id kernel, int args_n,
                            const uint8_t *dtypes) {
  const forms *f = &ops[kernel];
  bool real = tfd__is_float(dtypes[0]);

  switch (kernel) {
  case TFD_KERNEL_copy:
  case TFD_KERNEL_cast:
    return args_n == 1;
  case TFD_KERNEL_select:
  case TFD_KERNEL_clip_by_value:
    return args_n == 3;
  case TFD_KERNEL_logical_not:
    return args_n == 1 && dtypes[0] == TFD_BOOL;
  default:
    break;
  }
  if (args_n == 2 && f->compare != NULL) return true;
  if (dtypes[0] == TFD_BOOL) return false;
  if (args_n == 1 && real && f->test != NULL) return true;
  if (args_n == 1) return (real ? f->float_unary : f->int_unary) != NULL;
  return args_n == 2 && (real ? f->float_binary : f->int_binary) != NULL;
}

/* Its type in memory, and the one that it is computed in. */
static const char *kept_as(int dtype) {
  static const char *const names[TFD_DTYPE_END] = {
      [TFD_FLOAT32] = "float", [TFD_FLOAT64] = "double",
      [TFD_FLOAT16] = "f16",   [TFD_BFLOAT16] = "bf16",
      [TFD_INT8] = "int8_t",   [TFD_INT16] = "int16_t",
      [TFD_INT32] = "int32_t", [TFD_INT64] = "int64_t",
      [TFD_UINT8] = "uint8_t", [TFD_BOOL] = "uint8_t"};

  return names[dtype];
}

static const char *computed_as(int dtype) {
  return dtype == TFD_FLOAT16 || dtype == TFD_BFLOAT16 ? "float"
                                                       : kept_as(dtype);
}

static int dtype_of(const tfd__strip_text *t, const tfd__strip_arg *arg) {
  if (arg->from == TFD_STRIP_INPUT) return t->inputs[arg->index].dtype;
  if (arg->from == TFD_STRIP_RESULT) return t->ops[arg->index].dtype;
  return arg->dtype;
}

static unsigned long long bits_of(double x) {
  unsigned long long bits = 0;

  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static void put_arg(text *t, const tfd__strip_arg *arg) {
  switch (arg->from) {
  case TFD_STRIP_INPUT:
    put(t, "i%d", arg->index);
    break;
  case TFD_STRIP_RESULT:
    put(t, "r%d", arg->index);
    break;
  default:
    put(t, "widen((%s)number(0x%llxull))", computed_as(arg->dtype),
        bits_of(arg->value));
    break;
  }
}

static void put_args(text *t, const tfd__strip_op *o) {
  int i;

  for (i = 0; i < o->args_n; i++) {
    put(t, i > 0 ? ", " : "");
    put_arg(t, &o->args[i]);
  }
}

static void put_cast(text *t, const tfd__strip_op *o, int from) {
  static const char *const names[TFD_DTYPE_END] = {
      [TFD_FLOAT32] = "FLOAT32", [TFD_FLOAT64] = "FLOAT64",
      [TFD_FLOAT16] = "FLOAT16", [TFD_BFLOAT16] = "BFLOAT16",
      [TFD_INT8] = "INT8",       [TFD_INT16] = "INT16",
      [TFD_INT32] = "INT32",     [TFD_INT64] = "INT64",
      [TFD_UINT8] = "UINT8",     [TFD_BOOL] = "BOOL"};

  put(t, "cast_%s<%s>(TFD_CU_%s, ", tfd__is_float(from) ? "real" : "whole",
      kept_as(o->dtype), names[o->dtype]);
  put_args(t, o);
  put(t, ")");
}

/* Those of ops.def. */
static void put_listed(text *t, const tfd__strip_op *o, int from) {
  const forms *f = &ops[o->kernel];
  bool real = tfd__is_float(from);
  bool attribute = false;
  const char *name = NULL;
  const char *form = "";

  if (f->compare != NULL) {
    form = "C";
    name = f->compare;
  } else if (o->args_n == 1 && real && f->test != NULL) {
    form = "T";
    name = f->test;
  } else if (o->args_n == 1) {
    form = real ? "U" : "IU";
    name = real ? f->float_unary : f->int_unary;
    attribute = real;
  } else {
    form = real ? "B" : "IB";
    name = real ? f->float_binary : f->int_binary;
    attribute = real;
  }
  put(t, "%s_%s<%s>(", form, name, computed_as(from));
  put_args(t, o);
  if (attribute) {
    put(t, ", (%s)number(0x%llxull)", computed_as(from),
        bits_of(o->reals_n > 0 ? o->reals[0] : 0));
  }
  put(t, ")");
}

static void put_op(text *t, int i) {
  const tfd__strip_op *o = &t->of->ops[i];
  int from = dtype_of(t->of, &o->args[0]);

  put(t, "  const %s r%d = stored<%s>(", computed_as(o->dtype), i,
      kept_as(o->dtype));
  switch (o->kernel) {
  case TFD_KERNEL_copy:
    put_args(t, o);
    break;
  case TFD_KERNEL_cast:
    put_cast(t, o, from);
    break;
  case TFD_KERNEL_select:
    put_arg(t, &o->args[0]);
    put(t, " != 0 ? ");
    put_arg(t, &o->args[1]);
    put(t, " : ");
    put_arg(t, &o->args[2]);
    break;
  case TFD_KERNEL_clip_by_value:
    put(t, "clip_of<%s>(", computed_as(from));
    put_args(t, o);
    put(t, ")");
    break;
  default:
    put_listed(t, o, from);
    break;
  }
  put(t, ");\n");
}

/* --- the kernel ----------------------------------------------------------- */

static int output_dtype(const tfd__strip_text *t, int i) {
  return t->ops[t->outputs[i]].dtype;
}

int tfd__cuda_source_pack(const tfd__strip_text *t) {
  size_t most = 0;
  int i;

  for (i = 0; i < t->inputs_n; i++) {
    size_t bytes = tfd__dtype_size(t->inputs[i].dtype);

    if (bytes > most) most = bytes;
  }
  for (i = 0; i < t->outputs_n; i++) {
    size_t bytes = tfd__dtype_size((tfd_dtype)output_dtype(t, i));

    if (bytes > most) most = bytes;
  }
  if (t->inputs_n + t->outputs_n > 8) return 1; /* they are registers */
  return most <= 4 ? 4 : 2;
}

/* One element: what is read by value, so that it may lie where results go. */
static void put_element(text *t) {
  const tfd__strip_text *of = t->of;
  int i;

  put(t, "DEVICE void element(");
  for (i = 0; i < of->inputs_n; i++) {
    put(t, "%s s%d, ", kept_as(of->inputs[i].dtype), i);
  }
  for (i = 0; i < of->outputs_n; i++) {
    put(t, "%s%s &d%d", i > 0 ? ", " : "", kept_as(output_dtype(of, i)), i);
  }
  put(t, ") {\n");
  for (i = 0; i < of->inputs_n; i++) {
    put(t, "  const %s i%d = widen(s%d);\n", computed_as(of->inputs[i].dtype),
        i, i);
  }
  for (i = 0; i < of->ops_n; i++) put_op(t, i);
  for (i = 0; i < of->outputs_n; i++) {
    put(t, "  d%d = narrow<%s>(r%d);\n", i, kept_as(output_dtype(of, i)),
        of->outputs[i]);
  }
  put(t, "}\n\n");
}

static void put_packs(text *t, int n) {
  const tfd__strip_text *of = t->of;
  int i;

  put(t,
      "  if (a.vector != 0) {\n"
      "    done = a.n / %d * %d;\n"
      "    for (int64_t i = thread_index(); i < a.n / %d;"
      " i += thread_count()) {\n",
      n, n, n);
  for (i = 0; i < of->inputs_n; i++) {
    put(t,
        "      const pack<%s, %d> s%d = packed<%s, %d>(a.in[%d], i,"
        " (a.scalar >> %d & 1) != 0);\n",
        kept_as(of->inputs[i].dtype), n, i, kept_as(of->inputs[i].dtype), n, i,
        i);
  }
  for (i = 0; i < of->outputs_n; i++) {
    put(t, "      pack<%s, %d> d%d;\n", kept_as(output_dtype(of, i)), n, i);
  }
  put(t, "      for (int j = 0; j < %d; j++) element(", n);
  for (i = 0; i < of->inputs_n; i++) put(t, "s%d.v[j], ", i);
  for (i = 0; i < of->outputs_n; i++) {
    put(t, "%sd%d.v[j]", i > 0 ? ", " : "", i);
  }
  put(t, ");\n");
  for (i = 0; i < of->outputs_n; i++) {
    put(t, "      ((pack<%s, %d> *)a.out[%d])[i] = d%d;\n",
        kept_as(output_dtype(of, i)), n, i, i);
  }
  put(t, "    }\n  }\n");
}

static void put_singles(text *t) {
  const tfd__strip_text *of = t->of;
  int i;

  put(t,
      "  for (int64_t i = done + thread_index(); i < a.n;"
      " i += thread_count()) {\n"
      "    int64_t at[%d];\n\n"
      "    places<%d>(a, i, at);\n"
      "    element(",
      of->inputs_n, of->inputs_n);
  for (i = 0; i < of->inputs_n; i++) {
    put(t, "((const %s *)a.in[%d])[at[%d]], ", kept_as(of->inputs[i].dtype), i,
        i);
  }
  for (i = 0; i < of->outputs_n; i++) {
    put(t, "%s((%s *)a.out[%d])[i]", i > 0 ? ", " : "",
        kept_as(output_dtype(of, i)), i);
  }
  put(t, ");\n  }\n");
}

static int check(const tfd__strip_text *t, int *refused_p) {
  int i;
  int k;

  for (i = 0; i < t->ops_n; i++) {
    uint8_t dtypes[TFD_STRIP_ARGS] = {0};

    for (k = 0; k < t->ops[i].args_n; k++) {
      dtypes[k] = (uint8_t)dtype_of(t, &t->ops[i].args[k]);
    }
    if (tfd__cuda_source_takes(t->ops[i].kernel, t->ops[i].args_n, dtypes)) {
      continue;
    }
    *refused_p = i;
    return tfd__fail(TFD_NOT_IMPLEMENTED, "op %d in a fused kernel", i);
  }
  return TFD_OK;
}

int tfd__cuda_source(const tfd__strip_text *of, char **source_p,
                     int *refused_p) {
  text t = {.of = of};
  int n = tfd__cuda_source_pack(of);

  *refused_p = -1;
  if (of->inputs_n < 1) *refused_p = 0;
  if (of->inputs_n < 1) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "a fused kernel without inputs");
  }
  TFD_TRY(check(of, refused_p));
  t.data = malloc(ROOM);
  if (t.data == NULL) return tfd__no_memory(ROOM, "fused ops");
  put(&t, "#include \"backend/cuda/kernels/fused.h\"\n\n");
  put_element(&t);
  put(&t, "KERNEL(256, fused)(const tfd_cu_fused a) {\n"
          "  int64_t done = 0;\n\n"
          "  if (stopped(a.stop)) return;\n");
  if (n > 1) put_packs(&t, n);
  put_singles(&t);
  put(&t, "}\nEND_KERNEL(256, fused)\n");
  if (t.n == ROOM - 1) {
    free(t.data);
    *refused_p = 0;
    return tfd__fail(TFD_NOT_IMPLEMENTED, "a fused kernel of so many ops");
  }
  *source_p = t.data;
  return TFD_OK;
}
