/* Strategies, distributed values, runs. Part of tfdist.h. */
#ifndef TFDIST_H
#error "include tfdist.h, which is the whole API"
#endif
#ifndef TFDIST_DISTRIBUTE_H
#define TFDIST_DISTRIBUTE_H

/* --- Distribution ------------------------------------------------------- */

/** A strategy of a kind ("default", "one_device", "mirrored",
 * "central_storage" or "multi_worker") over `devices`, one replica each; none
 * for the default one. `parameter_device` holds the variables of central
 * storage; NULL = the only device, or CPU 0 when there are several. Errors:
 * ValueError for a kind that there is not; AssertionError without devices or
 * with one device twice. Source: tf.distribute */
TFD_API int tfd_strategy_new(const char *kind, tfd_device *const *devices,
                             int devices_n, tfd_device *parameter_device,
                             tfd_strategy **strategy_p);
/** A strategy over several processes, each with as many devices: this is number
 * `process` of those at `addresses`, "host:port" of each between commas.
 * `secret` is what all know and no stranger ("" = nothing, for addresses of one
 * machine; with `insecure` for others too). `provider` moves the bytes ("" =
 * the best that can). All processes must make the same strategies in the same
 * order, and use them alike. Blocks: until all are there.
 * Units: start_seconds to find the others, beat_seconds of silence of one of
 *   them, timeout_seconds of an operation, stall_seconds after which a wait
 *   says what it waits for; 0 = 300, 10, 600 and 30. pack_bytes of small values
 *   that go together; 0 = all, or of an update's gradients 4 MiB.
 * Errors: DeadlineExceeded naming who is missing; FailedPrecondition for peers
 *   of another cluster or without the secret; Unavailable for an address that
 *   cannot be had. Source: tf.distribute.MultiWorkerMirroredStrategy */
TFD_API int tfd_strategy_join(const char *kind, tfd_device *const *devices,
                              int devices_n, const char *addresses, int process,
                              const void *secret, size_t secret_bytes,
                              bool insecure, const char *provider,
                              double start_seconds, double beat_seconds,
                              double timeout_seconds, double stall_seconds,
                              int64_t pack_bytes, tfd_strategy **strategy_p);
/** The last collectives of a process, from a file of its flight recorder, as
 * lines of fields between tabs: first process, processes, process id, host and
 * why a group of it failed ("" = none did); then of each collective, the oldest
 * first, group, number, state ("begun", "done", "failed"), begin and end in
 * microseconds since 1970 (0 = not yet), what it is, and the script line.
 * Borrows: the text is valid until the thread's next call.
 * Errors: NotFound; FailedPrecondition when it cannot be read; InvalidArgument
 *   for another file. */
TFD_API int tfd_flight_read(const char *path, const void **text_p,
                            size_t *text_bytes_p);
/** What files of this process are told from those of others by that work with
 * it: the name that TFDIST_TASK gives ("worker-1"), else "process-1" once it
 * has met others, else "".
 * Borrows: the text is valid until the thread's next call. */
TFD_API int tfd_task_name(const char **name_p);
/** The processes that a starter which `provider` knows ("mpi": mpirun, srun
 * --mpi=pmix) started together with this one: its number, and how many.
 * Blocks: until all have said where they are, start_seconds at most (0 = 300).
 * Errors: NotFound without the provider's plug-in; Unavailable when nobody
 *   started the process so. */
TFD_API int tfd_world(const char *provider, double start_seconds,
                      int *process_p, int *processes_p);
/** The host of process `process` of those; the text lives for ever.
 * Errors: as tfd_world; IndexError. */
TFD_API int tfd_world_host(const char *provider, int process,
                           const char **host_p);
/** Number of providers of collectives, those included that cannot be used. */
TFD_API int tfd_provider_count(int64_t *count_p);
/** Provider `index`: its name, with the build for plug-ins ("mpi_openmpi"), the
 * plug-in's file ("" = built in), why it cannot be used ("" = it can). */
TFD_API int tfd_provider_at(int index, const char **name_p, const char **path_p,
                            const char **reason_p);
/** What an all_reduce over a transport ("shm", "tcp") costs, in seconds: each
 * step, each message that a process sends in it, each byte that it sends, each
 * byte that it adds up. Errors: NotFound. */
TFD_API int tfd_transport_costs(const char *transport, double *step_p,
                                double *message_p, double *byte_p,
                                double *sum_p);
/** Seconds of an all_reduce of `bytes` among `processes` with such costs, in
 * the way "whole", "direct", "doubling", "ring" or "halving". Errors:
 * ValueError for another way or no process. */
TFD_API int tfd_collective_cost(const char *way, int processes, double bytes,
                                double step, double message, double byte,
                                double sum, double *seconds_p);
/** Seconds of an all_reduce of `bytes` among `processes` on `hosts`, by the
 * known costs: inside hosts through shared memory and between them over TCP,
 * and over TCP between all. Errors: ValueError unless there are 1 to
 * `processes` hosts. */
TFD_API int tfd_hosts_cost(int processes, int hosts, double bytes,
                           double *by_hosts_p, double *flat_p);
/** Say farewell to the other processes of all strategies, before this one ends
 * without letting its strategies go: others that still read what it sent last
 * take it for lost otherwise. Whoever still waits for this one fails, with
 * `status` in the message and as a lost process's peer where it is not 0. The
 * strategies cannot be used any more. */
TFD_API void tfd_workers_leave(int status);
/** Who moves bytes between its replicas, "" where nobody need. */
TFD_API const char *tfd_strategy_provider(const tfd_strategy *strategy);
TFD_API const char *tfd_strategy_kind(const tfd_strategy *strategy);
/** Replicas in sync, of all workers. */
TFD_API int tfd_strategy_replica_count(const tfd_strategy *strategy);
/** Replicas of this process. */
TFD_API int tfd_strategy_local_count(const tfd_strategy *strategy);
/** Something begins that all processes of the strategy call alike, and in which
 * they may meet; mark_p is for tfd_strategy_leave. `owed` such calls were ended
 * by errors before they met others. Calls may lie within others: the outermost
 * one counts. */
TFD_API int tfd_strategy_enter(tfd_strategy *strategy, int owed,
                               int64_t *mark_p);
/** It ends, with an error ("" = well); met_p tells whether it was the outermost
 * and has met others. Such calls are counted, with what they owed; where
 * others' counts differ at a meeting, all get an error that says so. */
TFD_API int tfd_strategy_leave(tfd_strategy *strategy, int64_t mark,
                               const char *error, bool *met_p);
/** Number, of those in sync, of the first replica here. */
TFD_API int tfd_strategy_first_replica(const tfd_strategy *strategy);
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
/** Name of copy `copy` of a variable, its own for copy 0; valid until the
 * thread's next call. */
TFD_API int tfd_copy_name(const char *name, int copy, const char **name_p);
/** One variable of copies made where tfd_strategy_place said, copy 0 first:
 * for callers who make the copies. All processes of the strategy have to make
 * what is `known_as` the same: its name, say, without numbers that count what
 * each of them made before. Errors: ValueError for another count.
 * Meets: the other processes of the strategy. */
TFD_API int tfd_strategy_create(tfd_strategy *strategy,
                                tfd_variable *const *copies, int copies_n,
                                const char *known_as,
                                tfd_variable_synchronization synchronization,
                                tfd_variable_aggregation aggregation,
                                tfd_object **variable_p);
/** A variable of the strategy's: a copy of `initial` on each device that the
 * strategy says. The handle is a distributed variable, or an ordinary one where
 * the strategy has one copy and nothing to combine.
 * Errors: ValueError for modes that contradict each other, MEAN of integers.
 * Source: tf.Variable in Strategy.scope
 * Meets: the other processes of the strategy. */
TFD_API int tfd_strategy_variable(tfd_strategy *strategy, tfd_object *initial,
                                  const char *name, bool trainable,
                                  tfd_variable_synchronization synchronization,
                                  tfd_variable_aggregation aggregation,
                                  tfd_object **variable_p);
/** Sum, mean, minimum, maximum or product of one tensor or slices per replica,
 * combined in this order, the same bits on every destination. Slices stay
 * slices: values and indices are joined, repeated rows kept. Half types add up
 * and multiply in float32.
 * `what` names the operation in messages.
 * Shapes: all components are [d0..dk]; so is each of the result.
 * Owns: result_p holds one new tensor for each destination.
 * Errors: InvalidArgument when shapes or dtypes differ; NotImplementedError for
 *   slices and anything but sum and mean; DeadlineExceeded when other processes
 *   have not come after timeout_seconds (0 = as the strategy has it), which
 *   leaves the processes apart.
 * Source: tf.distribute.StrategyExtended.reduce_to
 * Meets: the other processes of the strategy. */
TFD_API int tfd_strategy_reduce(tfd_strategy *strategy, tfd_reduce_op op,
                                const char *what, tfd_object *const *components,
                                int components_n,
                                tfd_device *const *destinations,
                                int destinations_n, double timeout_seconds,
                                tfd_value **result_p);
/** True where sums are the runtime's own, so that updates may make them on the
 * way; strategies of other rules combine first. */
TFD_API bool tfd_strategy_adds_up(const tfd_strategy *strategy);
/** Copies of a tensor or slices on every destination.
 * Source: tf.distribute.StrategyExtended.broadcast_to */
TFD_API int tfd_strategy_broadcast(tfd_strategy *strategy, const char *what,
                                   tfd_object *value,
                                   tfd_device *const *destinations,
                                   int destinations_n, tfd_value **result_p);
/** tfd_strategy_reduce of many values at once, each replica getting its own
 * results: components holds the replicas' tensors or slices of value 0, then
 * of value 1 and so on, and so does the result. Dense values of float, int32
 * or int64 elements are added up by all devices together, each taking a
 * stretch of every value.
 * Errors: as tfd_strategy_reduce; ValueError unless components_n is a multiple
 *   of the replicas. Source: tf.distribute.ReplicaContext.all_reduce
 * Meets: the other processes of the strategy. */
TFD_API int tfd_strategy_all_reduce(tfd_strategy *strategy, tfd_reduce_op op,
                                    const char *what,
                                    tfd_object *const *components,
                                    int components_n, tfd_value **result_p);
/** tfd_strategy_all_reduce whose dense values go in packs, those of each dtype
 * apart: `packs` of equal lengths; 0 = as they are; -1 = packs of whole values,
 * the last one first, that end once they have more than pack_bytes bytes (0 =
 * one pack). Results are the same.
 * Units: timeout_seconds, for groups of several processes; 0 = the default.
 * Source: tf.distribute NcclAllReduce, CommunicationOptions.bytes_per_pack
 * Meets: the other processes of the strategy. */
TFD_API int
tfd_strategy_all_reduce_packed(tfd_strategy *strategy, tfd_reduce_op op,
                               const char *what, tfd_object *const *components,
                               int components_n, int packs, int64_t pack_bytes,
                               double timeout_seconds, tfd_value **result_p);
/** Update variables by an optimizer's op (update_...): each copy of each by the
 * sum over replicas of its gradient, in one pass over gradients, variables and
 * slots. For variable k of n and copy i, targets holds the copy and its slots
 * (the op's first inputs), copy by copy, variable by variable; grads holds for
 * each variable one tensor or slices per replica. Every copy gets the same
 * sum, added in replica order.
 * Shapes: gradients are like their variable.
 * Errors: InvalidArgument when shapes or dtypes differ; ValueError for lists
 *   that do not go together.
 * Source: tf.keras.optimizers.Optimizer.apply_gradients
 * Meets: the other processes of the strategy. */
TFD_API int tfd_strategy_update(tfd_strategy *strategy, int op,
                                tfd_variable *const *targets, int targets_n,
                                tfd_object *const *grads, int grads_n,
                                const double *reals, int reals_n);
/** The elements of a variable of these sizes whose slots replica `replica` of
 * all in sync keeps under tfd_strategy_update_parts: a run of them from first
 * on. rows: they are whole rows, of which slices may name some. Errors:
 * IndexError. */
TFD_API int tfd_strategy_part(const tfd_strategy *strategy, const int64_t *dims,
                              int dims_n, int replica, int64_t *first_p,
                              int64_t *count_p, bool *rows_p);
/** tfd_strategy_update where each replica has the slots of its part alone: the
 * part's gradient is summed there, the part is updated and goes to all copies.
 * Results are the same. For variable k and replica i here, targets holds the
 * copy and the slots of its part, each with the part's elements alone.
 * summed: gradients are complete, the same on all replicas. Then they may be
 * slices, which name rows of the part, not of the variable.
 * Errors: as tfd_strategy_update; NotImplementedError for other slices.
 * Meets: the other processes of the strategy. */
TFD_API int tfd_strategy_update_parts(tfd_strategy *strategy, int op,
                                      tfd_variable *const *targets,
                                      int targets_n, tfd_object *const *grads,
                                      int grads_n, bool summed,
                                      const double *reals, int reals_n);
/** tfd_strategy_update by an op's name, with attributes as for tfd_op_call.
 * Meets: the other processes of the strategy. */
TFD_API int tfd_strategy_apply(tfd_strategy *strategy, const char *name,
                               const char *attributes,
                               tfd_variable *const *targets, int targets_n,
                               tfd_object *const *grads, int grads_n);
/** The components joined along `axis` in replica order, on every destination.
 * Shapes: [..., n_i, ...] give [..., sum n_i, ...].
 * Errors: InvalidArgument when ranks or other sizes differ, ValueError for an
 *   axis outside, NotImplementedError for slices; DeadlineExceeded when other
 *   processes have not come after timeout_seconds (0 = as the strategy has it),
 *   which leaves the processes apart.
 * Source: tf.distribute.Strategy.gather
 * Meets: the other processes of the strategy. */
TFD_API int tfd_strategy_gather(tfd_strategy *strategy, int axis,
                                const char *what, tfd_object *const *components,
                                int components_n,
                                tfd_device *const *destinations,
                                int destinations_n, double timeout_seconds,
                                tfd_value **result_p);
/** One handle for a value with a component per replica; NULL components stand
 * for values that only the host knows.
 * Source: tf.distribute.DistributedValues */
TFD_API int tfd_value_new(tfd_strategy *strategy, tfd_value_kind kind,
                          tfd_object *const *components, int components_n,
                          tfd_value **value_p);
/** One handle for what the replicas gave: the same handle on all of them as it
 * is, copies of one distributed variable in their order as that variable, and
 * everything else as a value of this kind.
 * Source: tf.distribute, regrouping of results and of merge_call's arguments */
TFD_API int tfd_value_regroup(tfd_strategy *strategy, tfd_value_kind kind,
                              tfd_object *const *components, int components_n,
                              tfd_object **whole_p);
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
 * Errors: ValueError when copies without aggregation are read together.
 * Meets: the other processes of the strategy. */
TFD_API int tfd_mirrored_read(tfd_mirrored *mirrored, tfd_tensor **value_p);
/** Where a write goes that is called here; `what` names it in messages.
 * Errors: ValueError in a replica for a variable of central storage without
 *   aggregation. */
TFD_API int tfd_mirrored_route(const tfd_mirrored *mirrored, const char *what,
                               tfd_write_route *route_p);
/** Write here, where no other replica is needed: this replica's copy or, in
 * cross-replica context, all of them. A Mirrored value gives each copy its
 * component; what is summed by reads is divided among the copies.
 * Errors: ValueError for a PerReplica value in cross-replica context, and for
 *   assign_add and assign_sub of what is summed by reads; RuntimeError where
 *   the replicas write together. */
TFD_API int tfd_mirrored_write(tfd_mirrored *mirrored, tfd_write_op op,
                               tfd_object *value);
/** Write all copies, wherever this is called. Errors: as above. */
TFD_API int tfd_mirrored_write_all(tfd_mirrored *mirrored, tfd_write_op op,
                                   tfd_object *value);
/** One value for all copies of what each replica gives, by the variable's
 * aggregation. Errors: as tfd_strategy_reduce; ValueError without one.
 * Meets: the other processes of the strategy. */
TFD_API int tfd_mirrored_combine(tfd_mirrored *mirrored, const char *what,
                                 tfd_object *const *values, int values_n,
                                 tfd_object **combined_p);
/** Write what the replicas, which have stopped for it, give together.
 * Meets: the other processes of the strategy. */
TFD_API int tfd_mirrored_write_merged(tfd_mirrored *mirrored, tfd_write_op op,
                                      tfd_object *const *values, int values_n);
/** Whether all copies hold the same bytes. Blocks: until they are there. */
TFD_API int tfd_mirrored_agree(const tfd_mirrored *mirrored, bool *agree_p);
/** Say which copy of variables an update function works on (-1 = none);
 * before_p gets what was set. */
TFD_API int tfd_context_set_update(int component, int *before_p);
/** What several processes do together is about these variables, in this order,
 * from now on, until it is said anew (none = no certain ones): where others say
 * something else, all get an error instead of sums of different variables. */
TFD_API int tfd_context_set_about(tfd_variable *const *variables,
                                  int variables_n);

/* --- Distributed input --------------------------------------------------- */

/** The rows of a batch of `rows` that replica `replica` of `replicas` takes,
 * where full batches have `batch` rows (-1 = not known). Replicas take pieces
 * in order: of a full batch batch / replicas rows, one more for the first
 * batch mod replicas; a short batch fills them in order. Where the size is not
 * known, or is exceeded, ceil(rows / replicas) each.
 * Errors: ValueError, IndexError for numbers out of range. */
TFD_API int tfd_input_piece(int64_t rows, int64_t batch, int replicas,
                            int replica, int64_t *first_p, int64_t *count_p);
/** Rows of piece number `turn` (from 0) when a worker with `local` replicas
 * cuts a stream of its own: the shares of a full batch, turned left by its
 * replicas' number, over and over. Each step of all workers has `batch` rows.
 * Errors: ValueError, IndexError for numbers out of range.
 * Source: tf.data.experimental.rebatch, batch_sizes_for_worker */
TFD_API int tfd_input_turn(int64_t batch, int workers, int local, int worker,
                           int64_t turn, int64_t *count_p);
/** The rows of a batch that replica `replica`, of all in sync, gets under the
 * strategy; numbers as in tfd_input_piece. */
TFD_API int tfd_strategy_input_share(const tfd_strategy *strategy, int64_t rows,
                                     int64_t batch, int replica,
                                     int64_t *first_p, int64_t *count_p);
/** A PerReplica value of the rows of a batch that the replicas here get, each
 * on its device; replicas without data get no rows.
 * Errors: ValueError for a scalar. */
TFD_API int tfd_strategy_split(tfd_strategy *strategy, tfd_tensor *tensor,
                               int64_t batch, tfd_value **shares_p);

/* --- Runs ----------------------------------------------------------------- */

/** Begin running a function on every replica, each in a context of its own.
 * Errors: RuntimeError inside a replica of the same strategy. */
TFD_API int tfd_run_begin(tfd_strategy *strategy, tfd_run **run_p);
/** What comes next. For `resume` replica_p is whose turn it is, and its
 * context is entered; for `diverged` the first replica that is elsewhere than
 * replica 0. After `merge` the next call goes on with replica 0. */
TFD_API int tfd_run_next(tfd_run *run, tfd_run_event *event_p, int *replica_p);
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

#endif
