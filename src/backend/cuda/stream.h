#ifndef TFD_BACKEND_CUDA_STREAM_H
#define TFD_BACKEND_CUDA_STREAM_H
/* A stream from inside: for stream.c, and record.c, which starts launches that
** come again as one. Threads: its lock is held. */
#include <pthread.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/staging.h"

enum {
  MARKS = 64,
  WORDS = 512,
  KEPT_PLACES = 512, /* behind those of the ring: records' own */
  PLACES = WORDS + KEPT_PLACES
};

#define NOTHING UINT64_MAX

struct tfd__cuda_record;

typedef struct mark {
  uint64_t seq;
  uint64_t words; /* how many of all words lie before it */
  CUevent event;
} mark;

/* What a launch may refuse, until its position has passed. */
typedef struct word {
  uint64_t seq;
  int place;        /* of its value */
  const char *name; /* the op's, static */
  const char *argument;
  int64_t bounds[TFD_MAX_RANK];
  int depth; /* coordinates; 0 = values that are looked at one by one */
  bool rising;
  int (*say)(const char *name, int64_t at, int64_t value);
  int64_t dims[TFD_MAX_RANK]; /* of the argument */
  int rank;
  int replica;
  int line;
  const char *file;
  const char *note;
} word;

typedef struct cuda_stream {
  tfd__stream base;
  tfd__stream_config config;
  CUstream stream;
  pthread_mutex_t lock; /* recursive: kernels run inside submit */
  bool running; /* the last position: what it launches is not complete */
  uint64_t passed;
  mark marks[MARKS]; /* a ring, oldest first */
  int marks_first;
  int marks_n;
  uint64_t *values; /* mapped: what kernels noted, NOTHING = nothing */
  CUdeviceptr values_device;
  int64_t *refused;  /* behind them: TFD_MAX_RANK numbers for each place */
  word words[WORDS]; /* a ring, those of single launches of the same places */
  int words_first;
  int words_n;
  uint64_t words_all;    /* ever taken, the ring's are the last */
  uint64_t words_passed; /* that many of them can be read */
  uint64_t void_to; /* a failure was told that covers positions up to here */
  bool kept[KEPT_PLACES];             /* is the place a record's? */
  int waiting[KEPT_PLACES];           /* words of the ring that lie there */
  struct tfd__cuda_record *recording; /* what is launched goes there */
  struct tfd__cuda_record *retired;   /* may still run */
  tfd__ring in;                       /* of copies from the host, */
  tfd__ring out;                      /* and to it */
  CUresult lost;                      /* the device no longer answers */
  uint64_t lost_from; /* no results from here on, of which none was told */
  /* What others say of the stream, who must not wait for who waits for it. */
  pthread_mutex_t told;
  atomic_bool given_up;
  uint64_t spoiled; /* from here on there are no results; 0 = there are */
  tfd_status spoiled_code;
  tfd__exit spoiled_exit;
  char spoiled_reason[512];
  tfd__cuda_native native;
  CUdeviceptr scratch[16]; /* of the running kernel, freed in stream order */
  int scratch_n;
  CUdeviceptr workspace;
  size_t workspace_bytes;
} cuda_stream;

static inline cuda_stream *tfd__cuda_stream_of(tfd__stream *s) {
  return (cuda_stream *)s;
}

static inline uint64_t tfd__cuda_taken(const cuda_stream *s) {
  return tfd__counter_get(&s->base.taken);
}

/* Wait until the first `words` of all can be read, and let go of those that had
** nothing noted. Inside a position, too, which has not passed then. */
void tfd__cuda_skip_words(cuda_stream *s, uint64_t words);

/* A word of what is recorded, and its place. */
int tfd__cuda_record_word(cuda_stream *s, word **word_p, int *place_p);
/* Nothing runs any more: let go of what was retired. */
void tfd__cuda_records_close(cuda_stream *s);

#endif
