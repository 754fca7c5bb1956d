/* Preloaded into a process that saves: counts what it does to the files of
** FAULT_FOLDER, and at step FAULT_STEP kills the process (a write: after half
** of it) or, with FAULT_ERRNO, lets the call fail. At the end it says
** "steps N" to stderr. */
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

static int note(int file) {
  if (file >= 0 && file < FILES) ours[file] = true;
  return file;
}

int open(const char *path, int flags, ...) {
  va_list list;
  mode_t mode;

  va_start(list, flags);
  mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  if (!is_ours(path) || (flags & (O_CREAT | O_DIRECTORY)) == 0) {
    return REAL(open)(path, flags, mode);
  }
  return fails() ? -1 : note(REAL(open)(path, flags, mode));
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
  return REAL(write)(file, data, n);
}

int fsync(int file) {
  bool counts = file >= 0 && file < FILES && ours[file];

  return counts && fails() ? -1 : REAL(fsync)(file);
}

int close(int file) {
  if (file >= 0 && file < FILES && ours[file]) {
    ours[file] = false;
    if (is_step() && setting("FAULT_ERRNO") == 0) die();
  }
  return REAL(close)(file);
}

int rename(const char *from, const char *to) {
  return is_ours(to) && fails() ? -1 : REAL(rename)(from, to);
}

int mkdir(const char *path, mode_t mode) {
  return is_ours(path) && fails() ? -1 : REAL(mkdir)(path, mode);
}

int unlink(const char *path) {
  return is_ours(path) && fails() ? -1 : REAL(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags) {
  return is_step() && setting("FAULT_ERRNO") == 0
             ? (die(), -1)
             : REAL(unlinkat)(folder, path, flags);
}

int remove(const char *path) {
  return is_ours(path) && fails() ? -1 : REAL(remove)(path);
}
