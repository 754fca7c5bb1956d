/* Preloaded into a process that saves: counts what it does to the files of
** FAULT_FOLDER, and at step FAULT_STEP kills the process (a write: after half
** of it) or, with FAULT_ERRNO, lets the call fail. At the end it says
** "steps N" to stderr. With FAULT_LOG, a file, it writes there what was done:
** "create PATH", "write PATH N" and the N bytes, "fsync PATH", "mkdir PATH",
** "rename FROM TO", "unlink PATH", each with a line end behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 1024
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool ours[FILES];
static char names[FILES][256];
static int steps;

static long setting(const char *name) {
  const char *text = getenv(name);

  return text == NULL ? 0 : atol(text);
}

static bool is_ours(const char *path) {
  const char *folder = getenv("FAULT_FOLDER");

  return folder != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

/* Is this the step? Without FAULT_ERRNO the caller ends the process. */
static bool is_step(void) {
  return ++steps == setting("FAULT_STEP");
}

__attribute__((destructor)) static void say(void) {
  dprintf(2, "steps %d\n", steps);
}

static void die(void) {
  raise(SIGKILL);
  _exit(1);
}

static bool fails(void) {
  if (!is_step()) return false;
  if (setting("FAULT_ERRNO") == 0) die();
  errno = (int)setting("FAULT_ERRNO");
  return true;
}

static int note(int file, const char *path) {
  if (file >= 0 && file < FILES) {
    ours[file] = true;
    snprintf(names[file], sizeof names[file], "%s", path);
  }
  return file;
}

static int open_log(void) {
  const char *path = getenv("FAULT_LOG");

  if (path == NULL) return -1;
  return REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
}

/* Passes on what the call returned. */
static int log_call(int result, const char *what, const char *from,
                    const char *to) {
  int code = errno;
  int file = result == 0 ? open_log() : -1;

  if (file < 0) return result;
  dprintf(file, "%s %s %s\n", what, from, to);
  REAL(close)(file);
  errno = code;
  return result;
}

static ssize_t log_write(ssize_t n, int written, const void *data) {
  int code = errno;
  int file = n >= 0 ? open_log() : -1;

  if (file < 0) return n;
  dprintf(file, "write %s %zd\n", names[written], n);
  (void)!REAL(write)(file, data, (size_t)n);
  dprintf(file, "\n");
  REAL(close)(file);
  errno = code;
  return n;
}

int open(const char *path, int flags, ...) {
  va_list list;
  mode_t mode;
  int file;

  va_start(list, flags);
  mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  if (!is_ours(path) || (flags & (O_CREAT | O_DIRECTORY)) == 0) {
    return REAL(open)(path, flags, mode);
  }
  if (fails()) return -1;
  file = note(REAL(open)(path, flags, mode), path);
  if ((flags & O_CREAT) != 0) log_call(file < 0, "create", path, "");
  return file;
}

ssize_t write(int file, const void *data, size_t n) {
  if (file < 0 || file >= FILES || !ours[file]) {
    return REAL(write)(file, data, n);
  }
  if (is_step()) {
    (void)!REAL(write)(file, data, n / 2);
    if (setting("FAULT_ERRNO") == 0) die();
    errno = (int)setting("FAULT_ERRNO");
    return -1;
  }
  return log_write(REAL(write)(file, data, n), file, data);
}

int fsync(int file) {
  if (file < 0 || file >= FILES || !ours[file]) return REAL(fsync)(file);
  return fails() ? -1 : log_call(REAL(fsync)(file), "fsync", names[file], "");
}

int close(int file) {
  if (file >= 0 && file < FILES && ours[file]) {
    ours[file] = false;
    if (is_step() && setting("FAULT_ERRNO") == 0) die();
  }
  return REAL(close)(file);
}

int rename(const char *from, const char *to) {
  if (!is_ours(to)) return REAL(rename)(from, to);
  return fails() ? -1 : log_call(REAL(rename)(from, to), "rename", from, to);
}

int mkdir(const char *path, mode_t mode) {
  if (!is_ours(path)) return REAL(mkdir)(path, mode);
  return fails() ? -1 : log_call(REAL(mkdir)(path, mode), "mkdir", path, "");
}

int unlink(const char *path) {
  if (!is_ours(path)) return REAL(unlink)(path);
  return fails() ? -1 : log_call(REAL(unlink)(path), "unlink", path, "");
}

int unlinkat(int folder, const char *path, int flags) {
  return is_step() && setting("FAULT_ERRNO") == 0
             ? (die(), -1)
             : REAL(unlinkat)(folder, path, flags);
}

int remove(const char *path) {
  if (!is_ours(path)) return REAL(remove)(path);
  return fails() ? -1 : log_call(REAL(remove)(path), "unlink", path, "");
}
