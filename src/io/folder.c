/* Whole files and folders by name. */
#define _GNU_SOURCE
#include "io/io.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int tfd_file_write(const char *path, const void *data, size_t data_bytes) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_BYTES(data, data_bytes);

  tfd__output output;
  int rc;

  TFD_TRY(tfd__output_open(&output, path, data_bytes));
  rc = tfd__output_write(&output, data, data_bytes);
  if (rc == TFD_OK) rc = tfd__output_commit(&output);
  tfd__output_close(&output);
  return rc;
}

int tfd_file_stat(const char *path, bool *is_file_p, bool *is_folder_p,
                  int64_t *bytes_p, int64_t *modified_p) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_POINTER(is_file_p);
  TFD_GIVEN_POINTER(is_folder_p);
  TFD_GIVEN_POINTER(bytes_p);
  TFD_GIVEN_POINTER(modified_p);

  struct stat s;

  if (stat(path, &s) != 0) {
    *is_file_p = false;
    *is_folder_p = false;
    *bytes_p = 0;
    *modified_p = 0;
    return TFD_OK;
  }
  *is_file_p = !S_ISDIR(s.st_mode);
  *is_folder_p = S_ISDIR(s.st_mode);
  *bytes_p = (int64_t)s.st_size;
  *modified_p = s.st_mtim.tv_sec * INT64_C(1000000);
  *modified_p += s.st_mtim.tv_nsec / 1000;
  return TFD_OK;
}

/* A file that is synced in a new folder is lost when the folder's name is. */
static int make_one(const char *path) {
  int code;

  if (mkdir(path, 0777) == 0) return tfd__sync_name(path);
  code = errno;
  if (code == EEXIST || code == EISDIR) {
    struct stat s;

    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) return TFD_OK;
    return tfd__fail(TFD_FAILED_PRECONDITION, "%s: is no folder", path);
  }
  return tfd__fail(tfd__errno_status(code), "%s: cannot make the folder: %s",
                   path, strerror(code));
}

int tfd_folder_make(const char *path) {
  TFD_GIVEN_POINTER(path);

  char *part = tfd__strdup(path);
  char *p;
  int rc = TFD_OK;

  if (part == NULL) return tfd__no_memory(strlen(path), "folder name");
  for (p = part; rc == TFD_OK && *p != '\0'; p++) {
    if (*p != '/' || p == part) continue;
    *p = '\0';
    rc = make_one(part);
    *p = '/';
  }
  if (rc == TFD_OK && *part != '\0') rc = make_one(part);
  tfd__free(part);
  return rc;
}

static int cannot_list(const char *path) {
  int code = errno;

  return tfd__fail(tfd__errno_status(code), "%s: cannot list the folder: %s",
                   path, strerror(code));
}

static int list_names(DIR *folder, const char *path, tfd__bytes *names) {
  const struct dirent *entry;

  while ((errno = 0, entry = readdir(folder)) != NULL) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
      continue;
    }
    TFD_TRY(tfd__bytes_add(names, entry->d_name, strlen(entry->d_name) + 1));
  }
  return errno == 0 ? TFD_OK : cannot_list(path);
}

int tfd_folder_list(const char *path, const void **names_p,
                    size_t *names_bytes_p) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_POINTER(names_p);
  TFD_GIVEN_POINTER(names_bytes_p);

  /* Stays until the next call: the caller gets a borrowed text. */
  static _Thread_local tfd__bytes names;
  DIR *folder = opendir(path);
  int rc;

  if (folder == NULL) return cannot_list(path);
  names.n = 0;
  rc = tfd__bytes_reserve(&names, 1);
  if (rc == TFD_OK) rc = list_names(folder, path, &names);
  closedir(folder);
  if (rc != TFD_OK) return rc;
  *names_p = names.data;
  *names_bytes_p = names.n;
  return TFD_OK;
}
