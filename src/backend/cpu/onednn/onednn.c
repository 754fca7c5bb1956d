#include "backend/cpu/onednn/onednn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/onednn/onednn_calls.h"

#define BUCKETS 1024 /* a power of two */
/* Some four times what making and first running any plan was seen to take. */
#define ROOM_BYTES ((size_t)16 << 20)

typedef struct memory {
  dnnl_memory_t object;
  size_t bytes;
  size_t offset; /* in the scratch block, when external < 0 */
  int external;
  void *handle; /* what the object shows now */
} memory;

typedef struct step {
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[TFD_DNNL_MEMORIES];
  int args_n;
} step;

struct tfd__dnnl_plan {
  tfd__dnnl_key key;
  tfd__dnnl_plan *next;  /* same bucket */
  tfd__dnnl_plan *newer; /* use order */
  tfd__dnnl_plan *older;
  bool usable;
  bool has_run;
  int memories_n;
  int steps_n;
  int kept; /* memory that the first step puts a weight into, -1 = none */
  size_t scratch_bytes;
  memory memories[TFD_DNNL_MEMORIES];
  step *steps[TFD_DNNL_STEPS];
};

typedef struct plan_table {
  tfd__dnnl_plan *buckets[BUCKETS];
  tfd__dnnl_plan *newest;
  tfd__dnnl_plan *oldest;
  int n;
  dnnl_stream_t stream;
} plan_table;

/* --- the engine and each thread's table ----------------------------------- */

/* Held while something is made of the library's, code above all: one thread at
** a time needs the room that was looked for. No other lock is taken under it.
*/
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t table_key;
static dnnl_engine_t engine;             /* NULL when oneDNN fails to start */
static dnnl_primitive_attr_t attributes; /* scratch memory is ours */
static __thread plan_table *my_table;

/* Drop steps and memories. */
static void plan_clear(tfd__dnnl_plan *plan) {
  for (int i = 0; i < plan->steps_n; i++) {
    dnnl_primitive_destroy(plan->steps[i]->primitive);
    tfd__free(plan->steps[i]);
  }
  for (int i = 0; i < plan->memories_n; i++)
    dnnl_memory_destroy(plan->memories[i].object);
  plan->steps_n = 0;
  plan->memories_n = 0;
  plan->scratch_bytes = 0;
  plan->kept = -1;
}

static void plan_free(tfd__dnnl_plan *plan) {
  plan_clear(plan);
  tfd__free(plan);
}

static void table_free(void *arg) {
  plan_table *table = arg;
  tfd__dnnl_plan *plan = table->newest;

  while (plan != NULL) {
    tfd__dnnl_plan *older = plan->older;

    plan_free(plan);
    plan = older;
  }
  dnnl_stream_destroy(table->stream);
  tfd__free(table);
  my_table = NULL;
}

/* oneDNN 2.6 runs bfloat16 products on AMX tiles that it has not configured,
** which ends the process (SIGILL on Sapphire Rapids); the vector unit's
** bfloat16 is next best. Who sets oneDNN's own variable means it. Must come
** before everything else that looks at instructions, which settles them. */
static int isa;
static pthread_once_t isa_once = PTHREAD_ONCE_INIT;

static void settle_instructions(void) {
  if (getenv("ONEDNN_MAX_CPU_ISA") == NULL &&
      getenv("DNNL_MAX_CPU_ISA") == NULL) {
    (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
  }
  isa = (int)dnnl_get_effective_cpu_isa();
}

static int instructions(void) {
  pthread_once(&isa_once, settle_instructions);
  return isa;
}

static bool make_engine(void) {
  dnnl_primitive_attr_t attr = NULL;

  (void)instructions();
  if (tfd__dnnl_try_primitive_attr_create(&attr) != dnnl_success) return false;
  if (tfd__dnnl_try_primitive_attr_set_scratchpad_mode(
          attr, dnnl_scratchpad_mode_user) != dnnl_success ||
      tfd__dnnl_try_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) {
    dnnl_primitive_attr_destroy(attr);
    engine = NULL;
    return false;
  }
  attributes = attr;
  return true;
}

/* Made by the thread that builds; what failed is tried again by the next. */
static bool start(void) {
  static bool has_key;

  has_key = has_key || pthread_key_create(&table_key, table_free) == 0;
  return has_key && (engine != NULL || make_engine());
}

/* The calling thread's table; NULL when there is none yet and it cannot be
** made, for want of memory or for good. */
static plan_table *table_make(void) {
  plan_table *table = NULL;

  if (!start()) return NULL;
  table = tfd__calloc(1, sizeof *table);
  if (table == NULL) {
    tfd__dnnl_exhausted = true;
    return NULL;
  }
  if (tfd__dnnl_try_stream_create(&table->stream, engine,
                                  dnnl_stream_default_flags) != dnnl_success) {
    tfd__free(table);
    return NULL;
  }
  if (pthread_setspecific(table_key, table) != 0) {
    tfd__dnnl_exhausted = true;
    table_free(table);
    return NULL;
  }
  my_table = table;
  return table;
}

int tfd__dnnl_plans(void) {
  return my_table == NULL ? 0 : my_table->n;
}

/* --- keys ----------------------------------------------------------------- */

void tfd__dnnl_key_start(tfd__dnnl_key *key, int64_t kind) {
  key->hash = 0x2545f4914f6cdd1du;
  key->n = 0;
  tfd__dnnl_key_add(key, kind);
  tfd__dnnl_key_add(key, tfd__threads_get());
}

void tfd__dnnl_key_view(tfd__dnnl_key *key, const tfd__view *v) {
  tfd__dnnl_key_add(key, v->rank * 256 + v->dtype);
  for (int i = 0; i < v->rank; i++) {
    tfd__dnnl_key_add(key, v->dims[i]);
    tfd__dnnl_key_add(key, v->strides[i]);
  }
}

static bool same_key(const tfd__dnnl_key *a, const tfd__dnnl_key *b) {
  return a->hash == b->hash && a->n == b->n &&
         memcmp(a->v, b->v, (size_t)a->n * sizeof a->v[0]) == 0;
}

/* --- the table ------------------------------------------------------------ */

static void unlink_use(plan_table *table, tfd__dnnl_plan *plan) {
  if (plan->newer != NULL)
    plan->newer->older = plan->older;
  else
    table->newest = plan->older;
  if (plan->older != NULL)
    plan->older->newer = plan->newer;
  else
    table->oldest = plan->newer;
}

static void link_newest(plan_table *table, tfd__dnnl_plan *plan) {
  plan->newer = NULL;
  plan->older = table->newest;
  if (table->newest != NULL) table->newest->newer = plan;
  table->newest = plan;
  if (table->oldest == NULL) table->oldest = plan;
}

static tfd__dnnl_plan *find(plan_table *table, const tfd__dnnl_key *key) {
  tfd__dnnl_plan *plan = table->buckets[key->hash & (BUCKETS - 1)];

  while (plan != NULL && !same_key(&plan->key, key)) plan = plan->next;
  if (plan != NULL && plan != table->newest) {
    unlink_use(table, plan);
    link_newest(table, plan);
  }
  return plan;
}

static void drop_oldest(plan_table *table) {
  tfd__dnnl_plan *plan = table->oldest;
  tfd__dnnl_plan **at = &table->buckets[plan->key.hash & (BUCKETS - 1)];

  while (*at != plan) at = &(*at)->next;
  *at = plan->next;
  unlink_use(table, plan);
  table->n--;
  plan_free(plan);
}

static void keep(plan_table *table, tfd__dnnl_plan *plan) {
  tfd__dnnl_plan **bucket = &table->buckets[plan->key.hash & (BUCKETS - 1)];

  if (table->n == TFD_DNNL_PLANS) drop_oldest(table);
  plan->next = *bucket;
  *bucket = plan;
  link_newest(table, plan);
  table->n++;
}

/* Is there memory for what the library makes for itself? It does not look at
** each of its own allocations, and dies of some that fail. */
static bool has_room(void) {
  void *room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

  if (room == MAP_FAILED) {
    tfd__dnnl_exhausted = true;
    return false;
  }
  munmap(room, ROOM_BYTES);
  return true;
}

static int no_memory(void) {
  return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                   "out of memory: no room for oneDNN's code and buffers");
}

/* A plan that lacked memory is none: asked for again, it is made again. */
static tfd__dnnl_plan *plan_new(const tfd__dnnl_key *key,
                                bool (*build)(tfd__dnnl_plan *plan,
                                              const void *arg),
                                const void *arg) {
  tfd__dnnl_plan *plan = NULL;

  if (my_table == NULL && table_make() == NULL) return NULL;
  plan = tfd__calloc(1, sizeof *plan);
  if (plan == NULL) {
    tfd__dnnl_exhausted = true;
    return NULL;
  }
  plan->key = *key;
  plan->kept = -1;
  plan->usable = build(plan, arg);
  if (tfd__dnnl_exhausted) {
    plan_free(plan);
    return NULL;
  }
  keep(my_table, plan);
  return plan;
}

int tfd__dnnl_begin_alone(int64_t work, int64_t shared) {
  int threads = tfd__threads_get();

  if (threads > 1 && work < shared) tfd__threads_set(1);
  return threads;
}

void tfd__dnnl_end_alone(int threads) {
  if (tfd__threads_get() != threads) tfd__threads_set(threads);
}

tfd__dnnl_plan *tfd__dnnl_plan_for(const tfd__dnnl_key *key,
                                   bool (*build)(tfd__dnnl_plan *plan,
                                                 const void *arg),
                                   const void *arg, int *rc_p) {
  tfd__dnnl_plan *plan = NULL;

  *rc_p = TFD_OK;
  if (key->n > TFD_DNNL_KEY) return NULL;
  if (TFD_LIKELY(my_table != NULL)) plan = find(my_table, key);
  if (plan == NULL) {
    pthread_mutex_lock(&making);
    tfd__dnnl_exhausted = false;
    if (has_room()) plan = plan_new(key, build, arg);
    pthread_mutex_unlock(&making);
    if (tfd__dnnl_exhausted) *rc_p = no_memory();
  }
  return plan != NULL && plan->usable ? plan : NULL;
}

/* --- building ------------------------------------------------------------- */

static dnnl_data_type_t data_type(int dtype) {
  return dtype == TFD_BFLOAT16 ? dnnl_bf16 : dnnl_f32;
}

bool tfd__dnnl_takes(int dtype) {
  const int needed = dnnl_cpu_isa_avx512_core_bf16;

  if (dtype != TFD_BFLOAT16) return dtype == TFD_FLOAT32;
  return (instructions() & needed) == needed;
}

bool tfd__dnnl_is_avx2(void) {
  int have = instructions();

  return (have & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 &&
         (have & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core;
}

bool tfd__dnnl_md(dnnl_memory_desc_t *md, int dtype, int rank,
                  const int64_t *dims, const int64_t *strides) {
  dnnl_dims_t d = {0};
  dnnl_dims_t s = {0};

  for (int i = 0; i < rank; i++) {
    d[i] = dims[i];
    s[i] = strides[i];
  }
  return dnnl_memory_desc_init_by_strides(md, rank, d, data_type(dtype), s) ==
         dnnl_success;
}

bool tfd__dnnl_md_any(dnnl_memory_desc_t *md, int dtype, int rank,
                      const int64_t *dims) {
  dnnl_dims_t d = {0};

  for (int i = 0; i < rank; i++) d[i] = dims[i];
  return dnnl_memory_desc_init_by_tag(md, rank, d, data_type(dtype),
                                      dnnl_format_tag_any) == dnnl_success;
}

dnnl_primitive_desc_t tfd__dnnl_describe(const_dnnl_op_desc_t desc,
                                         const_dnnl_primitive_desc_t hint) {
  dnnl_primitive_desc_t pd = NULL;

  if (tfd__dnnl_try_primitive_desc_create(&pd, desc, attributes, engine,
                                          hint) != dnnl_success)
    return NULL;
  return pd;
}

/* Append a memory; -1 on failure. Scratch ones are spaced by 64 bytes. */
static int add_memory(tfd__dnnl_plan *plan, const dnnl_memory_desc_t *md,
                      int external) {
  memory *m = &plan->memories[plan->memories_n];

  if (plan->memories_n == TFD_DNNL_MEMORIES) return -1;
  if (tfd__dnnl_try_memory_create(&m->object, md, engine, DNNL_MEMORY_NONE) !=
      dnnl_success)
    return -1;
  m->bytes = dnnl_memory_desc_get_size(md);
  m->external = external;
  if (external < 0) {
    m->offset = plan->scratch_bytes;
    plan->scratch_bytes += (m->bytes + 63) & ~(size_t)63;
  }
  return plan->memories_n++;
}

static int external_memory(tfd__dnnl_plan *plan, const dnnl_memory_desc_t *md,
                           int external) {
  for (int i = 0; i < plan->memories_n; i++)
    if (plan->memories[i].external == external) return i;
  return add_memory(plan, md, external);
}

static step *new_step(const_dnnl_primitive_desc_t pd) {
  step *s = tfd__calloc(1, sizeof *s);

  if (s == NULL) {
    tfd__dnnl_exhausted = true;
  } else if (tfd__dnnl_try_primitive_create(&s->primitive, pd) !=
             dnnl_success) {
    tfd__free(s);
    s = NULL;
  }
  return s;
}

static void step_arg(tfd__dnnl_plan *plan, step *s, int exec, int m) {
  s->args[s->args_n].arg = exec;
  s->args[s->args_n].memory = plan->memories[m].object;
  s->args_n++;
}

/* Give the step scratch memory as its description asks, then append it; the
** step is freed on failure. */
static bool finish_step(tfd__dnnl_plan *plan, step *s,
                        const_dnnl_primitive_desc_t pd) {
  const dnnl_memory_desc_t *md =
      dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
  int m = 0;

  if (md != NULL && dnnl_memory_desc_get_size(md) > 0) {
    m = add_memory(plan, md, -1);
    if (m >= 0) step_arg(plan, s, DNNL_ARG_SCRATCHPAD, m);
  }
  if (m < 0 || plan->steps_n == TFD_DNNL_STEPS) {
    dnnl_primitive_destroy(s->primitive);
    tfd__free(s);
    return false;
  }
  plan->steps[plan->steps_n++] = s;
  return true;
}

static bool add_reorder(tfd__dnnl_plan *plan, int from,
                        const dnnl_memory_desc_t *from_md, int to,
                        const dnnl_memory_desc_t *to_md) {
  dnnl_primitive_desc_t pd = NULL;
  step *s = NULL;
  bool ok = false;

  if (tfd__dnnl_try_reorder_primitive_desc_create(
          &pd, from_md, engine, to_md, engine, attributes) != dnnl_success)
    return false;
  s = new_step(pd);
  if (s != NULL) {
    step_arg(plan, s, DNNL_ARG_FROM, from);
    step_arg(plan, s, DNNL_ARG_TO, to);
    ok = finish_step(plan, s, pd);
  }
  dnnl_primitive_desc_destroy(pd);
  return ok;
}

static const char *name_of(const_dnnl_primitive_desc_t pd) {
  const char *name = NULL;

  if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0,
                                (void *)&name) != dnnl_success)
    return "ref";
  return name;
}

/* The implementation whose name contains `prefer`; NULL when there is none. */
static dnnl_primitive_desc_t describe_as(const_dnnl_op_desc_t desc,
                                         const_dnnl_primitive_desc_t hint,
                                         const char *prefer) {
  dnnl_primitive_desc_iterator_t at = NULL;
  dnnl_primitive_desc_t pd = NULL;

  if (prefer == NULL ||
      tfd__dnnl_try_primitive_desc_iterator_create(
          &at, desc, attributes, engine, hint) != dnnl_success)
    return NULL;
  do {
    dnnl_primitive_desc_destroy(pd);
    pd = tfd__dnnl_try_primitive_desc_iterator_fetch(at);
  } while (pd != NULL && strstr(name_of(pd), prefer) == NULL &&
           tfd__dnnl_try_primitive_desc_iterator_next(at) == dnnl_success);
  dnnl_primitive_desc_iterator_destroy(at);
  if (pd != NULL && strstr(name_of(pd), prefer) == NULL) {
    dnnl_primitive_desc_destroy(pd);
    pd = NULL;
  }
  return pd;
}

/* Where each argument lies for the primitive: the caller's memory or a copy
** in the layout it wants; inputs are reordered before it. */
static bool place_args(tfd__dnnl_plan *plan, const_dnnl_primitive_desc_t pd,
                       const tfd__dnnl_arg *args, int n, int *user,
                       int *native) {
  for (int i = 0; i < n; i++) {
    const dnnl_memory_desc_t *want =
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, args[i].exec);
    const dnnl_memory_desc_t *have = args[i].md != NULL ? args[i].md : want;

    if (want == NULL || dnnl_memory_desc_get_size(want) == 0) return false;
    user[i] = external_memory(plan, have, args[i].external);
    native[i] = user[i];
    if (!dnnl_memory_desc_equal(want, have))
      native[i] = add_memory(plan, want, -1);
    if (user[i] < 0 || native[i] < 0) return false;
    if (native[i] != user[i] && !args[i].output &&
        !add_reorder(plan, user[i], have, native[i], want))
      return false;
    if (native[i] != user[i] && plan->steps_n == 1 &&
        args[i].exec == DNNL_ARG_WEIGHTS)
      plan->kept = native[i];
  }
  return true;
}

static bool add_described(tfd__dnnl_plan *plan, const_dnnl_primitive_desc_t pd,
                          const tfd__dnnl_arg *args, int n) {
  int user[TFD_DNNL_MEMORIES] = {0};
  int native[TFD_DNNL_MEMORIES] = {0};
  step *s = NULL;

  if (!place_args(plan, pd, args, n, user, native)) return false;
  s = new_step(pd);
  if (s == NULL) return false;
  for (int i = 0; i < n; i++) step_arg(plan, s, args[i].exec, native[i]);
  if (!finish_step(plan, s, pd)) return false;
  for (int i = 0; i < n; i++) {
    if (native[i] == user[i] || !args[i].output) continue;
    if (!add_reorder(plan, native[i],
                     dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md,
                                                  args[i].exec),
                     user[i], args[i].md))
      return false;
  }
  return true;
}

bool tfd__dnnl_add(tfd__dnnl_plan *plan, const_dnnl_op_desc_t desc,
                   const_dnnl_primitive_desc_t hint, const tfd__dnnl_arg *args,
                   int args_n, const char *prefer) {
  dnnl_primitive_desc_t pd = describe_as(desc, hint, prefer);
  bool allow_ref = prefer != NULL && strcmp(prefer, "ref") == 0;
  bool ok = false;

  if (pd == NULL) pd = tfd__dnnl_describe(desc, hint);
  if (pd == NULL) return false;
  if (allow_ref || strstr(name_of(pd), "ref") == NULL) {
    ok = add_described(plan, pd, args, args_n);
    if (!ok) plan_clear(plan);
  }
  tfd__log(TFD_LOG_DEBUG, "onednn: %s %s", name_of(pd),
           ok ? "taken" : "not taken");
  dnnl_primitive_desc_destroy(pd);
  return ok;
}

size_t tfd__dnnl_external_bytes(const tfd__dnnl_plan *plan, int external) {
  for (int i = 0; i < plan->memories_n; i++)
    if (plan->memories[i].external == external) return plan->memories[i].bytes;
  return 0;
}

/* --- running -------------------------------------------------------------- */

static dnnl_status_t point_memories(tfd__dnnl_plan *plan, char *scratch,
                                    void *const *externals, void *kept) {
  for (int i = 0; i < plan->memories_n; i++) {
    memory *m = &plan->memories[i];
    void *handle =
        m->external < 0 ? scratch + m->offset : externals[m->external];
    dnnl_status_t status = dnnl_success;

    if (kept != NULL && i == plan->kept) handle = kept;
    if (handle == m->handle) continue;
    status = tfd__dnnl_try_memory_set_data_handle(m->object, handle);
    if (status != dnnl_success) return status;
    m->handle = handle;
  }
  return dnnl_success;
}

int tfd__dnnl_run(tfd__dnnl_plan *plan, const char *name,
                  void *const *externals) {
  return tfd__dnnl_run_kept(plan, name, externals, NULL);
}

/* The first step is left out where `kept` has what it gives. */
static int first_step(const tfd__dnnl_plan *plan, tfd__kept_weight **kept) {
  tfd__kept_weight *k = *kept;

  if (k == NULL || plan->kept < 0 ||
      plan->memories[plan->kept].bytes != k->bytes) {
    *kept = NULL;
    return 0;
  }
  if (k->version == k->wanted) return 1;
  k->version = -1;
  return 0;
}

int tfd__dnnl_run_kept(tfd__dnnl_plan *plan, const char *name,
                       void *const *externals, tfd__kept_weight *kept) {
  int first = first_step(plan, &kept);
  char *scratch = NULL;
  dnnl_status_t status = dnnl_success;

  if (plan->scratch_bytes > 0) {
    scratch = tfd__work_block(plan->scratch_bytes);
    if (scratch == NULL) return TFD_RESOURCE_EXHAUSTED;
  }
  /* Some code is made by its first use. */
  if (!plan->has_run && !has_room()) return no_memory();
  status = point_memories(plan, scratch, externals,
                          kept != NULL ? kept->data : NULL);
  for (int i = first; i < plan->steps_n && status == dnnl_success; i++)
    status = tfd__dnnl_try_primitive_execute(
        plan->steps[i]->primitive, my_table->stream, plan->steps[i]->args_n,
        plan->steps[i]->args);
  if (status == dnnl_out_of_memory) return no_memory();
  if (status != dnnl_success)
    return tfd__fail(TFD_INTERNAL, "%s: oneDNN failed with status %d", name,
                     (int)status);
  if (first == 0) plan->has_run = true;
  if (kept != NULL) kept->version = kept->wanted;
  return TFD_OK;
}
