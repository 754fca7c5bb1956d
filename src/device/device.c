/* The registry: made on first use, fixed afterwards; start, stop and fork. */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "device/private.h"

/* Guards starting only; a plain mutex because it must exist before any
** initialisation and is taken outside all ranked ones. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

static void in_forked_child(void) {
  atomic_store(&tfd__rt.forked, true);
}

/* Before the first worker starts; below, where devices are stopped. */
static void stop_at_exit(void);

/* --- making devices ------------------------------------------------------- */

/* Devices live for ever; the count exists only for the handle's form. */
static void device_destroy(void *self) {
  (void)self;
}

static const tfd__type device_type = {
    .name = "device",
    .kind = TFD_HANDLE_DEVICE,
    .destroy = device_destroy,
};

static void device_free(tfd_device *d) {
  if (d == NULL) return;
  tfd__pool_free(d->pool); /* asks the stream what is idle */
  tfd__queue_free(d);
  tfd__free(d);
}

static int device_new(const tfd__backend *backend, int index, int ordinal,
                      int threads, bool queued, size_t memory_limit,
                      tfd_device **device_p) {
  tfd_device *d = tfd__calloc(1, sizeof *d);
  const char *p = backend->device_type;
  char lower[8];
  size_t i;
  int rc;

  if (d == NULL) return tfd__no_memory(sizeof *d, "device");
  d->backend = backend;
  d->index = index;
  d->ordinal = ordinal;
  d->threads = threads;
  d->queued = queued;
  for (i = 0; i < sizeof lower - 1 && p[i] != '\0'; i++) {
    lower[i] = (char)tolower((unsigned char)p[i]);
  }
  lower[i] = '\0';
  (void)snprintf(d->name, sizeof d->name,
                 "/job:localhost/replica:0/task:0/device:%.7s:%d", p, ordinal);
  (void)snprintf(d->short_name, sizeof d->short_name, "/%s:%d", lower,
                 ordinal % 100000);
  TFD_TRY_OR(rc = tfd__queue_new(d, stop_at_exit), free_device);
  TFD_TRY_OR(rc = tfd__pool_new(d, memory_limit, &d->pool), free_device);
  tfd__object_init(&d->object, &device_type);
  *device_p = d;
  return TFD_OK;

free_device:
  device_free(d);
  return rc;
}

/* --- start ---------------------------------------------------------------- */

static void free_devices(tfd_device **devices, int n) {
  int i;

  for (i = 0; i < n; i++) device_free(devices[i]);
  tfd__free(devices);
}

/* Devices of one back end behind the *n_p that there are; `parts` says what
** they are parts of, NULL = they are whole. */
static int add_devices(const tfd__config *c, const tfd__backend *backend,
                       int count, const tfd__gpu_part *parts,
                       tfd_device **devices, int *n_p) {
  bool cpu = backend == &tfd__cpu_backend;
  bool queued = !cpu || c->queue_mode == TFD_QUEUE_QUEUED ||
                (c->queue_mode == TFD_QUEUE_AUTO && count > 1);
  int threads = c->device_threads;
  int i;

  if (threads == 0) threads = cpu ? tfd__rt.cores / count : 1;
  if (threads < 1) threads = 1;
  for (i = 0; i < count; i++) {
    size_t limit = parts != NULL && parts[i].memory_limit > 0
                       ? parts[i].memory_limit
                       : c->memory_limit;

    TFD_TRY(
        device_new(backend, *n_p, i, threads, queued, limit, &devices[*n_p]));
    (*n_p)++;
  }
  return TFD_OK;
}

/* --- parts of GPUs --------------------------------------------------------
 */

typedef struct gpu_parts {
  tfd__gpu_part list[TFD_MAX_GPU_PARTS];
  int n; /* 0 = GPUs are whole */
} gpu_parts;

static int add_part(gpu_parts *p, int gpu, size_t limit) {
  if (p->n == TFD_MAX_GPU_PARTS) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "GPUs are split into more than %d logical devices",
                     TFD_MAX_GPU_PARTS);
  }
  p->list[p->n++] = (tfd__gpu_part){gpu, limit};
  return TFD_OK;
}

/* What was asked for of this GPU, or what is asked for of all. */
static int split_gpu(const tfd__config *c, int gpu, gpu_parts *p) {
  int before = p->n;
  int i;

  for (i = 0; i < c->gpu_parts_n; i++) {
    if (c->gpu_parts[i].gpu != gpu) continue;
    TFD_TRY(add_part(p, gpu, c->gpu_parts[i].memory_limit));
  }
  if (p->n > before) return TFD_OK;
  for (i = 0; i < (c->gpu_devices > 0 ? c->gpu_devices : 1); i++) {
    TFD_TRY(add_part(p, gpu, 0));
  }
  return TFD_OK;
}

static bool can_split(const tfd__backend_entry *e) {
  return e->backend != NULL && e->backend->split != NULL && e->devices > 0;
}

/* The parts of a back end's GPUs, in order; *n_p devices in all. */
static int split_devices(const tfd__config *c, const tfd__backend_entry *e,
                         gpu_parts *p, int *n_p) {
  int physical[TFD_MAX_GPU_PARTS];
  int i;

  p->n = 0;
  *n_p = e->devices;
  if (!can_split(e) || (c->gpu_devices == 0 && c->gpu_parts_n == 0)) {
    return TFD_OK;
  }
  for (i = 0; i < e->devices; i++) TFD_TRY(split_gpu(c, i, p));
  for (i = 0; i < p->n; i++) physical[i] = p->list[i].gpu;
  *n_p = p->n;
  return e->backend->split(physical, p->n);
}

static int check_gpus(const tfd__config *c, const tfd__backend_entry *list,
                      int n) {
  int gpus = 0;
  int i;

  for (i = 0; i < n; i++) {
    if (can_split(&list[i])) gpus = list[i].devices;
  }
  for (i = 0; i < c->gpu_parts_n; i++) {
    if (c->gpu_parts[i].gpu < gpus) continue;
    return tfd__fail(TFD_VALUE_ERROR,
                     "set_gpu_devices: no GPU %d; there are %d, counted from 0",
                     c->gpu_parts[i].gpu, gpus);
  }
  return TFD_OK;
}

/* Those of the processor, split as configured, then those of the other back
** ends. */
static int make_devices(const tfd__config *c, tfd_device ***devices_p,
                        int *n_p) {
  const tfd__backend_entry *list = NULL;
  tfd_device **devices = NULL;
  int total = c->cpu_devices + TFD_MAX_GPU_PARTS;
  int backends = 0;
  int rc;
  int n = 0;
  int i;

  tfd__backends(&list, &backends);
  TFD_TRY(check_gpus(c, list, backends));
  for (i = 1; i < backends; i++) total += list[i].devices;
  devices = tfd__calloc((size_t)total, sizeof(tfd_device *));
  if (devices == NULL) return tfd__no_memory(64, "devices");
  rc = add_devices(c, &tfd__cpu_backend, c->cpu_devices, NULL, devices, &n);
  for (i = 1; rc == TFD_OK && i < backends; i++) {
    gpu_parts parts;
    int count = 0;

    rc = split_devices(c, &list[i], &parts, &count);
    if (rc != TFD_OK) break;
    rc = add_devices(c, list[i].backend, count, parts.n > 0 ? parts.list : NULL,
                     devices, &n);
  }
  if (rc != TFD_OK) {
    free_devices(devices, n);
    return rc;
  }
  *devices_p = devices;
  *n_p = n;
  return TFD_OK;
}

static int start(void) {
  static bool prepared = false;
  tfd__config config;
  tfd_device **devices = NULL;
  int n = 0;

  if (!prepared) {
    TFD_TRY(tfd__mutex_init(&tfd__rt.failures, 3));
    pthread_atfork(NULL, NULL, in_forked_child);
    tfd__rt.cores = tfd__cores();
    prepared = true;
  }
  TFD_TRY(tfd__config_resolve(&config));
  TFD_TRY(make_devices(&config, &devices, &n));
  tfd__rt.devices = devices;
  tfd__rt.n = n;
  atomic_store_explicit(&tfd__rt.started, true, memory_order_release);
  return TFD_OK;
}

static int ensure_started(void) {
  int rc = TFD_OK;

  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  if (TFD_LIKELY(tfd_is_started())) return TFD_OK;
  pthread_mutex_lock(&start_lock);
  if (!tfd_is_started()) rc = start();
  pthread_mutex_unlock(&start_lock);
  return rc;
}

int tfd__devices(tfd_device *const **devices_p, int *n_p) {
  TFD_TRY(ensure_started());
  *devices_p = tfd__rt.devices;
  *n_p = tfd__rt.n;
  return TFD_OK;
}

/* Do fn with each back end that has devices. */
static void each_backend(void (*fn)(const tfd__backend *backend)) {
  int i;

  for (i = 0; i < tfd__rt.n; i++) {
    const tfd__backend *b = tfd__rt.devices[i]->backend;

    if (i == 0 || b != tfd__rt.devices[i - 1]->backend) fn(b);
  }
}

static void stop_backend(const tfd__backend *backend) {
  backend->stop();
}

/* In a forked child the workers do not exist and locks may be held for ever:
** leave everything. Twice is the same as once. */
void tfd__devices_stop(void) {
  if (!tfd_is_started() || tfd__is_forked()) return;
  tfd__backends_close();
  each_backend(stop_backend);
}

void tfd__devices_finish(void) {
  int i;

  if (!tfd_is_started() || tfd__is_forked()) return;
  for (i = 0; i < tfd__rt.n; i++) {
    (void)tfd__wait_all(tfd__rt.devices[i], TFD_FOREVER);
  }
}

/* At exit and when the library is unloaded: no thread may go on running its
** code. */
__attribute__((destructor)) static void stop(void) {
  if (!tfd_is_started() || tfd__is_forked()) return;
  tfd__devices_stop();
  /* Live buffers point into the pools: whoever still holds some keeps all. */
  if (tfd__object_count(TFD_HANDLE_BUFFER) > 0) return;
  atomic_store(&tfd__rt.started, false);
  free_devices(tfd__rt.devices, tfd__rt.n);
  tfd__rt.devices = NULL;
  tfd__rt.n = 0;
}

static void prepare_backend(const tfd__backend *backend) {
  if (backend->prepare != NULL) backend->prepare();
}

static void register_stop(void) {
  each_backend(prepare_backend);
  (void)atexit(stop);
}

/* Handlers run in the reverse order of their registration, and those of static
** objects in C++ libraries are among them: so what a library makes once must
** be made before. A destructor of this library alone would come too late. Who
** can (the hosts, os.exit) calls tfd__devices_stop before exit, which does not
** depend on that order. */
static void stop_at_exit(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  (void)pthread_once(&once, register_stop);
}

/* --- public --------------------------------------------------------------- */

static bool has_type(const tfd_device *d, const char *type) {
  return type == NULL || type[0] == '\0' ||
         strcasecmp(type, d->backend->device_type) == 0;
}

int tfd_device_count(const char *type, int64_t *count_p) {
  TFD_GIVEN_POINTER(count_p);

  int64_t count = 0;
  int i;

  TFD_TRY(ensure_started());
  for (i = 0; i < tfd__rt.n; i++) {
    if (has_type(tfd__rt.devices[i], type)) count++;
  }
  *count_p = count;
  return TFD_OK;
}

int tfd_device_at(const char *type, int index, tfd_device **device_p) {
  TFD_GIVEN_POINTER(device_p);

  int seen = 0;
  int i;

  TFD_TRY(ensure_started());
  for (i = 0; i < tfd__rt.n; i++) {
    if (!has_type(tfd__rt.devices[i], type)) continue;
    if (seen++ != index) continue;
    *device_p = tfd__rt.devices[i];
    return TFD_OK;
  }
  return tfd__fail(TFD_INDEX_ERROR,
                   "device %d of type \"%s\": there are %d, counted from 0",
                   index, type == NULL ? "" : type, seen);
}

const char *tfd_device_name(const tfd_device *device) {
  TFD_GIVEN_OR(device, DEVICE, "");
  return device->name;
}

const char *tfd_device_short_name(const tfd_device *device) {
  TFD_GIVEN_OR(device, DEVICE, "");
  return device->short_name;
}

int tfd_device_threads(const tfd_device *device) {
  TFD_GIVEN_OR(device, DEVICE, 0);
  return device->threads;
}

bool tfd_device_is_queued(const tfd_device *device) {
  TFD_GIVEN_OR(device, DEVICE, false);
  return device->queued;
}

int tfd_device_describe(tfd_device *device, const char **model_p,
                        int64_t *memory_p, int *cores_p) {
  TFD_GIVEN(device, DEVICE);
  TFD_GIVEN_POINTER(model_p);
  TFD_GIVEN_POINTER(memory_p);
  TFD_GIVEN_POINTER(cores_p);

  static _Thread_local tfd__device_info info;
  tfd__device_info found = {0};

  TFD_TRY(device->backend->describe(device->ordinal, &found));
  info = found;
  *model_p = info.model;
  *memory_p = info.memory;
  *cores_p = info.cores;
  return TFD_OK;
}

int tfd_backend_count(int64_t *count_p) {
  TFD_GIVEN_POINTER(count_p);

  const tfd__backend_entry *list = NULL;
  int n = 0;

  tfd__backends(&list, &n);
  *count_p = n;
  return TFD_OK;
}

int tfd_backend_at(int index, const char **name_p, const char **type_p,
                   int64_t *devices_p, const char **path_p,
                   const char **reason_p) {
  TFD_GIVEN_POINTER(name_p);
  TFD_GIVEN_POINTER(type_p);
  TFD_GIVEN_POINTER(devices_p);
  TFD_GIVEN_POINTER(path_p);
  TFD_GIVEN_POINTER(reason_p);

  const tfd__backend_entry *list = NULL;
  int n = 0;

  tfd__backends(&list, &n);
  if (index < 0 || index >= n) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "back end %d: there are %d, counted from 0", index, n);
  }
  list += index;
  *name_p = list->name;
  *type_p = list->backend != NULL              ? list->backend->device_type
            : list->unusable > 0 || list->lost ? list->type
                                               : "";
  *devices_p = list->devices;
  *path_p = list->path;
  *reason_p = list->reason;
  return TFD_OK;
}

int tfd_device_synchronize(tfd_device *device) {
  TFD_GIVEN(device, DEVICE);
  return tfd__stream_wait(device, UINT64_MAX, TFD_FOREVER);
}
