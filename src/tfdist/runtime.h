/* Errors, the library, devices, contexts. Part of tfdist.h. */
#ifndef TFDIST_H
#error "include tfdist.h, which is the whole API"
#endif
#ifndef TFDIST_RUNTIME_H
#define TFDIST_RUNTIME_H

/* --- Errors and library ------------------------------------------------- */

/** Version of the library, "0.1.0". */
TFD_API const char *tfd_version(void);
/** Number of the sources that the library was built from, "1f40c2a97b3e". */
TFD_API const char *tfd_build_id(void);
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
/** What was going on where the failed op was called, lines or "": a layer, say,
** whose op a traced function runs. */
TFD_API const char *tfd_error_note(void);
/** Op that failed, "gather"; "" if the failure is that of no op. */
TFD_API const char *tfd_error_op(void);
/** Argument that the last failure is about, or "" where it does not say. */
TFD_API const char *tfd_error_argument(void);
/** Bound that a value did not keep: the size that an index is outside of; -1
** for other failures. */
TFD_API int64_t tfd_error_bound(void);
/** What a process should end with that cannot go on after the last failure: 70
** when the library is wrong, 75 when another process of its cluster failed, 76
** when that was the chief and it is gone, 77 when the processes did different
** things, 78 when a device is lost; 0 for other failures. */
TFD_API int tfd_error_exit_code(void);
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
/** Order faults as TFDIST_FAILPOINTS does, instead of those that were ordered
 * before: for tests, while nothing is under way.
 * Errors: ValueError for what is no place or no action. */
TFD_API int tfd_test_failpoints(const char *orders);
/** Interrupt every wait (true) or go on (false). Async-signal-safe. */
TFD_API void tfd_interrupt(bool on);
/** True after tfd_interrupt(true). */
TFD_API bool tfd_is_interrupted(void);
/** Note requests to end (SIGTERM) rather than end. Errors: Unavailable. */
TFD_API int tfd_termination_watch(void);
/** True once one has come. */
TFD_API bool tfd_termination_seen(void);

/* --- Devices ------------------------------------------------------------ */

/** Split the CPU into `count` logical devices.
 * Errors: ValueError unless 1 <= count <= 64; RuntimeError once the runtime
 *   has started. Source: tf.config.set_logical_device_configuration */
TFD_API int tfd_config_set_cpu_devices(int count);
/** Split a GPU (counted from 0) into logical devices, one for each of `limits`:
 * bytes that it may take, 0 = no limit of its own.
 * Errors: ValueError for no device, more than 64 in all, or a negative limit;
 *   RuntimeError once started; where there is no such GPU the start fails.
 * Source: tf.config.set_logical_device_configuration */
TFD_API int tfd_config_set_gpu_devices(int gpu, const int64_t *limits,
                                       int limits_n);
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
/** Back end `index`: name, type ("" = it has seen none) and number of its
 * physical devices that can be used, the plug-in's file ("" = built in), why it
 * cannot be used ("" = it can). */
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
/** Say what ops that the calling thread's context runs or records belong to,
** lines that their errors show; "" or NULL = nothing. Kept for ever. */
TFD_API void tfd_context_set_note(const char *note);
/** Whether GPUs may round the inputs of float32 products and convolutions to
 * TF32; at first they may unless TFDIST_STRICT_FP32 is 1. For ops that begin
 * from now on. Source: tf.config.experimental.enable_tensor_float_32_execution
 */
TFD_API void tfd_tensor_float_32_enable(bool enabled);
TFD_API bool tfd_tensor_float_32_is_enabled(void);
/** While `active`, ops that the calling thread's context runs or records take
 * autocast variables of other floating-point dtypes as `dtype`: each use is a
 * cast, which tapes follow. Casts, reads and updates take them as they are.
 * Errors: TypeError unless dtype is a floating-point one.
 * Source: Keras' AutocastScope */
TFD_API int tfd_context_set_autocast(bool active, tfd_dtype dtype);

#endif
