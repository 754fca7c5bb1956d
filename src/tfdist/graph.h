/* Traced functions. Part of tfdist.h. */
#ifndef TFDIST_H
#error "include tfdist.h, which is the whole API"
#endif
#ifndef TFDIST_GRAPH_H
#define TFDIST_GRAPH_H

/** An empty graph. `name` is the function's, for messages.
 * Source: tf.Graph */
TFD_API int tfd_graph_new(const char *name, tfd_graph **graph_p);
/** One more argument: a symbolic tensor on `device` (NULL = the current one).
 * Sizes of -1 are unknown. */
TFD_API int tfd_graph_input(tfd_graph *graph, tfd_dtype dtype,
                            const int64_t *dims, int dims_n, tfd_device *device,
                            tfd_tensor **tensor_p);
/** From now on ops of the current context become nodes of the graph and do not
 * run; those that need no symbolic tensor and no variable run, and their
 * results are constants. Errors: FailedPrecondition for a graph that is
 * complete or records already. */
TFD_API int tfd_graph_begin(tfd_graph *graph);
/** No longer, until tfd_graph_begin. Nothing unless the graph records. */
TFD_API int tfd_graph_end(tfd_graph *graph);
/** Until it is undone ops run in the current context, which is the graph's own
 * or that of a replica whose run began in it. */
TFD_API int tfd_graph_pause(tfd_graph *graph, bool paused);
/** The name of the graph that records in this context, NULL when ops run. */
TFD_API const char *tfd_graph_recording(void);
/** True for what a graph computes: it has no values. */
TFD_API bool tfd_tensor_is_symbolic(const tfd_tensor *tensor);
/** What was said of values that the tensor's need, in a branch or a loop's
 * body, where it is for calls to raise; NULL = nothing. */
TFD_API const char *tfd_tensor_refused(const tfd_tensor *tensor);
/** Ops with these four words of a random stream draw from the next ones that
 * tfd_graph_start is given: they are the graph's draw number *number_p. */
TFD_API int tfd_graph_draw(tfd_graph *graph, const int64_t *words, int words_n,
                           int64_t *number_p);
/** The update recorded last takes its real attributes from the numbers that
 * tfd_graph_start is given, from number `first` on. */
TFD_API int tfd_graph_numbers(tfd_graph *graph, int64_t first);
/** A step of the host at this point of the program, which is given these
 * values: tfd_graph_next stops there. Its number in *number_p. */
TFD_API int tfd_graph_host(tfd_graph *graph, tfd_object *const *values,
                           int values_n, int64_t *number_p);
/** One more value that the step of the host recorded last gives, symbolic: it
 * is due in tfd_graph_supply. Sizes of -1 are unknown. */
TFD_API int tfd_graph_answer(tfd_graph *graph, tfd_dtype dtype,
                             const int64_t *dims, int dims_n,
                             tfd_device *device, tfd_tensor **tensor_p);
/** A part of `graph`: a graph to record what runs or does not, or again and
 * again. What its ops take from the graphs around it becomes its inputs. It is
 * never complete; graphs are extracted from it. */
TFD_API int tfd_graph_part(tfd_graph *graph, const char *name,
                           tfd_graph **part_p);
/** What input `index` of a part stands for; NULL if tfd_graph_input made it. */
TFD_API int tfd_graph_captured(tfd_graph *part, int64_t index,
                               tfd_tensor **outer_p);
/** A graph that gives these results of a part as it is recorded so far. Its
 * inputs are those of the part that it needs, and the values that variables
 * have before it runs; variables that `others` write are read where they are
 * instead. `pure`: without effects, what it would write is a value. Errors:
 * NotImplementedError when a pure graph needs what effects give, or when
 * gradients have effects. */
TFD_API int tfd_graph_extract(tfd_graph *part, tfd_object *const *results,
                              int results_n, bool pure,
                              tfd_graph *const *others, int others_n,
                              tfd_graph **graph_p);
/** All that is recorded from here on are gradients: graphs that are extracted
 * read variables there when the gradient is asked for, not before they run. */
TFD_API int tfd_graph_begin_gradients(tfd_graph *graph);
/** How many nodes are recorded so far. */
TFD_API int64_t tfd_graph_node_count(const tfd_graph *graph);
/** A graph that gives these results of one that is recorded so far, and after
 * them its values of these numbers. Its inputs are those that it needs. */
TFD_API int tfd_graph_forward(tfd_graph *graph, tfd_object *const *results,
                              int results_n, const int64_t *values,
                              int values_n, tfd_graph **graph_p);
/** A pure graph that gives results which gradients compute. Its inputs are,
 * besides those of tfd_graph_extract, the values that nodes before the
 * gradients gave: value v has the number of inputs of `graph` + v as its
 * source. */
TFD_API int tfd_graph_backward(tfd_graph *graph, tfd_object *const *results,
                               int results_n, tfd_graph **graph_p);
/** Number of inputs. */
TFD_API int tfd_graph_input_count(const tfd_graph *graph);
/** Which input of the part is input `index` of a graph extracted from it;
 * -1 - i: the value of its variable i, where *late_p the one that it has when
 * the gradient is asked for. */
TFD_API int tfd_graph_source(tfd_graph *graph, int64_t index, int64_t *number_p,
                             bool *late_p);
/** Variable `index` of those that a graph reads or writes. */
TFD_API int tfd_graph_variable(tfd_graph *graph, int64_t index,
                               tfd_variable **variable_p);
TFD_API int tfd_graph_variable_count(const tfd_graph *graph);
/** Tensor `index` of those from before the graph that ops took which ran while
 * it recorded, as all their operands had values: the graph has what they gave.
 */
TFD_API int tfd_graph_folded(tfd_graph *graph, int64_t index,
                             tfd_tensor **tensor_p);
TFD_API int tfd_graph_folded_count(const tfd_graph *graph);
/** Do tapes see the ops of calls (the default)? Else who calls it records what
 * it does, and it runs as where there is no tape. */
TFD_API int tfd_graph_set_followed(tfd_graph *graph, bool followed);
/** Record a step that runs one of these extracted graphs: that of the number
 * which operand 0 has, else the last. slots: for each input of each graph in
 * turn, which operand it is. Its results are those of the graphs. */
TFD_API int tfd_graph_choice(tfd_graph *graph, tfd_graph *const *graphs,
                             int graphs_n, tfd_object *const *operands,
                             int operands_n, const int64_t *slots, int slots_n);
/** Record a loop. graphs: the body, and the condition if there is one.
 * operands: how often it runs (absent with a condition), what `carries` values
 * begin with, `rows` tensors of which each iteration gets one row, the rest;
 * slots as above. The body gives the next carries, then what is stacked.
 * Results: the last carries, the number of iterations, `stacks` tensors of one
 * row for each iteration. size: the number of iterations where it is known,
 * most: their bound, -1 = none; reversed: from the last row to the first;
 * strided: iterations get them as they lie in memory, not dense. */
TFD_API int tfd_graph_loop(tfd_graph *graph, tfd_graph *const *graphs,
                           int graphs_n, tfd_object *const *operands,
                           int operands_n, const int64_t *slots, int slots_n,
                           int64_t carries, int64_t rows, int64_t stacks,
                           int64_t size, int64_t most, bool reversed,
                           bool strided);
/** Result `index` of the step recorded last, symbolic. */
TFD_API int tfd_graph_output(tfd_graph *graph, int64_t index,
                             tfd_tensor **tensor_p);
/** The graph is complete: it gives `results`, its symbolic tensors or others.
 * Errors: TypeError for symbolic tensors of another graph. */
TFD_API int tfd_graph_complete(tfd_graph *graph, tfd_object *const *results,
                               int results_n);
/** Number of results. */
TFD_API int tfd_graph_result_count(const tfd_graph *graph);
/** Begin a call: one tensor for each input, four words for each draw, and the
 * numbers that updates take (more do no harm). While another graph records in
 * this context the ops are recorded there, of a graph without steps of the
 * host, choices, loops and communication.
 * Errors: InvalidArgument for other dtypes or shapes; FailedPrecondition when
 *   the graph is not complete or runs already. Free memory and call it again
 *   after ResourceExhausted. */
TFD_API int tfd_graph_start(tfd_graph *graph, tfd_tensor *const *inputs,
                            int inputs_n, const int64_t *words, int words_n,
                            const double *numbers, int numbers_n);
/** Go on until done or until a step of the host. A call that failed is over;
 * but free memory and call it again after ResourceExhausted, and it goes on
 * where that is possible. */
TFD_API int tfd_graph_next(tfd_graph *graph, tfd_graph_event *event_p);
/** The step of the host that is due: its number and how many values it has. */
TFD_API int tfd_graph_due(tfd_graph *graph, int64_t *number_p, int *values_n_p);
/** Value i of the step that is due. */
TFD_API int tfd_graph_value(tfd_graph *graph, int index, tfd_tensor **value_p);
/** What the step that is due gives. */
TFD_API int tfd_graph_supply(tfd_graph *graph, tfd_tensor *const *values,
                             int values_n);
/** Result i of the call that is done. */
TFD_API int tfd_graph_result(tfd_graph *graph, int index,
                             tfd_tensor **result_p);
/** The call is over; what it still holds goes. */
TFD_API int tfd_graph_stop(tfd_graph *graph);
/** Nodes, one a line. `stage`: "recorded"; "lowered" as it runs for the last
 * inputs, with the plan of its memory; "costs" of that, in floating-point
 * operations and bytes. The text lives until the next call. */
TFD_API const char *tfd_graph_text(tfd_graph *graph, const char *stage);
/** Bytes of the arena of the program of the last call. */
TFD_API int64_t tfd_graph_arena_size(const tfd_graph *graph);

#endif
