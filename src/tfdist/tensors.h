/* Tensors, indexed slices, variables. Part of tfdist.h. */
#ifndef TFDIST_H
#error "include tfdist.h, which is the whole API"
#endif
#ifndef TFDIST_TENSORS_H
#define TFDIST_TENSORS_H

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
TFD_API int tfd_tensor_item(tfd_tensor *tensor, int64_t index, double *value_p);
/** All elements as doubles; values has room for the element count. Blocks. */
TFD_API int tfd_tensor_values(tfd_tensor *tensor, double *values,
                              int64_t values_n);
/** CRC-32C of all elements as the host reads them, row-major. Blocks: until
 * they are computed. Cost: the bytes are read once, by the host. */
TFD_API int tfd_tensor_crc(tfd_tensor *tensor, int64_t *crc_p);
/** Wait until the elements can be read. Errors: sticky failures. */
TFD_API int tfd_tensor_wait(tfd_tensor *tensor);
/** Address of element 0 for host-visible dense tensors, after waiting; valid
 * while the tensor is open. Writing is undefined. */
TFD_API int tfd_tensor_data(tfd_tensor *tensor, void **data_p);

TFD_API tfd_dtype tfd_tensor_dtype(const tfd_tensor *tensor);
TFD_API int tfd_tensor_rank(const tfd_tensor *tensor);
/** Size of axis `axis` (0-based); -1 outside the rank, and where the size of a
 * symbolic tensor is not known. */
TFD_API int64_t tfd_tensor_dim(const tfd_tensor *tensor, int axis);
/** Number of elements; -1 where that is not known. */
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
/** Replace the value. Errors: ValueError on another shape or dtype.
 * Queues: the copy, which may fail there. */
TFD_API int tfd_variable_assign(tfd_variable *variable, tfd_object *value);
/** value += delta, in place.
 * Queues: the sum, which may fail there. */
TFD_API int tfd_variable_assign_add(tfd_variable *variable, tfd_object *delta);
/** value -= delta, in place.
 * Queues: the difference, which may fail there. */
TFD_API int tfd_variable_assign_sub(tfd_variable *variable, tfd_object *delta);
/** Snapshot of the value; tapes record the read. */
TFD_API int tfd_variable_read(tfd_variable *variable, tfd_tensor **value_p);
/** Run an update op in place: the op's input 0 is the variable's value, the
 * rest are `inputs`; its output 0 overwrites the value.
 * Errors: InvalidArgument if the op's result has another shape or dtype.
 * Queues: the op, which may fail there. */
TFD_API int tfd_variable_update(tfd_variable *variable, int op,
                                tfd_object *const *inputs, int inputs_n,
                                const int64_t *ints, int ints_n,
                                const double *reals, int reals_n);
/** The same for several variables at once: the op's first inputs are the
 * targets' values, its first outputs overwrite them. `inputs` may hold NULL
 * for absent optional tensors.
 * Queues: the op, which may fail there. */
TFD_API int tfd_variables_update(tfd_variable *const *targets, int targets_n,
                                 int op, tfd_object *const *inputs,
                                 int inputs_n, const int64_t *ints, int ints_n,
                                 const double *reals, int reals_n);
TFD_API const char *tfd_variable_name(const tfd_variable *variable);
TFD_API bool tfd_variable_is_trainable(const tfd_variable *variable);
/** Grows with each write, when failed work has undone queued ones, and by much
 * when a call of a graph fails, whatever that has written. */
TFD_API int64_t tfd_variable_version(const tfd_variable *variable);
TFD_API int
tfd_variable_set_distribution(tfd_variable *variable,
                              tfd_variable_synchronization synchronization,
                              tfd_variable_aggregation aggregation);
TFD_API tfd_variable_synchronization
tfd_variable_synchronization_of(const tfd_variable *variable);
TFD_API tfd_variable_aggregation
tfd_variable_aggregation_of(const tfd_variable *variable);
/** Whether ops take the variable's value in the dtype of the calling thread's
 * context (tfd_context_set_autocast); at first they do not. */
TFD_API int tfd_variable_set_autocast(tfd_variable *variable, bool autocast);

/* --- Operands: any handle that ops accept (tensor, variable, slices) ----- */

/** The tensor that ops would read: the handle's value, not a copy.
 * Meets: the other processes of `operand`, which may add up its copies. */
TFD_API int tfd_operand_tensor(tfd_object *operand, tfd_tensor **tensor_p);
/** The dtype that ops would read it in: not the tensor's for an autocast
 * variable (tfd_context_set_autocast). */
TFD_API int tfd_operand_dtype(tfd_object *operand, tfd_dtype *dtype_p);

#endif
