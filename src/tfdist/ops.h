/* Ops and gradients. Part of tfdist.h. */
#ifndef TFDIST_H
#error "include tfdist.h, which is the whole API"
#endif
#ifndef TFDIST_OPS_H
#define TFDIST_OPS_H

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

/** Run an op by name. `attributes` are what the schema names, "axis=[0]
 * keepdims=true": whole and real numbers, true and false, dtypes and words as
 * the schema lists them, lists in brackets without spaces; those that are left
 * out have their defaults, "" and NULL leave out all. Absent optional tensors
 * at the end of inputs may be left out too.
 * Owns: outputs[0..*outputs_n_p) are new references.
 * Errors: as tfd_op_run; ValueError for attributes that there are not, are
 *   missing or given twice, or have another kind of value. */
TFD_API int tfd_op_call(const char *name, const char *attributes,
                        tfd_object *const *inputs, int inputs_n,
                        tfd_tensor **outputs, int outputs_capacity,
                        int *outputs_n_p);

/* --- Gradients ---------------------------------------------------------- */

/** A tape, recording in the current context until stopped.
 * Source: tf.GradientTape */
TFD_API int tfd_tape_new(bool persistent, bool watch_accessed_variables,
                         tfd_tape **tape_p);
/** Follow every floating-point value that is used from now on, variables that
 * are not trainable too. */
TFD_API int tfd_tape_follow_all(tfd_tape *tape);
/** Follow tensors with values too: in a trace these are constants. */
TFD_API int tfd_tape_follow_constants(tfd_tape *tape);
/** Follow what another tape follows and is no variable, where it has values: in
 * a part of a trace these are constants. Errors: ValueError for itself. */
TFD_API int tfd_tape_follow_tape(tfd_tape *tape, tfd_tape *around);
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
/** Constants followed so far because of tapes around, likewise. */
TFD_API int tfd_tape_constant(tfd_tape *tape, int index, tfd_tensor **tensor_p);
TFD_API int tfd_tape_constant_count(const tfd_tape *tape);
/** Record a step whose gradient the caller computes: `number` comes back from
 * tfd_walk_host. inputs and outputs are what gradients flow between. */
TFD_API int tfd_tape_record_host(int64_t number, tfd_object *const *inputs,
                                 int inputs_n, tfd_tensor *const *outputs,
                                 int outputs_n);
/** Suspend (true) or go on (false) recording on all tapes of this context. */
TFD_API int tfd_tape_pause_all(bool pause);
/** Does a tape that records in this context follow the tensor or variable, or
 * would it if that were used? */
TFD_API int tfd_tape_follows(tfd_object *operand, bool *follows_p);
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
TFD_API int tfd_walk_host(tfd_walk *walk, int64_t *number_p, int *outputs_n_p);
/** Gradient of the waiting step's i-th output; NULL handle where none. */
TFD_API int tfd_walk_output_grad(tfd_walk *walk, int index,
                                 tfd_object **grad_p);
/** Is the gradient of the waiting step's i-th input wanted? And has later use
 * of that given it one already? */
TFD_API int tfd_walk_needs(tfd_walk *walk, int index, bool *needs_p,
                           bool *has_p);
/** The gradient that the i-th input has by now: tensor or slices; NULL handle =
 * none. */
TFD_API int tfd_walk_sum(tfd_walk *walk, int index, tfd_object **grad_p);
/** Take that gradient away: what the step answers begins with it. */
TFD_API int tfd_walk_take(tfd_walk *walk, int index);
/** Answer the waiting step: one gradient (or NULL) for each of its inputs. */
TFD_API int tfd_walk_supply(tfd_walk *walk, tfd_object *const *grads,
                            int grads_n);
/** Gradient of source i (0-based): tensor or slices; NULL handle = none. */
TFD_API int tfd_walk_gradient(tfd_walk *walk, int index, tfd_object **grad_p);

#endif
