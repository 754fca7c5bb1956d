/* Machine code on disk. A cubin is a program: folders and files of other users
** are not read. Written under another name first, so that nobody sees half of
** one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/fuse.h"

enum { PATH = 1024 };
static const int64_t most_bytes = (int64_t)64 << 20;

typedef struct head {
  char magic[8];
  uint64_t key_bytes;
  uint64_t bytes;
  uint64_t sum; /* of key and cubin */
} head;

static const char magic[8] = "tfdcubin";

/* --- the folder ----------------------------------------------------------- */

static bool make_folders(char *path) {
  char *at = path;

  while ((at = strchr(at + 1, '/')) != NULL) {
    *at = '\0';
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
    *at = '/';
  }
  return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Ours, and writable by nobody else. */
static bool is_own(const struct stat *s) {
  return s->st_uid == geteuid() && (s->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static bool find_folder(char *path, bool make) {
  const char *own = getenv("TFDIST_CUBIN_CACHE");
  const char *cache = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME");
  struct stat s;
  int n;

  if (own != NULL && strcmp(own, "0") == 0) return false;
  if (own != NULL && own[0] != '\0') {
    n = snprintf(path, PATH, "%s", own);
  } else if (cache != NULL && cache[0] == '/') {
    n = snprintf(path, PATH, "%s/tfdist/cubin", cache);
  } else if (home != NULL && home[0] == '/') {
    n = snprintf(path, PATH, "%s/.cache/tfdist/cubin", home);
  } else {
    return false;
  }
  if (n < 0 || n >= PATH - 64) return false;
  if (make && !make_folders(path)) return false;
  return stat(path, &s) == 0 && S_ISDIR(s.st_mode) && is_own(&s);
}

static bool find_file(const char *key, char *path, bool make) {
  size_t n = strlen(key);
  size_t at;

  if (!find_folder(path, make)) return false;
  at = strlen(path);
  (void)snprintf(path + at, PATH - at, "/%016llx.cubin",
                 (unsigned long long)tfd__cuda_hash(key, n));
  return true;
}

/* --- reading -------------------------------------------------------------- */

static uint64_t sum_of(const char *key, const void *data, size_t bytes) {
  return 31 * tfd__cuda_hash(key, strlen(key)) + tfd__cuda_hash(data, bytes);
}

static bool read_parts(FILE *f, const char *key, size_t size,
                       tfd__cubin *cubin_p) {
  size_t key_bytes = strlen(key);
  char *kept = NULL;
  head h;
  bool good;

  if (fread(&h, sizeof h, 1, f) != 1 ||
      memcmp(h.magic, magic, sizeof magic) != 0 || h.key_bytes != key_bytes ||
      h.bytes == 0 || h.bytes > size ||
      sizeof h + key_bytes + h.bytes != size) {
    return false;
  }
  kept = malloc(key_bytes + 1);
  cubin_p->data = malloc(h.bytes);
  cubin_p->bytes = h.bytes;
  good = kept != NULL && cubin_p->data != NULL &&
         fread(kept, 1, key_bytes, f) == key_bytes &&
         memcmp(kept, key, key_bytes) == 0 &&
         fread(cubin_p->data, 1, h.bytes, f) == h.bytes &&
         sum_of(key, cubin_p->data, h.bytes) == h.sum;
  free(kept);
  if (!good) {
    free(cubin_p->data);
    memset(cubin_p, 0, sizeof *cubin_p);
  }
  return good;
}

bool tfd__cuda_cubin_find(const char *key, tfd__cubin *cubin_p) {
  char path[PATH];
  struct stat s;
  FILE *f = NULL;
  bool found;

  if (!find_file(key, path, false)) return false;
  f = fopen(path, "rbe");
  if (f == NULL) return false;
  found = fstat(fileno(f), &s) == 0 && is_own(&s) && s.st_size > 0 &&
          read_parts(f, key, (size_t)s.st_size, cubin_p);
  (void)fclose(f);
  return found;
}

/* --- writing -------------------------------------------------------------- */

/* The folder's bytes, and its oldest file. */
static int64_t look_around(const char *folder, char *oldest) {
  DIR *d = opendir(folder);
  const struct dirent *e = NULL;
  struct timespec first = {0};
  int64_t bytes = 0;

  oldest[0] = '\0';
  while (d != NULL && (e = readdir(d)) != NULL) {
    char path[PATH];
    struct stat s;

    if (e->d_name[0] == '.' ||
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= PATH ||
        stat(path, &s) != 0 || !S_ISREG(s.st_mode)) {
      continue;
    }
    bytes += s.st_size;
    if (oldest[0] != '\0' && (s.st_mtim.tv_sec > first.tv_sec ||
                              (s.st_mtim.tv_sec == first.tv_sec &&
                               s.st_mtim.tv_nsec >= first.tv_nsec))) {
      continue;
    }
    first = s.st_mtim;
    (void)snprintf(oldest, PATH, "%s", path);
  }
  if (d != NULL) (void)closedir(d);
  return bytes;
}

static int64_t limit(void) {
  const char *text = getenv("TFDIST_CUBIN_CACHE_BYTES");
  long long n = text == NULL ? 0 : strtoll(text, NULL, 10);

  return n > 0 ? n : most_bytes;
}

static void make_room(const char *folder, int64_t more) {
  char oldest[PATH];

  while (look_around(folder, oldest) + more > limit() && oldest[0] != '\0') {
    if (unlink(oldest) != 0) return;
  }
}

static bool write_parts(int file, const char *key, const tfd__cubin *cubin) {
  size_t key_bytes = strlen(key);
  FILE *f = fdopen(file, "wb");
  head h = {.key_bytes = key_bytes,
            .bytes = cubin->bytes,
            .sum = sum_of(key, cubin->data, cubin->bytes)};
  bool good;

  if (f == NULL) {
    (void)close(file);
    return false;
  }
  memcpy(h.magic, magic, sizeof magic);
  good = fwrite(&h, sizeof h, 1, f) == 1 &&
         fwrite(key, 1, key_bytes, f) == key_bytes &&
         fwrite(cubin->data, 1, cubin->bytes, f) == cubin->bytes;
  return fclose(f) == 0 && good;
}

void tfd__cuda_cubin_keep(const char *key, const tfd__cubin *cubin) {
  char path[PATH];
  char folder[PATH];
  char draft[PATH + 48];
  int file;

  if (!find_folder(folder, true) || !find_file(key, path, true)) return;
  make_room(folder, (int64_t)(sizeof(head) + strlen(key) + cubin->bytes));
  (void)snprintf(draft, sizeof draft, "%s.%ld.%lld", path, (long)getpid(),
                 (long long)tfd__now_ns());
  file = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (!write_parts(file, key, cubin) || rename(draft, path) != 0) {
    (void)unlink(draft);
  }
}
