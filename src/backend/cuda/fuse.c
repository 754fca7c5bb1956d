/* What the graph sees of fused kernels, and their launch. A kernel is kept for
** the process's life: there is one for each text, whatever the sizes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/fuse.h"
#include "base/memory.h"

typedef struct made {
  struct made *next;
  char *source;
  int capability;
  tfd__cubin cubin;
  _Atomic(CUfunction) function[TFD_CUDA_DEVICES];
} made;

struct tfd__strip {
  made *kernel;
  int pack;
  uint8_t in[TFD_STRIP_INPUTS]; /* dtypes */
  uint8_t out[TFD_STRIP_OUTPUTS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static made *kernels;
static atomic_bool off; /* the compiler refused one: its library is too old */

/* --- kernels -------------------------------------------------------------- */

static made *find(const char *source, int capability) {
  made *m = kernels;

  while (m != NULL &&
         (m->capability != capability || strcmp(m->source, source) != 0)) {
    m = m->next;
  }
  return m;
}

/* Owns: source, from here on. */
static int make(char *source, int capability, made **made_p) {
  made *m = find(source, capability);

  if (m != NULL) {
    free(source);
    *made_p = m;
    return TFD_OK;
  }
  m = calloc(1, sizeof *m);
  if (m == NULL) {
    free(source);
    return tfd__no_memory(sizeof *m, "fused ops");
  }
  m->source = source;
  m->capability = capability;
  if (tfd__cuda_compile(source, capability, &m->cubin) != TFD_OK) {
    free(source);
    free(m);
    return TFD_INTERNAL;
  }
  m->next = kernels;
  kernels = m;
  *made_p = m;
  return TFD_OK;
}

static int load(made *m, int ordinal, const char *name) {
  CUmodule module = NULL;
  CUfunction f = NULL;

  TFD_TRY(tfd__cuda_check(tfd__cu.cuModuleLoadData(&module, m->cubin.data),
                          "loading a fused kernel"));
  TFD_TRY(tfd__cuda_check(tfd__cu.cuModuleGetFunction(&f, module, "fused"),
                          "finding a fused kernel"));
  TFD_TRY(tfd__cuda_check_size(name, f, sizeof(tfd_cu_fused)));
  m->function[ordinal] = f;
  return TFD_OK;
}

/* --- programs ------------------------------------------------------------- */

static bool takes(tfd__kernel_id kernel, int args_n, const uint8_t *dtypes) {
  return !off && tfd__cuda_source_takes(kernel, args_n, dtypes) &&
         tfd__cuda_nvrtc_open() == TFD_OK;
}

static int compile(int ordinal, const tfd__strip_text *text,
                   tfd__strip **program_p, int *refused_p) {
  char *source = NULL;
  made *m = NULL;
  tfd__strip *p = NULL;
  int rc;
  int i;

  if (text->ops_n == 1) { /* it has a kernel */
    *refused_p = 0;
    return TFD_NOT_IMPLEMENTED;
  }
  TFD_TRY(tfd__cuda_source(text, &source, refused_p));
  pthread_mutex_lock(&lock);
  rc = make(source, tfd__cuda_gpu(ordinal)->capability, &m);
  pthread_mutex_unlock(&lock);
  if (rc == TFD_INTERNAL) {
    off = true;
    *refused_p = 0;
    return TFD_NOT_IMPLEMENTED;
  }
  TFD_TRY(rc);
  p = calloc(1, sizeof *p);
  if (p == NULL) return tfd__no_memory(sizeof *p, "fused ops");
  p->kernel = m;
  p->pack = tfd__cuda_source_pack(text);
  for (i = 0; i < text->inputs_n; i++) p->in[i] = text->inputs[i].dtype;
  for (i = 0; i < text->outputs_n; i++) {
    p->out[i] = text->ops[text->outputs[i]].dtype;
  }
  *program_p = p;
  return TFD_OK;
}

static void release(tfd__strip *p) {
  free(p);
}

/* A thread reads its elements of all inputs before it writes any. */
static bool in_place(const tfd__strip *p, int output, int input) {
  return p->in[input] == p->out[output];
}

const tfd__fuser tfd__cuda_fuser = {
    .takes = takes, .compile = compile, .free = release, .in_place = in_place};

/* --- the launch ----------------------------------------------------------- */

int tfd__cuda_strip(const tfd__call *call) {
  const tfd__strip *p = (const tfd__strip *)(uintptr_t)call->ints[0];
  int ordinal = tfd__cuda_ordinal(call);
  made *m = p->kernel;
  tfd__cuda_places at;
  tfd_cu_fused a;
  int64_t n;
  int i;

  if (m->function[ordinal] == NULL) {
    int rc = TFD_OK;

    pthread_mutex_lock(&lock);
    if (m->function[ordinal] == NULL) rc = load(m, ordinal, call->name);
    pthread_mutex_unlock(&lock);
    TFD_TRY(rc);
  }
  memset(&a, 0, sizeof a);
  TFD_TRY(tfd__cuda_stop(call, &a.stop));
  tfd__cuda_place(call, call->in_n, &at);
  for (i = 0; i < call->in_n; i++) {
    a.in[i] = tfd__in(call, i)->data;
    memcpy(a.strides[i], at.strides[i], sizeof a.strides[i]);
  }
  for (i = 0; i < call->out_n; i++) a.out[i] = tfd__out(call, i)->data;
  memcpy(a.dims, at.dims, sizeof a.dims);
  a.n = n = tfd__out(call, 0)->numel;
  a.rank = at.rank;
  a.scalar = at.scalar;
  a.vector = at.vector;
  if (at.vector != 0) n = (n + p->pack - 1) / p->pack;
  return tfd__cuda_launch_function(call, m->function[ordinal],
                                   tfd__cuda_blocks(call, n), &a);
}
