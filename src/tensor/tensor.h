#ifndef TFD_TENSOR_TENSOR_H
#define TFD_TENSOR_TENSOR_H
/* L4 tensor: immutable views of buffers, variables, indexed slices.
**
** Invariants:
** T1 A tensor header never changes after it is made, except the header a
**    variable owns (`variable` != NULL), whose buffer is written in place or
**    replaced by assignment.
** T2 Writing in place is allowed only when the buffer has one reference
**    (ops that update variables make a new one otherwise).
** T3 A shape-only tensor (buffer == NULL) carries dtype, dims, device and id;
**    it stands in for tensors whose values nobody needs. With a tracer it is
**    symbolic: a value that a traced function will compute. Its sizes may be
**    unknown (-1, and so is numel then); it is always dense.
** T4 `id` is unique for each value; a snapshot of a variable keeps the
**    variable's id so that tapes recognise it.
** May include base, types, backend, device. Specs: spec/tensor. */

#include "device/device.h"

struct tfd_tensor;

/* A function while its ops are recorded, and after: whose symbolic tensors
** these are. What a recorder (ops) begins with. */
typedef struct tfd__tracer {
  tfd_object object;
  const char *name; /* in messages; lives as long as this does */
  /* What was refused, and left to the calls, that the value of t needs; NULL =
  ** nothing. The text lives as long as this does. */
  const char *(*refused)(const struct tfd__tracer *self,
                         const struct tfd_tensor *t);
} tfd__tracer;

/* What making and dropping a small tensor touches comes first: two cache
** lines and a half. */
struct tfd_tensor {
  tfd_object object;
  tfd__buffer *buffer;           /* owned reference; NULL = shape-only */
  tfd_device *device;            /* borrowed, devices live for ever */
  struct tfd_variable *variable; /* borrowed back pointer or NULL */
  uint64_t id;
  bool is_big;
  int line; /* symbolic: script position of what made it */
  union {
    struct tfd_tensor *big_next; /* list of large tensors, see tensor.c */
    const char *file;            /* symbolic; NULL = unknown */
  };
  tfd__view view;
  union {
    struct tfd_tensor *big_prev;
    tfd__tracer *tracer; /* buffer == NULL: owned reference, or NULL */
  };
};

/* So many headers of released tensors each thread keeps, 10 MB. */
enum { TFD_HEADERS_KEPT = 32768 };

static inline bool tfd__is_symbolic(const tfd_tensor *t) {
  return t->buffer == NULL && t->tracer != NULL;
}

/* What the tracer of a symbolic tensor says of it; NULL for others. */
const char *tfd__refused(const tfd_tensor *t);

/* Dense, uninitialised. Owns: *t_p. */
int tfd__tensor_new(tfd_device *device, int dtype, const int64_t *dims,
                    int rank, tfd_tensor **t_p);
/* Another header on t's buffer with this view (data already set). */
int tfd__tensor_alias(const tfd_tensor *t, const tfd__view *view,
                      tfd_tensor **alias_p);
/* Header with the same id that later in-place writes do not change:
** a new reference to t itself when t is immutable. */
int tfd__tensor_snapshot(tfd_tensor *t, tfd_tensor **snapshot_p);
int tfd__tensor_shape_only(const tfd_tensor *t, tfd_tensor **p);
enum { TFD_ARGUMENT_LINE = -1 }; /* of what the function is given */
/* A symbolic tensor of `tracer`, made at file:line ("file" is kept). Sizes of
** -1 are unknown. */
int tfd__tensor_symbolic(tfd__tracer *tracer, tfd_device *device, int dtype,
                         const int64_t *dims, int rank, const char *file,
                         int line, tfd_tensor **t_p);
/* Fail because `what` asks for the values of a shape-only tensor. */
int tfd__no_values(const tfd_tensor *t, const char *what);
/* Fail because input i of `what` belongs to a function that is not being
** traced here. */
int tfd__out_of_place(const tfd_tensor *t, const char *what, int i);
/* Dense tensor on `device` from one double for each element. */
int tfd__tensor_from_doubles(tfd_device *device, int dtype, const int64_t *dims,
                             int rank, const double *values, tfd_tensor **t_p);
/* The same, but one value (values_n = 1) fills any shape. */
int tfd__tensor_from_values(tfd_device *device, int dtype, const int64_t *dims,
                            int rank, const double *values, int64_t values_n,
                            tfd_tensor **t_p);
/* The same from all elements' own bytes. */
int tfd__tensor_from_bytes(tfd_device *device, int dtype, const int64_t *dims,
                           int rank, const void *data, tfd_tensor **t_p);
/* Dense copy (or a new reference when already dense). */
int tfd__tensor_dense(tfd_tensor *t, tfd_tensor **p);
/* Same values on `device`, laid out as t's (a new reference when already
** there). */
int tfd__tensor_to_device(tfd_tensor *t, tfd_device *device, tfd_tensor **p);
/* Wait for t's last writer; then t->view.data may be read by the host
** (host-visible back ends only). */
int tfd__tensor_sync(const tfd_tensor *t);
/* Element `index` (row-major, of any view) into `cell`, 8 bytes of room, as
** the dtype stores it. Blocks: until it is computed. Errors: IndexError. */
int tfd__tensor_cell(tfd_tensor *tensor, int64_t index, void *cell);
uint64_t tfd__next_id(void);

/* "largest live tensors: float32 {1024, 1024} 4.0 MiB, ..." into text. */
void tfd__tensor_largest(char *text, size_t text_bytes);

/* The tensor behind any handle usable as an op's input. Borrowed.
** Errors: TypeError naming what was given; FailedPrecondition if released. */
int tfd__operand(tfd_object *object, tfd_tensor **t_p);

struct tfd_variable {
  tfd_object object;
  tfd_tensor *value; /* owned header, variable == this */
  char *name;
  bool trainable;
  bool autocast;           /* read in the dtype of the context's policy */
  uint8_t synchronization; /* tfd_variable_synchronization */
  uint8_t aggregation;     /* tfd_variable_aggregation */
  uint64_t version;        /* +1 for each write; shadows compare it */
  struct tfd__replaced *replaced; /* oldest first; see history.c */
  int replaced_n;
  struct tfd_variable *unsettled_next;
  struct tfd_variable *unsettled_prev;
  /* The distributed variable that it is a copy of, which sets and clears this;
  ** borrowed, NULL = none. */
  struct tfd_mirrored *whole;
  /* Of the distributed variable, among its strategy's in all processes; 0 = it
  ** was made in one alone. It outlives `whole`, which the collector takes in
  ** each process at another time. */
  uint32_t number;
};

/* Before `next` takes the place of v's buffer: keep the reference to the old
** one if the new one is still to be filled, else let go of it. */
void tfd__history_replace(tfd_variable *v, tfd__buffer *next);
/* v goes: let go of what is kept. */
void tfd__history_drop(tfd_variable *v);

/* A sparse gradient: values[i] belongs to row indices[i] of dense_shape, whose
** number of rows may be unknown (-1). */
struct tfd_slices {
  tfd_object object;
  tfd_tensor *values;  /* {n, ...} */
  tfd_tensor *indices; /* {n} int32 or int64 */
  int rank;
  int64_t dims[TFD_MAX_RANK];
};

/* Header around a buffer whose reference it takes over; view by value. */
int tfd__tensor_wrap(tfd_device *device, tfd__buffer *buffer,
                     const tfd__view *view, tfd_tensor **t_p);
/* A variable on `device` with t's values. Blocks: until they are computed. */
int tfd__variable_new(const char *name, bool trainable, tfd_tensor *t,
                      tfd_device *device, tfd_variable **variable_p);
/* May t's values replace v's? Errors: ValueError. */
int tfd__variable_takes(const tfd_variable *v, const tfd_tensor *t);
/* Replace v's values by t's, which it takes. */
int tfd__variable_set(tfd_variable *v, tfd_tensor *t);
/* Put `buffer` (its reference is taken over) behind v's header. */
void tfd__variable_replace(tfd_variable *v, tfd__buffer *buffer);
/* Likewise one with the same values: v is no newer than it was. */
void tfd__variable_move(tfd_variable *v, tfd__buffer *buffer);
/* What would have written variables failed: nobody's version is one that was
** foreseen. */
void tfd__versions_unforeseen(void);

extern const tfd__type tfd__tensor_type;
extern const tfd__type tfd__variable_type;
extern const tfd__type tfd__slices_type;

#endif
