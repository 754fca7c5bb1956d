#ifndef TFD_BACKEND_CUDA_STREAM_H
#define TFD_BACKEND_CUDA_STREAM_H
/* A stream from inside: for stream.c, refuse.c (values that kernels refuse) and
** record.c, which starts launches that come again as one. Threads: its lock is
** held. */
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
typedef struct cuda_stream cuda_stream;

typedef struct mark {
  uint64_t seq;
  uint64_t words; /* how many of all words lie before it */
  bool said;      /* others that wait for it see what was refused before */
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
  cuda_stream *from; /* it was refused there, the stream waited for it */
} word;

struct cuda_stream {
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
  /* A failure was told that covers positions up to here. Set under `told`. */
  uint64_t void_to;
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
  uint64_t spoiled;  /* from here on there are no results; 0 = there are */
  uint64_t follows;  /* from here on all is behind work of others, */
  const void *whose; /* of this one's, */
  uint64_t follows_before; /* and from here on behind work of yet others */
  tfd_status spoiled_code;
  tfd__exit spoiled_exit;
  char spoiled_reason[512];
  tfd__cuda_native native;
  CUdeviceptr scratch[16]; /* of the running kernel, freed in stream order */
  int scratch_n;
  CUdeviceptr workspace;
  size_t workspace_bytes;
  /* What shows must not be written behind a refused value (refuse.c). */
  bool may_stop;        /* there were words, or work of others */
  bool shared;          /* other streams wait for it */
  bool asked;           /* hosts wait for words: each has a mark of its own */
  CUdeviceptr stop;     /* the first position that refused, or NOTHING: */
  uint64_t *first;      /* the same, mapped, for other streams, */
  uint64_t *noted;      /* and what the host notes: each has its one writer */
  uint64_t gated;       /* so many of all words count in *stop, */
  uint64_t gated_at;    /* and what the host notes up to here */
  uint64_t said;        /* and in *first */
  bool stop_is_old;     /* it was told */
  tfd__error last_told; /* of what was refused */
};

static inline cuda_stream *tfd__cuda_stream_of(tfd__stream *s) {
  return (cuda_stream *)s;
}

static inline uint64_t tfd__cuda_taken(const cuda_stream *s) {
  return tfd__counter_get(&s->base.taken);
}

/* Wait until the first `words` of all can be read. */
void tfd__cuda_wait_words(cuda_stream *s, uint64_t words);

int tfd__cuda_refusals_open(cuda_stream *s);
void tfd__cuda_refusals_close(cuda_stream *s);
/* Wait until the first `words` of all can be read, and let go of those that had
** nothing noted. Inside a position, too, which has not passed then. */
void tfd__cuda_skip_words(cuda_stream *s, uint64_t words);
/* What is launched from here on sees in *stop what was refused before. */
CUresult tfd__cuda_gate(cuda_stream *s);
/* Likewise who waits for what was launched so far, in *first. */
CUresult tfd__cuda_say(cuda_stream *s);
/* Where up to position seq something is refused that was not told, or may be.
 */
tfd__refused tfd__cuda_refusals(cuda_stream *s, uint64_t seq);
/* Wait until the ring takes n words more, for who is named in the error. */
int tfd__cuda_make_room(cuda_stream *s, int n, const char *name);
/* The last position that may have refused a value and did not tell, or that
** others than `own` may spoil; 0 = none. */
uint64_t tfd__cuda_may_refuse(cuda_stream *s, const void *own);
/* The same as of refusals, and what others may spoil of it; those that are not
** `own`. */
tfd__refused tfd__cuda_losses(cuda_stream *s, uint64_t seq, const void *own);
/* The host notes that from position seq on there are no results, before what
** gates there runs. Threads: `told` is held. */
void tfd__cuda_note(cuda_stream *s, uint64_t seq);
/* The stream waits for `on`: what was refused there in that range stops this
** one, too, which then raises the same error. */
int tfd__cuda_heed(cuda_stream *s, cuda_stream *on, const tfd__refused *range);

/* A word of what is recorded, and its place. */
int tfd__cuda_record_word(cuda_stream *s, word **word_p, int *place_p);
/* Those that came since the last time, of n. */
const word *tfd__cuda_record_gate(cuda_stream *s, int *n_p);
/* Nothing runs any more: let go of what was retired. */
void tfd__cuda_records_close(cuda_stream *s);

#endif
