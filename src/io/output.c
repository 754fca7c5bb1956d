/* Files that appear whole or not at all: written under another name, synced,
** renamed, and the folder synced, so that a crash at any moment leaves either
** the old file or the new one.
**
** A file under its temporary name is locked by the process that writes it,
** until it has its own name: one that can be locked is what an ended process
** left. The kernel gives locks back however a process ends, and knows them in
** all containers and on all hosts that share the folder. */
#define _GNU_SOURCE
#include "io/io.h"

#include "base/failpoint.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)16 << 20)
#define MARK ".tfdist-tmp-" /* before the process and a number: PID-N */
#define SUFFIX_BYTES 48
#define NAME_TRIES 100

tfd_status tfd__errno_status(int code) {
  switch (code) {
  case ENOENT:
    return TFD_NOT_FOUND;
  case EEXIST:
    return TFD_ALREADY_EXISTS;
  case ENOSPC:
  case EDQUOT:
  case EFBIG:
  case ENOMEM:
  case EMFILE:
  case ENFILE:
    return TFD_RESOURCE_EXHAUSTED;
  default:
    return TFD_FAILED_PRECONDITION;
  }
}

tfd_status tfd__read_status(int code) {
  tfd_status status = tfd__errno_status(code);

  return status == TFD_RESOURCE_EXHAUSTED ? status : TFD_DATA_LOSS;
}

/* A fault that was ordered, as the system would tell it. */
static bool is_ordered(int fault) {
  if (fault > 0) errno = fault;
  return fault > 0;
}

static int failed(const char *path, const char *what) {
  int code = errno;

  return tfd__fail(tfd__errno_status(code), "%s: cannot %s: %s", path, what,
                   strerror(code));
}

/* The folder of `path` into buf (as long as path + 2). */
static void folder_of(const char *path, char *buf) {
  const char *slash = strrchr(path, '/');

  if (slash == NULL) {
    strcpy(buf, ".");
  } else {
    size_t n = slash == path ? 1 : (size_t)(slash - path);

    memcpy(buf, path, n);
    buf[n] = '\0';
  }
}

static int check_space(const char *path, char *folder, uint64_t expected) {
  struct statvfs s;
  uint64_t there;

  folder_of(path, folder);
  if (expected == 0 || statvfs(folder, &s) != 0 || s.f_blocks == 0) {
    return TFD_OK; /* opening or writing will say more */
  }
  there = (uint64_t)s.f_bavail * s.f_frsize;
  if (there >= expected) return TFD_OK;
  return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                   "%s: %llu bytes do not fit on a disk with %llu free", path,
                   (unsigned long long)expected, (unsigned long long)there);
}

/* Is the file ours, and still there? What swept it may have held the lock, or
** may have removed it just before. Where there are no locks nothing sweeps. */
static bool claim(int file) {
  struct stat s;

  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return fstat(file, &s) == 0 && s.st_nlink > 0;
}

/* A name of its own for each file of each process. */
static int open_temp(tfd__output *o, size_t room) {
  static atomic_int counter;
  int tries;

  if (is_ordered(TFD_FAIL(CKPT_CREATE))) return failed(o->path, "create");
  for (tries = 0; tries < NAME_TRIES; tries++) {
    snprintf(o->temp, room, "%s" MARK "%ld-%d", o->path, (long)getpid(),
             atomic_fetch_add(&counter, 1));
    o->file = open(o->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                   o->mode < 0 ? 0666 : 0600);
    if (o->file < 0 && errno != EEXIST) return failed(o->path, "create");
    if (o->file >= 0 && claim(o->file)) return TFD_OK;
    if (o->file >= 0) close(o->file);
    o->file = -1;
  }
  return tfd__fail(TFD_UNAVAILABLE,
                   "%s: cannot create: %d names beside it are taken", o->path,
                   NAME_TRIES);
}

/* What cannot or must not be replaced is refused before it costs anything:
** a rename would put a plain file in the place of /dev/null. */
static int check_target(const char *path, int *mode_p) {
  struct stat s;

  if (stat(path, &s) != 0) return TFD_OK;
  if (S_ISREG(s.st_mode)) {
    *mode_p = (int)(s.st_mode & 0777);
    return TFD_OK;
  }
  return tfd__fail(TFD_FAILED_PRECONDITION, "%s: cannot write: it is %s", path,
                   S_ISDIR(s.st_mode) ? "a folder" : "no plain file");
}

int tfd__output_open(tfd__output *o, const char *path, uint64_t expected) {
  size_t room = strlen(path) + SUFFIX_BYTES;
  int rc;

  memset(o, 0, sizeof *o);
  o->file = -1;
  o->mode = -1;
  o->path = tfd__strdup(path);
  o->temp = tfd__alloc(room);
  if (o->path == NULL || o->temp == NULL) {
    rc = tfd__no_memory(room, "file name");
  } else {
    rc = check_target(path, &o->mode);
    if (rc == TFD_OK) rc = check_space(path, o->temp, expected);
    if (rc == TFD_OK) rc = open_temp(o, room);
  }
  if (rc != TFD_OK) tfd__output_close(o);
  return rc;
}

/* As write; a fault that was ordered may fail it or spoil the first byte. */
static ssize_t write_piece(int file, const char *p, size_t bytes) {
  int fault = TFD_FAIL(CKPT_WRITE);
  char spoilt = 0;

  if (is_ordered(fault)) return -1;
  if (fault != TFD_FLIP) return write(file, p, bytes);
  spoilt = (char)(p[0] ^ 1);
  return write(file, &spoilt, 1);
}

int tfd__output_write(tfd__output *o, const void *data, size_t bytes) {
  const char *p = data;

  while (bytes > 0) {
    size_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
    ssize_t n = write_piece(o->file, p, piece);

    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int code = errno;

      return tfd__fail(tfd__errno_status(code),
                       "%s: cannot write after byte %llu: %s", o->path,
                       (unsigned long long)o->bytes, strerror(code));
    }
    p += n;
    bytes -= (size_t)n;
    o->bytes += (uint64_t)n;
  }
  return TFD_OK;
}

/* Make what a folder lists durable. Some file systems cannot sync folders, and
** some folders may be written but not opened. */
static int sync_folder(const char *path, const char *folder) {
  int file;
  int code;

  file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0 && errno == EACCES) return TFD_OK;
  if (file < 0) return failed(path, "open its folder");
  code = is_ordered(TFD_FAIL(CKPT_SYNC_FOLDER)) || fsync(file) != 0 ? errno : 0;
  close(file);
  if (code == 0 || code == EINVAL || code == ENOTSUP) return TFD_OK;
  errno = code;
  return failed(path, "sync its folder");
}

int tfd__sync_name(const char *path) {
  char *folder = tfd__alloc(strlen(path) + 2);
  int rc;

  if (folder == NULL) return tfd__no_memory(strlen(path), "folder name");
  folder_of(path, folder);
  rc = sync_folder(path, folder);
  tfd__free(folder);
  return rc;
}

int tfd__output_commit(tfd__output *o) {
  int file = o->file;

  if (is_ordered(TFD_FAIL(CKPT_AFTER_DATA))) return failed(o->path, "write");
  if (o->mode >= 0 && fchmod(file, (mode_t)o->mode) != 0) {
    return failed(o->path, "keep its permissions");
  }
  if (is_ordered(TFD_FAIL(CKPT_SYNC)) || fsync(file) != 0) {
    return failed(o->path, "sync");
  }
  if (is_ordered(TFD_FAIL(CKPT_RENAME)) || rename(o->temp, o->path) != 0) {
    return failed(o->path, "put the new file in place");
  }
  o->file = -1;
  close(file); /* all is on the disk: it has nothing left to say */
  if (is_ordered(TFD_FAIL(CKPT_AFTER_RENAME))) return failed(o->path, "sync");
  folder_of(o->path, o->temp);
  return sync_folder(o->path, o->temp);
}

void tfd__output_close(tfd__output *o) {
  if (o->file >= 0) {
    close(o->file);
    unlink(o->temp);
  }
  o->file = -1;
  tfd__free(o->path);
  tfd__free(o->temp);
  o->path = NULL;
  o->temp = NULL;
}

/* --- what ended processes left -------------------------------------------- */

/* Does a name end in MARK, digits, '-', digits? */
static bool is_temporary(const char *name) {
  const char *p = strstr(name, MARK);
  int part;

  if (p == NULL || p == name) return false;
  p += strlen(MARK);
  for (part = 0; part < 2; part++) {
    if (!isdigit((unsigned char)*p)) return false;
    while (isdigit((unsigned char)*p)) p++;
    if (part == 0 && *p++ != '-') return false;
  }
  return *p == '\0';
}

static void remove_unlocked(int folder, const char *name) {
  int file =
      openat(folder, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat s;

  if (file < 0) return;
  if (fstat(file, &s) == 0 && S_ISREG(s.st_mode) &&
      flock(file, LOCK_EX | LOCK_NB) == 0) {
    unlinkat(folder, name, 0);
  }
  close(file);
}

void tfd__output_sweep(const char *path) {
  char *name = tfd__alloc(strlen(path) + 2);
  const struct dirent *entry;
  DIR *folder;

  if (name == NULL) return;
  folder_of(path, name);
  folder = opendir(name);
  tfd__free(name);
  if (folder == NULL) return;
  while ((entry = readdir(folder)) != NULL) {
    if (is_temporary(entry->d_name)) {
      remove_unlocked(dirfd(folder), entry->d_name);
    }
  }
  closedir(folder);
}

/* --- bytes ------------------------------------------------------------------
 */

int tfd__bytes_reserve(tfd__bytes *b, size_t more) {
  size_t size = b->capacity == 0 ? 256 : b->capacity;
  unsigned char *p;

  if (more <= b->capacity - b->n) return TFD_OK;
  if (more > SIZE_MAX / 4) return tfd__no_memory(more, "bytes");
  while (size - b->n < more) size *= 2;
  p = tfd__realloc(b->data, size);
  if (p == NULL) return tfd__no_memory(size, "bytes");
  b->data = p;
  b->capacity = size;
  return TFD_OK;
}

int tfd__bytes_add(tfd__bytes *b, const void *data, size_t n) {
  TFD_TRY(tfd__bytes_reserve(b, n));
  if (n > 0) memcpy(b->data + b->n, data, n);
  b->n += n;
  return TFD_OK;
}

/* --- tensors as host bytes --------------------------------------------------
 */

int tfd__host_copy_begin(tfd__host_copy *c, tfd_tensor *t) {
  tfd_tensor *dense = NULL;
  void *stage = NULL;
  size_t bytes = tfd__view_bytes(&t->view);
  int rc;

  TFD_TRY(tfd__tensor_dense(t, &dense));
  rc = tfd__tensor_sync(dense);
  if (rc == TFD_OK && !dense->device->backend->host_visible) {
    stage = tfd__alloc(bytes);
    rc = stage == NULL ? tfd__no_memory(bytes, "copy of a tensor")
                       : tfd_tensor_read(dense, stage, bytes);
  }
  if (rc != TFD_OK) {
    tfd__free(stage);
    tfd__release(dense);
    return rc;
  }
  c->dense = dense;
  c->stage = stage;
  c->data = stage != NULL ? stage : dense->view.data;
  c->bytes = bytes;
  return TFD_OK;
}

void tfd__host_copy_end(tfd__host_copy *c) {
  tfd__free(c->stage);
  tfd__release(c->dense);
  memset(c, 0, sizeof *c);
}

static int fill(tfd_tensor *t, int (*read)(void *arg, void *data, size_t bytes),
                void *arg) {
  size_t bytes = tfd__view_bytes(&t->view);
  void *stage;
  int rc;

  if (t->device->backend->host_visible && tfd__buffer_host_idle(t->buffer)) {
    return read(arg, t->view.data, bytes);
  }
  stage = tfd__alloc(bytes);
  if (stage == NULL) return tfd__no_memory(bytes, "tensor from file");
  rc = read(arg, stage, bytes);
  if (rc == TFD_OK && bytes > 0) {
    rc = tfd__host_write(t->buffer, 0, stage, bytes);
  }
  tfd__free(stage);
  return rc;
}

int tfd__tensor_filled(int dtype, const int64_t *dims, int rank,
                       int (*read)(void *arg, void *data, size_t bytes),
                       void *arg, tfd_tensor **tensor_p) {
  tfd_device *device = NULL;
  tfd_tensor *t = NULL;
  int rc;

  TFD_TRY(tfd_device_current(&device));
  TFD_TRY(tfd__tensor_new(device, dtype, dims, rank, &t));
  rc = fill(t, read, arg);
  if (rc != TFD_OK) {
    tfd__release(t);
    return rc;
  }
  *tensor_p = t;
  return TFD_OK;
}
