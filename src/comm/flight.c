/* The ring, its file, and how one is read. */
#define _GNU_SOURCE
#include "comm/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/given.h"
#include "comm/private.h"

enum { RECORDS = 4096, HOST_BYTES = 64, CAUSE_BYTES = 2048, FILE_BYTES = 40 };

/* As it lies in files: any change of these two needs another magic. */
static const char magic[8] = "TFDFLT1";

typedef struct head {
  char magic[8];
  uint32_t process;
  uint32_t processes;
  uint32_t pid;
  uint32_t records;
  atomic_uint_least64_t next; /* records so far */
  atomic_uint has_cause;
  uint32_t unused;
  char host[HOST_BYTES];
  char cause[CAUSE_BYTES];
} head;

typedef struct record {
  int64_t begun; /* microseconds since 1970 */
  int64_t ended; /* 0 = not yet */
  uint64_t number;
  uint64_t what;
  uint64_t count; /* elements of the first value */
  uint32_t group;
  uint32_t values;
  uint32_t state;
  uint32_t line;
  char file[FILE_BYTES];
} record;

typedef struct flight {
  head head;
  record records[RECORDS];
} flight;

/* Set once, never given back: other threads and a dying process write it. */
static flight *_Atomic ring;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* --- memory --------------------------------------------------------------- */

static void *map(int fd) {
  int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void *p = mmap(NULL, sizeof(flight), PROT_READ | PROT_WRITE, flags, fd, 0);

  return p == MAP_FAILED ? NULL : p;
}

/* An empty one would stand beside the others' records as a damaged one. */
static void remove_empty(const char *path, int fd) {
  struct stat s;

  if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode)) (void)unlink(path);
}

/* The blocks are there before anything is written: a full disk is found here,
** and not by a signal later. */
static void *map_file(const char *path) {
  int fd =
      open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  int error = fd < 0 ? errno : posix_fallocate(fd, 0, sizeof(flight));
  void *p = NULL;

  if (error == 0) p = map(fd);
  if (fd >= 0 && error != 0) remove_empty(path, fd);
  if (fd >= 0) (void)close(fd);
  if (error != 0) {
    tfd__log(TFD_LOG_WARNING, "TFDIST_FLIGHT: %s: %s", path, strerror(error));
  }
  return p;
}

static flight *make(const tfd__network *n) {
  char folder[TFD_ENV_TEXT];
  char restart[TFD_ENV_TEXT];
  char path[2 * TFD_ENV_TEXT + 64];
  bool again =
      tfd__env_text("TFDIST_RESTART", restart) && strcmp(restart, "0") != 0;
  flight *f = NULL;

  if (tfd__env_text("TFDIST_FLIGHT", folder)) {
    (void)mkdir(folder, 0777); /* the file says what is wrong with it */
    (void)snprintf(path, sizeof path, "%s/process-%d%s%s.flight", folder,
                   n->process, again ? ".restart-" : "", again ? restart : "");
    f = map_file(path);
  }
  if (f == NULL) f = map(-1);
  if (f == NULL) return NULL;
  memcpy(f->head.magic, magic, sizeof magic);
  f->head.process = (uint32_t)n->process;
  f->head.processes = (uint32_t)n->processes;
  f->head.pid = (uint32_t)getpid();
  f->head.records = RECORDS;
  (void)gethostname(f->head.host, sizeof f->head.host - 1);
  return f;
}

void tfd__flight_join(const tfd__network *n) {
  pthread_mutex_lock(&lock);
  if (ring == NULL) ring = make(n);
  pthread_mutex_unlock(&lock);
}

/* --- writing -------------------------------------------------------------- */

static int64_t wall_us(void) {
  struct timespec t;

  (void)clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

uint64_t tfd__flight_begin(const tfd__group *g, const tfd__collective *c,
                           uint64_t number) {
  flight *f = ring;
  const tfd__view *v = NULL;
  uint64_t at = 0;
  record *r = NULL;

  if (f == NULL) return 0;
  v = tfd__leading_view(g, c);
  at = atomic_fetch_add(&f->head.next, 1);
  r = &f->records[at % RECORDS];
  *r = (record){.begun = wall_us(),
                .number = number,
                .what = tfd__collective_what(c, v == NULL ? 0 : v->dtype),
                .count = v == NULL ? 0 : (uint64_t)v->numel,
                .group = (uint32_t)g->id,
                .values = (uint32_t)c->values,
                .state = TFD_FLIGHT_BEGUN,
                .line = c->file == NULL ? 0 : (uint32_t)c->line};
  tfd__file_end(c->file, r->file, sizeof r->file);
  return at;
}

void tfd__flight_end(uint64_t at, tfd__flight_state state) {
  flight *f = ring;
  record *r = NULL;

  if (f == NULL || atomic_load(&f->head.next) > at + RECORDS) return;
  r = &f->records[at % RECORDS];
  if (r->state != TFD_FLIGHT_BEGUN) return;
  r->ended = wall_us();
  r->state = state;
}

void tfd__flight_cause(const char *text) {
  flight *f = ring;

  if (f == NULL || atomic_exchange(&f->head.has_cause, 1) != 0) return;
  (void)snprintf(f->head.cause, sizeof f->head.cause, "%s", text);
}

/* --- reading -------------------------------------------------------------- */

static int no_record(const char *path, const char *why) {
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s is no flight record: %s", path,
                   why);
}

/* The whole file, or what there is of it. Nothing in it is believed, and a pipe
** is refused, not waited for. */
static int load(const char *path, flight *f) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat s;
  size_t n = 0;
  ssize_t got = 0;

  if (fd < 0) {
    return tfd__fail(errno == ENOENT ? TFD_NOT_FOUND : TFD_FAILED_PRECONDITION,
                     "%s: %s", path, strerror(errno));
  }
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
    (void)close(fd);
    return no_record(path, "it is no plain file");
  }
  do {
    got = read(fd, (char *)f + n, sizeof *f - n);
    if (got > 0) n += (size_t)got;
  } while ((got > 0 && n < sizeof *f) || (got < 0 && errno == EINTR));
  (void)close(fd);
  if (n != sizeof *f) return no_record(path, "it is too short");
  if (memcmp(f->head.magic, magic, sizeof magic) != 0) {
    return no_record(path, "it begins with other bytes");
  }
  f->head.host[HOST_BYTES - 1] = '\0';
  f->head.cause[CAUSE_BYTES - 1] = '\0';
  return TFD_OK;
}

/* Control characters would end lines and columns. */
static void clean(char *text) {
  for (; *text != '\0'; text++) {
    if ((unsigned char)*text < ' ' || *text == 127) *text = ' ';
  }
}

/* Lines of a text with room for all. */
typedef struct page {
  char *text;
  size_t n;
} page;

enum { HEAD_BYTES = 64 + HOST_BYTES + CAUSE_BYTES, LINE_BYTES = 400 };

static void write_record(page *to, record *r) {
  static const char *const states[] = {
      [TFD_FLIGHT_NONE] = "none",
      [TFD_FLIGHT_BEGUN] = "begun",
      [TFD_FLIGHT_DONE] = "done",
      [TFD_FLIGHT_FAILED] = "failed",
  };
  char words[192];
  char place[FILE_BYTES + 16] = "";

  r->file[FILE_BYTES - 1] = '\0';
  clean(r->file);
  tfd__collective_text(r->what, r->count, (int)r->values, words, sizeof words);
  if (r->line > 0) {
    (void)snprintf(place, sizeof place, "%s:%u", r->file, r->line);
  }
  to->n += (size_t)snprintf(
      to->text + to->n, LINE_BYTES, "%u\t%llu\t%s\t%lld\t%lld\t%s\t%s\n",
      r->group, (unsigned long long)r->number,
      r->state <= TFD_FLIGHT_FAILED ? states[r->state] : "none",
      (long long)r->begun, (long long)r->ended, words, place);
}

static void write_all(page *to, flight *f) {
  uint64_t next = atomic_load(&f->head.next);
  uint64_t i = next > RECORDS ? next - RECORDS : 0;

  clean(f->head.host);
  clean(f->head.cause);
  to->n = (size_t)snprintf(to->text, HEAD_BYTES, "%u\t%u\t%u\t%s\t%s\n",
                           f->head.process, f->head.processes, f->head.pid,
                           f->head.host, f->head.cause);
  for (; i < next; i++) write_record(to, &f->records[i % RECORDS]);
}

int tfd_flight_read(const char *path, const void **text_p,
                    size_t *text_bytes_p) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_POINTER(text_p);
  TFD_GIVEN_POINTER(text_bytes_p);

  static _Thread_local page last; /* stays until the next call */
  flight *f = tfd__alloc(sizeof *f);
  size_t bytes = HEAD_BYTES + RECORDS * LINE_BYTES;
  int rc;

  if (f == NULL) return tfd__no_memory(sizeof *f, "flight_read");
  rc = load(path, f);
  if (rc == TFD_OK && last.text == NULL) last.text = tfd__alloc(bytes);
  if (rc == TFD_OK && last.text == NULL) {
    rc = tfd__no_memory(bytes, "flight_read");
  }
  if (rc == TFD_OK) {
    write_all(&last, f);
    *text_p = last.text;
    *text_bytes_p = last.n;
  }
  tfd__free(f);
  return rc;
}

int tfd_task_name(const char **name_p) {
  TFD_GIVEN_POINTER(name_p);

  static _Thread_local char text[TFD_ENV_TEXT];

  if (!tfd__env_text("TFDIST_TASK", text)) {
    pthread_mutex_lock(&lock);
    text[0] = 0;
    if (ring != NULL && ring->head.processes > 1) {
      (void)snprintf(text, sizeof text, "process-%u", ring->head.process);
    }
    pthread_mutex_unlock(&lock);
  }
  text[strcspn(text, "/")] = 0; /* part of a file's name */
  *name_p = text;
  return TFD_OK;
}
