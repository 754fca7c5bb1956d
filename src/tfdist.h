/* tfdist.h: the public C API of tfdist, tf.distribute for Lua and C.
**
** One shape for everything, so that a script can generate the bindings:
** - A function returns `int`: 0 or a tfd_status. Other results fail for bad
**   handles alone: 0, -1, false, "". The thread's tfd_error_message() says why.
** - `tfd_X **out_p` is a new reference that the caller releases; handles that
**   come in are borrowed. `double *x_p`, `int64_t *x_p`, `int *x_p` return one
**   value. `const T *xs, int xs_n` is a list. Outputs are written on success
**   only.
** - Axes, positions, ordinals and labels count from 0.
** Doc labels: Shapes, Units, Owns, Blocks, Threads, Errors, Source.
*/
#ifndef TFDIST_H
#define TFDIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TFD_API __attribute__((visibility("default")))
#else
#define TFD_API
#endif

#define TFD_VERSION "0.1.0"

/* --- Constants ---------------------------------------------------------- */

/* X(constant, kind): the kind is what Lua's error objects carry. */
#define TFD_STATUS_LIST(X)                                                     \
  X(TFD_OK, "OK")                                                              \
  X(TFD_VALUE_ERROR, "ValueError")                                             \
  X(TFD_TYPE_ERROR, "TypeError")                                               \
  X(TFD_RUNTIME_ERROR, "RuntimeError")                                         \
  X(TFD_NOT_IMPLEMENTED, "NotImplementedError")                                \
  X(TFD_ASSERTION_ERROR, "AssertionError")                                     \
  X(TFD_KEY_ERROR, "KeyError")                                                 \
  X(TFD_INDEX_ERROR, "IndexError")                                             \
  X(TFD_INVALID_ARGUMENT, "InvalidArgument")                                   \
  X(TFD_OUT_OF_RANGE, "OutOfRange")                                            \
  X(TFD_NOT_FOUND, "NotFound")                                                 \
  X(TFD_ALREADY_EXISTS, "AlreadyExists")                                       \
  X(TFD_FAILED_PRECONDITION, "FailedPrecondition")                             \
  X(TFD_UNAVAILABLE, "Unavailable")                                            \
  X(TFD_DEADLINE_EXCEEDED, "DeadlineExceeded")                                 \
  X(TFD_ABORTED, "Aborted")                                                    \
  X(TFD_CANCELLED, "Cancelled")                                                \
  X(TFD_RESOURCE_EXHAUSTED, "ResourceExhausted")                               \
  X(TFD_DATA_LOSS, "DataLoss")                                                 \
  X(TFD_INTERNAL, "Internal")

typedef enum tfd_status {
#define TFD_STATUS_ENUM(constant, kind) constant,
  TFD_STATUS_LIST(TFD_STATUS_ENUM)
#undef TFD_STATUS_ENUM
  TFD_STATUS_END
} tfd_status;

typedef enum tfd_dtype {
  TFD_FLOAT32 = 1,
  TFD_FLOAT64,
  TFD_FLOAT16,
  TFD_BFLOAT16,
  TFD_INT8,
  TFD_INT16,
  TFD_INT32,
  TFD_INT64,
  TFD_UINT8,
  TFD_BOOL,
  TFD_DTYPE_END
} tfd_dtype;

typedef enum tfd_handle_kind {
  TFD_HANDLE_TENSOR = 0,
  TFD_HANDLE_VARIABLE,
  TFD_HANDLE_SLICES,
  TFD_HANDLE_TAPE,
  TFD_HANDLE_WALK,
  TFD_HANDLE_CONTEXT,
  TFD_HANDLE_DEVICE,
  TFD_HANDLE_BUFFER,
  TFD_HANDLE_STRATEGY,
  TFD_HANDLE_VALUE,
  TFD_HANDLE_MIRRORED,
  TFD_HANDLE_RUN,
  TFD_HANDLE_ARCHIVE,
  TFD_HANDLE_SAVER,
  TFD_HANDLE_READER,
  TFD_HANDLE_WRITER,
  TFD_HANDLE_EXAMPLE,
  TFD_HANDLE_INPUT,
  TFD_HANDLE_KINDS
} tfd_handle_kind;

typedef enum tfd_queue_mode {
  TFD_QUEUE_AUTO = 0, /* inline with one device, queued with several */
  TFD_QUEUE_INLINE,
  TFD_QUEUE_QUEUED
} tfd_queue_mode;

typedef enum tfd_variable_synchronization {
  TFD_SYNCHRONIZATION_AUTO = 0,
  TFD_SYNCHRONIZATION_NONE,
  TFD_SYNCHRONIZATION_ON_WRITE,
  TFD_SYNCHRONIZATION_ON_READ
} tfd_variable_synchronization;

typedef enum tfd_variable_aggregation {
  TFD_AGGREGATION_NONE = 0,
  TFD_AGGREGATION_SUM,
  TFD_AGGREGATION_MEAN,
  TFD_AGGREGATION_ONLY_FIRST_REPLICA
} tfd_variable_aggregation;

typedef enum tfd_walk_event {
  TFD_WALK_DONE = 0, /* all gradients are there */
  TFD_WALK_HOST = 1  /* the caller's gradient function is needed */
} tfd_walk_event;

typedef enum tfd_strategy_kind {
  TFD_STRATEGY_DEFAULT = 0,
  TFD_STRATEGY_ONE_DEVICE,
  TFD_STRATEGY_MIRRORED,
  TFD_STRATEGY_CENTRAL_STORAGE
} tfd_strategy_kind;

typedef enum tfd_reduce_op {
  TFD_REDUCE_SUM = 0,
  TFD_REDUCE_MEAN,
  TFD_REDUCE_MIN,
  TFD_REDUCE_MAX,
  TFD_REDUCE_PROD
} tfd_reduce_op;

typedef enum tfd_value_kind {
  TFD_VALUE_PER_REPLICA = 0, /* components may differ */
  TFD_VALUE_MIRRORED         /* components are equal */
} tfd_value_kind;

typedef enum tfd_variable_kind {
  TFD_VARIABLE_PLAIN = 0,   /* one ordinary variable */
  TFD_VARIABLE_MIRRORED,    /* a copy on each device, written together */
  TFD_VARIABLE_SYNC_ON_READ, /* a copy on each device, combined by reads */
  TFD_VARIABLE_AGGREGATING  /* one variable that replicas write together */
} tfd_variable_kind;

typedef enum tfd_run_event {
  TFD_RUN_RESUME = 0, /* a replica's turn */
  TFD_RUN_MERGE,      /* all replicas wait at the same point */
  TFD_RUN_DIVERGED,   /* they do not */
  TFD_RUN_DONE        /* all replicas have returned */
} tfd_run_event;

typedef enum tfd_reader_kind {
  TFD_READER_RECORDS = 0, /* TFRecord: length, data, checksums */
  TFD_READER_LINES,       /* text, without the line ends */
  TFD_READER_ROWS,        /* the same, but line ends in quotes are text */
  TFD_READER_FIXED        /* records of one size */
} tfd_reader_kind;

typedef enum tfd_compression {
  TFD_COMPRESSION_NONE = 0,
  TFD_COMPRESSION_GZIP,
  TFD_COMPRESSION_ZLIB
} tfd_compression;

typedef enum tfd_feature_kind {
  TFD_FEATURE_NONE = 0,
  TFD_FEATURE_BYTES,
  TFD_FEATURE_FLOAT,
  TFD_FEATURE_INT64
} tfd_feature_kind;

typedef struct tfd_object tfd_object;
typedef struct tfd_device tfd_device;
typedef struct tfd_tensor tfd_tensor;
typedef struct tfd_variable tfd_variable;
typedef struct tfd_slices tfd_slices;
typedef struct tfd_tape tfd_tape;
typedef struct tfd_walk tfd_walk;
typedef struct tfd_context tfd_context;
typedef struct tfd_strategy tfd_strategy;
typedef struct tfd_value tfd_value;
typedef struct tfd_mirrored tfd_mirrored;
typedef struct tfd_run tfd_run;
typedef struct tfd_archive tfd_archive;
typedef struct tfd_saver tfd_saver;
typedef struct tfd_reader tfd_reader;
typedef struct tfd_writer tfd_writer;
typedef struct tfd_example tfd_example;
typedef struct tfd_input tfd_input;

/* --- Errors and library ------------------------------------------------- */

/** Version of the library, "0.1.0". */
TFD_API const char *tfd_version(void);
/** Name of a status as error objects show it, "InvalidArgument". */
TFD_API const char *tfd_status_kind(int status);
/** Message of the calling thread's last failure, "" if there was none. */
TFD_API const char *tfd_error_message(void);
/** What to do about the last failure, or "". */
TFD_API const char *tfd_error_hint(void);
/** Replica that failed, -1 if the failure has none. */
TFD_API int tfd_error_replica(void);
/** Script position of a failure that surfaced later, "file:line", or "". */
TFD_API const char *tfd_error_where(void);
/** Keep a handle alive beyond its owner; pair with tfd_release. */
TFD_API tfd_object *tfd_retain(tfd_object *object);
/** Drop one reference; NULL is allowed. Once too often: logged at best. */
TFD_API void tfd_release(tfd_object *object);
/** Live handles of one kind, for leak checks. */
TFD_API int64_t tfd_live_handles(tfd_handle_kind kind);
/** Bytes in live device buffers. */
TFD_API int64_t tfd_live_bytes(void);
/** True when the host should run its collector: live bytes grew past the
 * soft limit since the last tfd_memory_collected. */
TFD_API bool tfd_memory_should_collect(void);
/** The host ran a full collection; adapts the soft limit. */
TFD_API void tfd_memory_collected(void);
/** Smallest soft limit. Units: bytes. */
TFD_API void tfd_memory_set_limit(int64_t limit_bytes);
/** Make the n-th allocation from now fail (1 = next, 0 = never), or with -n
 * that one and all after it: for tests of error paths. */
TFD_API void tfd_test_fail_allocation(int64_t n);
/** Interrupt every wait (true) or go on (false). Async-signal-safe. */
TFD_API void tfd_interrupt(bool on);
/** True after tfd_interrupt(true). */
TFD_API bool tfd_is_interrupted(void);

/* --- Devices ------------------------------------------------------------ */

/** Split the CPU into `count` logical devices.
 * Errors: ValueError unless 1 <= count <= 64; RuntimeError once the runtime
 *   has started. Source: tf.config.set_logical_device_configuration */
TFD_API int tfd_config_set_cpu_devices(int count);
/** Choose how devices run their work. Errors: RuntimeError once started. */
TFD_API int tfd_config_set_queue_mode(tfd_queue_mode mode);
/** Cores each CPU device may use; 0 = this process's cores shared equally.
 * Errors: ValueError for a negative number; RuntimeError once started. */
TFD_API int tfd_config_set_device_threads(int count);
/** Run ops that a device has no kernel for on the processor (the default), with
 * a notice, or fail. Source: tf.config.set_soft_device_placement */
TFD_API void tfd_config_set_soft_placement(bool on);
TFD_API bool tfd_config_soft_placement(void);
/** True once the first device was used; configuration is fixed then. */
TFD_API bool tfd_is_started(void);
/** Number of logical devices of a type ("CPU", "GPU", "" = all). */
TFD_API int tfd_device_count(const char *type, int64_t *count_p);
/** The i-th logical device of a type. Owns: none, devices live for ever. */
TFD_API int tfd_device_at(const char *type, int index, tfd_device **device_p);
/** The device with this name: canonical, "CPU:1", "/cpu:1", "/device:CPU:1".
 * Errors: InvalidArgument naming the devices there are. */
TFD_API int tfd_device_find(const char *name, tfd_device **device_p);
/** Canonical name, "/job:localhost/replica:0/task:0/device:CPU:1". */
TFD_API const char *tfd_device_name(const tfd_device *device);
/** Name for people, "/cpu:1". */
TFD_API const char *tfd_device_short_name(const tfd_device *device);
/** Cores the device's kernels may use. */
TFD_API int tfd_device_threads(const tfd_device *device);
/** True when work is queued rather than run at the call. */
TFD_API bool tfd_device_is_queued(const tfd_device *device);
/** Wait for everything submitted. Blocks: yes. Errors: the first failure of
 * queued work. */
TFD_API int tfd_device_synchronize(tfd_device *device);
/** The device's model, bytes of its memory and processors (0 = unknown). The
 * text is valid until the thread's next call. */
TFD_API int tfd_device_describe(tfd_device *device, const char **model_p,
                                int64_t *memory_p, int *cores_p);
/** Number of back ends, those included that cannot be used. */
TFD_API int tfd_backend_count(int64_t *count_p);
/** Back end `index`: name, type and number of its physical devices, the
 * plug-in's file ("" = built in), why it cannot be used ("" = it can). */
TFD_API int tfd_backend_at(int index, const char **name_p, const char **type_p,
                           int64_t *devices_p, const char **path_p,
                           const char **reason_p);
/** Bytes live now, most ever, and kept for re-use. */
TFD_API int tfd_device_memory(tfd_device *device, int64_t *current_p,
                              int64_t *peak_p, int64_t *reserved_p);
/** Start the peak count again at the current level. */
TFD_API int tfd_device_reset_peak(tfd_device *device);
/** Give cached memory back to the system. */
TFD_API int tfd_device_trim(tfd_device *device);

/* --- Contexts ----------------------------------------------------------- */

/** State that calls use implicitly: device stack, tapes, replica. One for
 * each coroutine that needs its own. */
TFD_API int tfd_context_new(tfd_context **context_p);
/** Make it the calling thread's; NULL = the thread's default one. */
TFD_API int tfd_context_enter(tfd_context *context);
/** Place following ops on `device` until tfd_device_pop. NULL = no rule. */
TFD_API int tfd_device_push(tfd_device *device);
/** Undo the last push. Errors: RuntimeError when there is none. */
TFD_API int tfd_device_pop(void);
/** Depth of the device stack, to unwind after errors. */
TFD_API int tfd_device_depth(void);
/** Device that new tensors get. */
TFD_API int tfd_device_current(tfd_device **device_p);
/** Note the script position for messages of queued work. `file` is kept. */
TFD_API void tfd_context_set_position(const char *file, int line);

/* --- Tensors ------------------------------------------------------------ */

/** Tensor from raw little-endian elements, row-major.
 * Errors: InvalidArgument if data_bytes does not fit dims. */
TFD_API int tfd_tensor_from_bytes(const void *data, size_t data_bytes,
                                  tfd_dtype dtype, const int64_t *dims,
                                  int dims_n, tfd_tensor **tensor_p);
/** Tensor from numbers, converted to dtype. One value fills any shape.
 * Errors: InvalidArgument if values_n is neither 1 nor the element count. */
TFD_API int tfd_tensor_from_values(const double *values, int64_t values_n,
                                   tfd_dtype dtype, const int64_t *dims,
                                   int dims_n, tfd_tensor **tensor_p);
/** Copy all elements, row-major. Blocks: until they are computed.
 * Errors: InvalidArgument unless data_bytes is exactly the tensor's size. */
TFD_API int tfd_tensor_read(tfd_tensor *tensor, void *data, size_t data_bytes);
/** One element as a double, by row-major position. Blocks.
 * Errors: IndexError outside the tensor. */
TFD_API int tfd_tensor_item(tfd_tensor *tensor, int64_t index,
                            double *value_p);
/** All elements as doubles; values has room for the element count. Blocks. */
TFD_API int tfd_tensor_values(tfd_tensor *tensor, double *values,
                              int64_t values_n);
/** Wait until the elements can be read. Errors: sticky failures. */
TFD_API int tfd_tensor_wait(tfd_tensor *tensor);
/** Address of element 0 for host-visible dense tensors, after waiting; valid
 * while the tensor is open. Writing is undefined. */
TFD_API int tfd_tensor_data(tfd_tensor *tensor, void **data_p);

TFD_API tfd_dtype tfd_tensor_dtype(const tfd_tensor *tensor);
TFD_API int tfd_tensor_rank(const tfd_tensor *tensor);
/** Size of axis `axis` (0-based); -1 outside the rank. */
TFD_API int64_t tfd_tensor_dim(const tfd_tensor *tensor, int axis);
/** Number of elements. */
TFD_API int64_t tfd_tensor_size(const tfd_tensor *tensor);
/** True when elements lie row-major without gaps. */
TFD_API bool tfd_tensor_is_dense(const tfd_tensor *tensor);
/** Identity of the value, equal for handles of the same value. */
TFD_API int64_t tfd_tensor_id(const tfd_tensor *tensor);
/** Device that holds the tensor. */
TFD_API int tfd_tensor_device(tfd_tensor *tensor, tfd_device **device_p);
/** Same values on another device (the same handle's value if already there).
 * Gradients flow through. */
TFD_API int tfd_tensor_to_device(tfd_tensor *tensor, tfd_device *device,
                                 tfd_tensor **copy_p);
/** "float32" … ; NULL if unknown. */
TFD_API const char *tfd_dtype_name(int dtype);
/** dtype by name. Errors: TypeError naming the dtypes there are. */
TFD_API int tfd_dtype_find(const char *name, int *dtype_p);
/** Bytes of one element. */
TFD_API int tfd_dtype_size(int dtype);

/* --- Indexed slices ----------------------------------------------------- */

/** Sparse rows: values {n, ...} belong to rows `indices` {n} of a tensor of
 * shape dims; dims[0] = -1 where nobody says how many rows that has.
 * Errors: InvalidArgument. Source: tf.IndexedSlices */
TFD_API int tfd_slices_new(tfd_tensor *values, tfd_tensor *indices,
                           const int64_t *dims, int dims_n,
                           tfd_slices **slices_p);
TFD_API int tfd_slices_values(tfd_slices *slices, tfd_tensor **values_p);
TFD_API int tfd_slices_indices(tfd_slices *slices, tfd_tensor **indices_p);
TFD_API int tfd_slices_rank(const tfd_slices *slices);
/** Size of axis `axis` of the dense shape; -1 outside the rank. */
TFD_API int64_t tfd_slices_dim(const tfd_slices *slices, int axis);
/** Dense tensor; repeated rows are added. */
TFD_API int tfd_slices_to_dense(tfd_slices *slices, tfd_tensor **tensor_p);

/* --- Variables ---------------------------------------------------------- */

/** A mutable tensor on `device` (NULL = current), starting as a copy of
 * initial. Blocks: until that is computed. Source: tf.Variable */
TFD_API int tfd_variable_new(tfd_object *initial, const char *name,
                             bool trainable, tfd_device *device,
                             tfd_variable **variable_p);
/** Replace the value. Errors: ValueError on another shape or dtype. */
TFD_API int tfd_variable_assign(tfd_variable *variable, tfd_object *value);
/** value += delta, in place. */
TFD_API int tfd_variable_assign_add(tfd_variable *variable, tfd_object *delta);
/** value -= delta, in place. */
TFD_API int tfd_variable_assign_sub(tfd_variable *variable, tfd_object *delta);
/** Snapshot of the value; tapes record the read. */
TFD_API int tfd_variable_read(tfd_variable *variable, tfd_tensor **value_p);
/** Run an update op in place: the op's input 0 is the variable's value, the
 * rest are `inputs`; its output 0 overwrites the value.
 * Errors: InvalidArgument if the op's result has another shape or dtype. */
TFD_API int tfd_variable_update(tfd_variable *variable, int op,
                                tfd_object *const *inputs, int inputs_n,
                                const int64_t *ints, int ints_n,
                                const double *reals, int reals_n);
/** The same for several variables at once: the op's first inputs are the
 * targets' values, its first outputs overwrite them. `inputs` may hold NULL
 * for absent optional tensors. */
TFD_API int tfd_variables_update(tfd_variable *const *targets, int targets_n,
                                 int op, tfd_object *const *inputs,
                                 int inputs_n, const int64_t *ints,
                                 int ints_n, const double *reals, int reals_n);
TFD_API const char *tfd_variable_name(const tfd_variable *variable);
TFD_API bool tfd_variable_is_trainable(const tfd_variable *variable);
/** Grows with each write, and when failed work has undone queued ones. */
TFD_API int64_t tfd_variable_version(const tfd_variable *variable);
TFD_API int tfd_variable_set_distribution(
    tfd_variable *variable, tfd_variable_synchronization synchronization,
    tfd_variable_aggregation aggregation);
TFD_API tfd_variable_synchronization
tfd_variable_synchronization_of(const tfd_variable *variable);
TFD_API tfd_variable_aggregation
tfd_variable_aggregation_of(const tfd_variable *variable);

/* --- Operands: any handle that ops accept (tensor, variable, slices) ----- */

/** The tensor that ops would read: the handle's value, not a copy. */
TFD_API int tfd_operand_tensor(tfd_object *operand, tfd_tensor **tensor_p);

/* --- Ops ---------------------------------------------------------------- */

/** Number of the op called `name`. Errors: NotImplementedError. */
TFD_API int tfd_op_find(const char *name, int *op_p);
/** Count of ops; numbers run from 0. */
TFD_API int tfd_op_count(void);
TFD_API const char *tfd_op_name(int op);
/** Arguments and attributes, "a:t b:t transpose_a:b=false"; see README. */
TFD_API const char *tfd_op_schema(int op);
/** True when gradients flow through it. */
TFD_API bool tfd_op_is_differentiable(int op);
/** Run an op by number. inputs may hold NULL for absent optional tensors.
 * Owns: outputs[0..*outputs_n_p) are new references.
 * Errors: all argument errors; in queued mode failures that depend on element
 *   values come later. */
TFD_API int tfd_op_run(int op, tfd_object *const *inputs, int inputs_n,
                       const int64_t *ints, int ints_n, const double *reals,
                       int reals_n, tfd_tensor **outputs, int outputs_capacity,
                       int *outputs_n_p);

/* --- Gradients ---------------------------------------------------------- */

/** A tape, recording in the current context until stopped.
 * Source: tf.GradientTape */
TFD_API int tfd_tape_new(bool persistent, bool watch_accessed_variables,
                         tfd_tape **tape_p);
/** Stop recording. Errors: RuntimeError if it does not record. */
TFD_API int tfd_tape_stop(tfd_tape *tape);
/** Record again (same context). */
TFD_API int tfd_tape_resume(tfd_tape *tape);
TFD_API bool tfd_tape_is_recording(const tfd_tape *tape);
TFD_API bool tfd_tape_is_persistent(const tfd_tape *tape);
/** Make the tape persistent from now on, for several gradients of one record
 * (jacobians). Errors: RuntimeError once its records were dropped. */
TFD_API int tfd_tape_keep(tfd_tape *tape);
/** Trace what is computed from this tensor or variable. */
TFD_API int tfd_tape_watch(tfd_tape *tape, tfd_object *operand);
/** Drop everything recorded and watched. */
TFD_API int tfd_tape_reset(tfd_tape *tape);
/** Number of recorded operations. */
TFD_API int64_t tfd_tape_length(const tfd_tape *tape);
/** Variables watched so far, i-th in order of first use (0-based).
 * Errors: IndexError past the last. */
TFD_API int tfd_tape_variable(tfd_tape *tape, int index,
                              tfd_variable **variable_p);
/** How many variables are watched so far. */
TFD_API int tfd_tape_variable_count(const tfd_tape *tape);
/** Record a step whose gradient the caller computes: `number` comes back from
 * tfd_walk_host. inputs and outputs are what gradients flow between. */
TFD_API int tfd_tape_record_host(int64_t number, tfd_object *const *inputs,
                                 int inputs_n, tfd_tensor *const *outputs,
                                 int outputs_n);
/** Suspend (true) or go on (false) recording on all tapes of this context. */
TFD_API int tfd_tape_pause_all(bool pause);
/** Number of tapes that record in this context. */
TFD_API int tfd_tape_active(void);
/** Begin a backward walk from targets to sources. target_grads has one entry
 * for each target (NULL = ones) or is empty. unconnected_zero: sources without
 * a path get zeros instead of none.
 * Errors: RuntimeError when a non-persistent tape is used twice. */
TFD_API int tfd_walk_begin(tfd_tape *tape, tfd_object *const *targets,
                           int targets_n, tfd_object *const *sources,
                           int sources_n, tfd_object *const *target_grads,
                           int target_grads_n, bool unconnected_zero,
                           tfd_walk **walk_p);
/** Go on until done or until a host step needs its gradient function. */
TFD_API int tfd_walk_next(tfd_walk *walk, tfd_walk_event *event_p);
/** The host step that waits: its number and how many outputs it has. */
TFD_API int tfd_walk_host(tfd_walk *walk, int64_t *number_p,
                          int *outputs_n_p);
/** Gradient of the waiting step's i-th output; NULL handle where none. */
TFD_API int tfd_walk_output_grad(tfd_walk *walk, int index,
                                 tfd_object **grad_p);
/** Answer the waiting step: one gradient (or NULL) for each of its inputs. */
TFD_API int tfd_walk_supply(tfd_walk *walk, tfd_object *const *grads,
                            int grads_n);
/** Gradient of source i (0-based): tensor or slices; NULL handle = none. */
TFD_API int tfd_walk_gradient(tfd_walk *walk, int index, tfd_object **grad_p);

/* --- Distribution ------------------------------------------------------- */

/** A strategy over `devices`, one replica each; none for the default one.
 * `parameter_device` holds the variables of central storage; NULL = the only
 * device, or CPU 0 when there are several.
 * Errors: AssertionError without devices or with one device twice.
 * Source: tf.distribute */
TFD_API int tfd_strategy_new(tfd_strategy_kind kind,
                             tfd_device *const *devices, int devices_n,
                             tfd_device *parameter_device,
                             tfd_strategy **strategy_p);
TFD_API tfd_strategy_kind
tfd_strategy_kind_of(const tfd_strategy *strategy);
/** Replicas in sync. */
TFD_API int tfd_strategy_replica_count(const tfd_strategy *strategy);
/** Device of replica `index`. Errors: IndexError. */
TFD_API int tfd_strategy_device(const tfd_strategy *strategy, int index,
                                tfd_device **device_p);
/** Number of devices that hold variables. */
TFD_API int tfd_strategy_parameter_count(const tfd_strategy *strategy);
/** Device `index` of those that hold variables. Errors: IndexError. */
TFD_API int tfd_strategy_parameter_device(const tfd_strategy *strategy,
                                          int index, tfd_device **device_p);
/** What a new variable becomes, and on how many of the parameter devices.
 * Errors: ValueError for synchronization NONE. */
TFD_API int tfd_strategy_place(const tfd_strategy *strategy,
                               tfd_variable_synchronization synchronization,
                               const char *name, tfd_variable_kind *kind_p,
                               int *copies_p);
/** Sum, mean, minimum, maximum or product of one tensor or slices per replica,
 * combined in this order, the same bits on every destination. Slices stay
 * slices: values and indices are joined, repeated rows kept. Half types add up
 * and multiply in float32.
 * `what` names the operation in messages.
 * Shapes: all components are [d0..dk]; so is each of the result.
 * Owns: result_p holds one new tensor for each destination.
 * Errors: InvalidArgument when shapes or dtypes differ; NotImplementedError for
 *   slices and anything but sum and mean.
 * Source: tf.distribute.StrategyExtended.reduce_to */
TFD_API int tfd_strategy_reduce(tfd_strategy *strategy, tfd_reduce_op op,
                                const char *what,
                                tfd_object *const *components, int components_n,
                                tfd_device *const *destinations,
                                int destinations_n, tfd_value **result_p);
/** tfd_strategy_reduce of many values at once, each replica getting its own
 * results: components holds the replicas' tensors or slices of value 0, then
 * of value 1 and so on, and so does the result. Dense values of float, int32
 * or int64 elements are added up by all devices together, each taking a
 * stretch of every value.
 * Errors: as tfd_strategy_reduce; ValueError unless components_n is a multiple
 *   of the replicas. Source: tf.distribute.ReplicaContext.all_reduce */
TFD_API int tfd_strategy_all_reduce(tfd_strategy *strategy, tfd_reduce_op op,
                                    const char *what,
                                    tfd_object *const *components,
                                    int components_n, tfd_value **result_p);
/** Update variables by an optimizer's op (update_...): each copy of each by the
 * sum over replicas of its gradient, in one pass over gradients, variables and
 * slots. For variable k of n and copy i, targets holds the copy and its slots
 * (the op's first inputs), copy by copy, variable by variable; grads holds for
 * each variable one tensor or slices per replica. Every copy gets the same
 * sum, added in replica order.
 * Shapes: gradients are like their variable.
 * Errors: InvalidArgument when shapes or dtypes differ; ValueError for lists
 *   that do not go together.
 * Source: tf.keras.optimizers.Optimizer.apply_gradients */
TFD_API int tfd_strategy_update(tfd_strategy *strategy, int op,
                                tfd_variable *const *targets, int targets_n,
                                tfd_object *const *grads, int grads_n,
                                const double *reals, int reals_n);
/** The components joined along `axis` in replica order, on every destination.
 * Shapes: [..., n_i, ...] give [..., sum n_i, ...].
 * Errors: InvalidArgument when ranks or other sizes differ, ValueError for an
 *   axis outside, NotImplementedError for slices.
 * Source: tf.distribute.Strategy.gather */
TFD_API int tfd_strategy_gather(tfd_strategy *strategy, int axis,
                                const char *what,
                                tfd_object *const *components, int components_n,
                                tfd_device *const *destinations,
                                int destinations_n, tfd_value **result_p);
/** One handle for a value with a component per replica; NULL components stand
 * for values that only the host knows.
 * Source: tf.distribute.DistributedValues */
TFD_API int tfd_value_new(tfd_strategy *strategy, tfd_value_kind kind,
                          tfd_object *const *components, int components_n,
                          tfd_value **value_p);
TFD_API tfd_value_kind tfd_value_kind_of(const tfd_value *value);
TFD_API int tfd_value_count(const tfd_value *value);
/** Component `index`, NULL handle for a host value. Errors: IndexError. */
TFD_API int tfd_value_component(tfd_value *value, int index,
                                tfd_object **component_p);
/** The component that code in this context means: its replica's, or the one
 * being updated; -1 in cross-replica context. */
TFD_API int tfd_value_index(const tfd_value *value);
TFD_API int tfd_value_strategy(tfd_value *value, tfd_strategy **strategy_p);
/** One variable for copies on several devices.
 * Source: tf.distribute MirroredVariable, SyncOnReadVariable */
TFD_API int tfd_mirrored_new(tfd_strategy *strategy, tfd_variable_kind kind,
                             tfd_variable *const *components, int components_n,
                             tfd_variable_synchronization synchronization,
                             tfd_variable_aggregation aggregation,
                             tfd_mirrored **mirrored_p);
TFD_API tfd_variable_kind tfd_mirrored_kind_of(const tfd_mirrored *mirrored);
TFD_API int tfd_mirrored_count(const tfd_mirrored *mirrored);
/** Copy `index`. Errors: IndexError. */
TFD_API int tfd_mirrored_component(tfd_mirrored *mirrored, int index,
                                   tfd_variable **component_p);
/** As tfd_value_index. */
TFD_API int tfd_mirrored_index(const tfd_mirrored *mirrored);
TFD_API int tfd_mirrored_strategy(tfd_mirrored *mirrored,
                                  tfd_strategy **strategy_p);
TFD_API tfd_variable_synchronization
tfd_mirrored_synchronization_of(const tfd_mirrored *mirrored);
TFD_API tfd_variable_aggregation
tfd_mirrored_aggregation_of(const tfd_mirrored *mirrored);
/** Snapshot of what reads give here; tapes record the read.
 * Errors: ValueError when copies without aggregation are read together. */
TFD_API int tfd_mirrored_read(tfd_mirrored *mirrored, tfd_tensor **value_p);
/** Whether all copies hold the same bytes. Blocks: until they are there. */
TFD_API int tfd_mirrored_agree(const tfd_mirrored *mirrored, bool *agree_p);
/** Say which copy of variables an update function works on (-1 = none);
 * before_p gets what was set. */
TFD_API int tfd_context_set_update(int component, int *before_p);

/** Begin running a function on every replica, each in a context of its own.
 * Errors: RuntimeError inside a replica of the same strategy. */
TFD_API int tfd_run_begin(tfd_strategy *strategy, tfd_run **run_p);
/** What comes next. For `resume` replica_p is whose turn it is, and its
 * context is entered; for `diverged` the first replica that is elsewhere than
 * replica 0. After `merge` the next call goes on with replica 0. */
TFD_API int tfd_run_next(tfd_run *run, tfd_run_event *event_p,
                         int *replica_p);
/** The replica whose turn it was waits at the sync point `point`, or has
 * returned (""). The caller's context is entered again. */
TFD_API int tfd_run_stopped(tfd_run *run, const char *point);
/** tfd_run_stopped, then tfd_run_next. */
TFD_API int tfd_run_pass(tfd_run *run, const char *point,
                         tfd_run_event *event_p, int *replica_p);
/** Give every waiting replica one last turn, without any merge. */
TFD_API int tfd_run_cancel(tfd_run *run);
/** Fail because `replica` is elsewhere than replica 0; the texts say where
 * both are ("" = unknown). Errors: RuntimeError, always. */
TFD_API int tfd_run_diverge(tfd_run *run, int replica, const char *where_first,
                            const char *where_other);

/* --- Files -------------------------------------------------------------- */

/** Tensor from an idx file, plain or gzip (images and labels of the MNIST
 * family). Shapes: as the file says, rank <= 8.
 * Errors: NotFound; DataLoss naming file and offset. */
TFD_API int tfd_read_idx(const char *path, tfd_tensor **tensor_p);
/** Open a file to read it part by part; the first part is all of it.
 * Errors: NotFound, FailedPrecondition, ResourceExhausted. */
TFD_API int tfd_input_open(const char *path, tfd_input **input_p);
/** Bytes of the file, -1 for what is no plain file. */
TFD_API int64_t tfd_input_size(const tfd_input *input);
/** Go to these bytes of the file, plain or deflated (without head and tail);
 * `name` is what messages call them. Errors: DataLoss beyond the file's end. */
TFD_API int tfd_input_part(tfd_input *input, const char *name, int64_t offset,
                           int64_t bytes, bool deflated);
/** Up to `bytes` more bytes of the part, fewer only at its end; valid until the
 * next call. Errors: DataLoss; ResourceExhausted for more unpacked bytes than
 *   the file may have, as for tensors. */
TFD_API int tfd_input_read(tfd_input *input, int64_t bytes, const void **text_p,
                           size_t *text_bytes_p);
/** The rest of the part as a tensor on the current device.
 * Errors: DataLoss naming file and offset when it does not fill the shape. */
TFD_API int tfd_input_tensor(tfd_input *input, tfd_dtype dtype,
                             const int64_t *dims, int dims_n, bool big_endian,
                             tfd_tensor **tensor_p);
/** CRC-32 of the bytes that the part gave so far. */
TFD_API int64_t tfd_input_crc(const tfd_input *input);
/** Put a file in place with these contents: it appears whole or not at all.
 * Blocks: until it is on the disk. Errors: ResourceExhausted (no space),
 *   NotFound (no such folder), FailedPrecondition. */
TFD_API int tfd_file_write(const char *path, const void *data,
                           size_t data_bytes);
/** What `path` is; neither when there is nothing. */
TFD_API int tfd_file_stat(const char *path, bool *is_file_p, bool *is_folder_p,
                          int64_t *bytes_p);
/** Make a folder and those above it that are missing. */
TFD_API int tfd_folder_make(const char *path);
/** Names in a folder in no order, each ended by a zero byte; valid until the
 * thread's next call. Errors: NotFound, FailedPrecondition. */
TFD_API int tfd_folder_list(const char *path, const void **names_p,
                            size_t *names_bytes_p);
/** Paths that match a pattern with * ? [sets] and backslashes before plain
 * characters, in no order, each ended by a zero byte; valid until the thread's
 * next call. Hidden names match a pattern that begins with a dot; folders that
 * may not be read hold nothing.
 * Errors: ResourceExhausted (no descriptors, no memory), FailedPrecondition. */
TFD_API int tfd_files_match(const char *pattern, const void **paths_p,
                            size_t *paths_bytes_p);
/** Open a safetensors file; its header is read and checked, tensors are in the
 * order of their names.
 * Errors: NotFound; DataLoss naming file, tensor and offset.
 * Source: github.com/huggingface/safetensors, "Format" */
TFD_API int tfd_archive_open(const char *path, tfd_archive **archive_p);
/** Number of tensors. */
TFD_API int tfd_archive_count(const tfd_archive *archive);
/** Position of the tensor called `name`, -1 when there is none. */
TFD_API int tfd_archive_find(const tfd_archive *archive, const char *name,
                             int *position_p);
/** Name, dtype, offset in the file and size in bytes of tensor `index`.
 * Errors: IndexError. */
TFD_API int tfd_archive_entry(const tfd_archive *archive, int index,
                              const char **name_p, const char **dtype_p,
                              int64_t *offset_p, int64_t *bytes_p);
/** Size of axis `axis` of tensor `index`, -1 outside its rank. */
TFD_API int tfd_archive_dim(const tfd_archive *archive, int index, int axis,
                            int64_t *size_p);
/** Metadata by key, NULL when there is none. */
TFD_API const char *tfd_archive_metadata(const tfd_archive *archive,
                                         const char *key);
/** Read tensor `index`, on the current device, and check it against its
 * checksum if the file has one.
 * Errors: DataLoss; NotImplementedError for dtypes that there are not. */
TFD_API int tfd_archive_read(tfd_archive *archive, int index,
                             tfd_tensor **tensor_p);

/** Collects tensors for one safetensors file. */
TFD_API int tfd_saver_new(tfd_saver **saver_p);
/** Add a tensor. Errors: AlreadyExists for a name that is taken. */
TFD_API int tfd_saver_add(tfd_saver *saver, const char *name,
                          tfd_tensor *tensor);
/** Add an entry to the file's metadata; both texts are UTF-8. */
TFD_API int tfd_saver_metadata(tfd_saver *saver, const char *key,
                               const char *text);
/** Write the file with checksums of header and tensors. It appears under its
 * name when it is whole and on the disk; until then the old file stays.
 * Blocks: until tensors are computed and synced to the disk.
 * Errors: ResourceExhausted (no space), FailedPrecondition. */
TFD_API int tfd_saver_write(tfd_saver *saver, const char *path);

/** Read the records of a file in order, ahead of the caller by a thread.
 * `sizes`: for fixed records their size and those of header and footer. Units:
 *   bytes.
 * Errors: NotFound, FailedPrecondition; ValueError for bad sizes. */
TFD_API int tfd_reader_open(tfd_reader_kind kind, const char *path,
                            tfd_compression compression, const int64_t *sizes,
                            int sizes_n, tfd_reader **reader_p);
/** The next record, NULL at the end; valid until the next call.
 * Blocks: until it is read. Errors: DataLoss naming file, record and offset,
 *   every time from then on; Cancelled. */
TFD_API int tfd_reader_next(tfd_reader *reader, const void **record_p,
                            size_t *record_bytes_p);
/** Pass over up to n records; fewer only at the end. Blocks, Errors: as next.
 */
TFD_API int tfd_reader_skip(tfd_reader *reader, int64_t n,
                            int64_t *skipped_p);

/** Write records (TFRecord) to a new file; an old one is emptied.
 * Errors: NotFound (no such folder), FailedPrecondition. */
TFD_API int tfd_writer_open(const char *path, tfd_compression compression,
                            tfd_writer **writer_p);
/** Add a record. Errors: FailedPrecondition when closed; ResourceExhausted. */
TFD_API int tfd_writer_record(tfd_writer *writer, const void *record,
                              size_t record_bytes);
/** Let other processes see what was written. */
TFD_API int tfd_writer_flush(tfd_writer *writer);
/** Complete the file; closing twice is nothing. */
TFD_API int tfd_writer_close(tfd_writer *writer);

/** An Example without features. Source: tf.train.Example */
TFD_API int tfd_example_new(tfd_example **example_p);
/** Read a serialized Example. Errors: DataLoss. */
TFD_API int tfd_example_parse(const void *data, size_t data_bytes,
                              tfd_example **example_p);
/** Number of features; they are sorted by name. */
TFD_API int tfd_example_count(const tfd_example *example);
/** Position of the feature called `name`, -1 when there is none. */
TFD_API int tfd_example_find(const tfd_example *example, const char *name,
                             int *position_p);
/** Name, kind and number of values of feature `index`. Errors: IndexError. */
TFD_API int tfd_example_feature(const tfd_example *example, int index,
                                const char **name_p, tfd_feature_kind *kind_p,
                                int64_t *values_p);
/** Values of a feature of numbers. Shapes: [n], float32 or int64.
 * Errors: InvalidArgument for another kind. */
TFD_API int tfd_example_tensor(tfd_example *example, int index,
                               tfd_tensor **tensor_p);
/** Text `value` of feature `index`. Errors: IndexError. */
TFD_API int tfd_example_text(const tfd_example *example, int index,
                             int64_t value, const void **text_p,
                             size_t *text_bytes_p);
/** Begin a feature; what is put next are its values. */
TFD_API int tfd_example_add(tfd_example *example, const char *name,
                            tfd_feature_kind kind);
TFD_API int tfd_example_put_text(tfd_example *example, const void *text,
                                 size_t text_bytes);
/** Elements of a float32 or int64 tensor. */
TFD_API int tfd_example_put_tensor(tfd_example *example, tfd_tensor *tensor);
/** The Example as bytes, features sorted by name; valid until it changes. */
TFD_API int tfd_example_serialize(tfd_example *example, const void **data_p,
                                  size_t *data_bytes_p);

#ifdef __cplusplus
}
#endif
#endif
