/* Dtypes, statuses, enums and handles. Part of tfdist.h. */
#ifndef TFDIST_H
#error "include tfdist.h, which is the whole API"
#endif
#ifndef TFDIST_CONSTANTS_H
#define TFDIST_CONSTANTS_H

/* --- Constants ---------------------------------------------------------- */

/* X(constant, kind): the kind is what Lua's error objects carry. */
#define TFD_STATUS_LIST(X)                         \
  X(TFD_OK, "OK")                                  \
  X(TFD_VALUE_ERROR, "ValueError")                 \
  X(TFD_TYPE_ERROR, "TypeError")                   \
  X(TFD_RUNTIME_ERROR, "RuntimeError")             \
  X(TFD_NOT_IMPLEMENTED, "NotImplementedError")    \
  X(TFD_ASSERTION_ERROR, "AssertionError")         \
  X(TFD_KEY_ERROR, "KeyError")                     \
  X(TFD_INDEX_ERROR, "IndexError")                 \
  X(TFD_INVALID_ARGUMENT, "InvalidArgument")       \
  X(TFD_OUT_OF_RANGE, "OutOfRange")                \
  X(TFD_NOT_FOUND, "NotFound")                     \
  X(TFD_ALREADY_EXISTS, "AlreadyExists")           \
  X(TFD_FAILED_PRECONDITION, "FailedPrecondition") \
  X(TFD_UNAVAILABLE, "Unavailable")                \
  X(TFD_DEADLINE_EXCEEDED, "DeadlineExceeded")     \
  X(TFD_ABORTED, "Aborted")                        \
  X(TFD_CANCELLED, "Cancelled")                    \
  X(TFD_RESOURCE_EXHAUSTED, "ResourceExhausted")   \
  X(TFD_DATA_LOSS, "DataLoss")                     \
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
  TFD_HANDLE_GROUP,
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
  TFD_HANDLE_GRAPH,
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

typedef enum tfd_graph_event {
  TFD_GRAPH_DONE = 0, /* all results are there */
  TFD_GRAPH_HOST = 1  /* a step of the host is due */
} tfd_graph_event;

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
  TFD_VARIABLE_PLAIN = 0,    /* one ordinary variable */
  TFD_VARIABLE_MIRRORED,     /* a copy on each device, written together */
  TFD_VARIABLE_SYNC_ON_READ, /* a copy on each device, combined by reads */
  TFD_VARIABLE_AGGREGATING   /* one variable that replicas write together */
} tfd_variable_kind;

typedef enum tfd_write_op {
  TFD_WRITE_ASSIGN = 0,
  TFD_WRITE_ASSIGN_ADD,
  TFD_WRITE_ASSIGN_SUB
} tfd_write_op;

typedef enum tfd_write_route {
  TFD_ROUTE_COPY = 0, /* the copy that code here means */
  TFD_ROUTE_MERGE,    /* every copy, together with all replicas */
  TFD_ROUTE_ALL       /* every copy */
} tfd_write_route;

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
typedef struct tfd_graph tfd_graph;
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

#endif
