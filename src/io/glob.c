/* Paths that match a pattern, by the system's own calls: names may hold any
** byte, and what keeps a folder from being read is an error, never a shorter
** list. */
#define _GNU_SOURCE
#include "io/io.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

/* Part of a path up to a slash, with wildcards or already without escapes. */
typedef struct part {
  const char *text; /* borrowed */
  bool wild;
  bool last;
} part;

/* Is there nothing, or nothing for us? Everything else is an error. */
static bool is_absent(int code) {
  return code == ENOENT || code == ENOTDIR || code == EACCES || code == ELOOP ||
         code == ENAMETOOLONG;
}

static int failed(const char *path, int code) {
  return tfd__fail(tfd__errno_status(code), "%s: cannot look for files: %s",
                   path, strerror(code));
}

/* Add `folder`, `name` and, before a further part, a slash. */
static int add_path(tfd__bytes *paths, const char *folder, const char *name,
                    bool last) {
  TFD_TRY(tfd__bytes_add(paths, folder, strlen(folder)));
  TFD_TRY(tfd__bytes_add(paths, name, strlen(name)));
  return tfd__bytes_add(paths, last ? "" : "/", last ? 1 : 2);
}

/* A name without wildcards: the path must lead to something. */
static int add_literal(const char *folder, const part *p, tfd__bytes *paths) {
  size_t before = paths->n;
  struct stat s;

  TFD_TRY(add_path(paths, folder, p->text, p->last));
  if (stat((const char *)paths->data + before, &s) == 0) return TFD_OK;
  if (!is_absent(errno)) {
    return failed((const char *)paths->data + before, errno);
  }
  paths->n = before;
  return TFD_OK;
}

static int add_entries(DIR *open, const char *folder, const part *p,
                       tfd__bytes *paths) {
  const struct dirent *entry;

  while ((errno = 0, entry = readdir(open)) != NULL) {
    const char *name = entry->d_name;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        fnmatch(p->text, name, FNM_PERIOD) != 0) {
      continue;
    }
    TFD_TRY(add_path(paths, folder, name, p->last));
  }
  return errno == 0 || is_absent(errno) ? TFD_OK : failed(folder, errno);
}

static int add_matching(const char *folder, const part *p, tfd__bytes *paths) {
  const char *path = *folder == '\0' ? "." : folder;
  DIR *open = opendir(path);
  int rc;

  if (open == NULL) return is_absent(errno) ? TFD_OK : failed(path, errno);
  rc = add_entries(open, folder, p, paths);
  closedir(open);
  return rc;
}

/* From the paths so far to those one part longer. */
static int expand(tfd__bytes *from, const part *p, tfd__bytes *to) {
  const char *path = (const char *)from->data;
  const char *end = path + from->n;

  to->n = 0;
  for (; path < end; path += strlen(path) + 1) {
    TFD_TRY(p->wild ? add_matching(path, p, to) : add_literal(path, p, to));
  }
  return TFD_OK;
}

/* Cut the next part off `text`, where wildcards are told from escaped ones.
** Returns where the text goes on, NULL at its end. */
static char *cut_part(char *text, part *p) {
  char *slash = strchr(text, '/');
  char *in = text;
  char *out = text;

  p->text = text;
  p->last = slash == NULL;
  p->wild = false;
  if (slash != NULL) *slash = '\0';
  for (; *in != '\0' && !p->wild; in++) {
    if (*in == '\\' && in[1] != '\0') {
      in++;
    } else {
      p->wild = strchr("*?[", *in) != NULL;
    }
  }
  for (in = text; !p->wild && *in != '\0'; in++) {
    if (*in == '\\' && in[1] != '\0') in++;
    *out++ = *in;
  }
  if (!p->wild) *out = '\0';
  return slash == NULL ? NULL : slash + 1;
}

static int match(char *rest, tfd__bytes *found) {
  tfd__bytes before = {NULL, 0, 0};
  int rc = tfd__bytes_add(found, *rest == '/' ? "/" : "", *rest == '/' ? 2 : 1);

  if (*rest == '/') rest++;
  while (rc == TFD_OK && rest != NULL && found->n > 0) {
    tfd__bytes swap = before;
    part p;

    before = *found;
    *found = swap;
    rest = cut_part(rest, &p);
    rc = expand(&before, &p, found);
  }
  tfd__free(before.data);
  return rc;
}

int tfd_files_match(const char *pattern, const void **paths_p,
                    size_t *paths_bytes_p) {
  TFD_GIVEN_POINTER(pattern);
  TFD_GIVEN_POINTER(paths_p);
  TFD_GIVEN_POINTER(paths_bytes_p);

  /* Stays until the next call: the caller gets a borrowed text. */
  static _Thread_local tfd__bytes found;
  char *rest = tfd__strdup(pattern);
  int rc;

  if (rest == NULL) return tfd__no_memory(strlen(pattern), "pattern");
  found.n = 0;
  rc = match(rest, &found);
  tfd__free(rest);
  if (rc != TFD_OK) return rc;
  *paths_p = found.data;
  *paths_bytes_p = found.n;
  return TFD_OK;
}
