/* Who listens on a port of this machine, from /proc: its socket's number stands
** in a table, and the process's descriptors name the socket. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/tcp/tcp.h"

enum { LISTENS = 0x0a, PATH_BYTES = 300 };

/* Number of the socket that listens there, 0 = none in this table. */
static unsigned long find_socket(const char *table, unsigned port) {
  FILE *f = fopen(table, "re");
  unsigned long found = 0;
  char line[512];

  while (f != NULL && found == 0 && fgets(line, sizeof line, f) != NULL) {
    unsigned local = 0;
    unsigned state = 0;
    unsigned long inode = 0;

    if (sscanf(line,
               " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s "
               "%*d %*d %lu",
               &local, &state, &inode) == 3 &&
        local == port && state == LISTENS) {
      found = inode;
    }
  }
  if (f != NULL) (void)fclose(f);
  return found;
}

/* Has the process of this folder a descriptor of the socket? */
static bool has_socket(const char *pid, unsigned long inode) {
  char path[PATH_BYTES];
  char wanted[64];
  char got[64];
  const struct dirent *entry = NULL;
  bool found = false;
  DIR *folder = NULL;

  (void)snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
  (void)snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
  folder = opendir(path);
  while (folder != NULL && !found && (entry = readdir(folder)) != NULL) {
    ssize_t n = 0;

    (void)snprintf(path, sizeof path, "/proc/%.20s/fd/%.20s", pid,
                   entry->d_name);
    n = readlink(path, got, sizeof got - 1);
    if (n <= 0) continue;
    got[n] = '\0';
    found = strcmp(got, wanted) == 0;
  }
  if (folder != NULL) (void)closedir(folder);
  return found;
}

static void name_process(const char *pid, char *text, size_t bytes) {
  char path[PATH_BYTES];
  char name[32] = "";
  FILE *f = NULL;

  (void)snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
  f = fopen(path, "re");
  if (f != NULL && fgets(name, sizeof name, f) != NULL) {
    name[strcspn(name, "\n")] = '\0';
  }
  if (f != NULL) (void)fclose(f);
  (void)snprintf(text, bytes, " (pid %.20s '%s')", pid, name);
}

void tfd__port_owner(unsigned port, char *text, size_t bytes) {
  unsigned long inode = find_socket("/proc/net/tcp", port);
  const struct dirent *entry = NULL;
  DIR *folder = NULL;

  text[0] = '\0';
  if (inode == 0) inode = find_socket("/proc/net/tcp6", port);
  if (inode != 0) folder = opendir("/proc");
  while (folder != NULL && text[0] == '\0' &&
         (entry = readdir(folder)) != NULL) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (has_socket(entry->d_name, inode)) {
      name_process(entry->d_name, text, bytes);
    }
  }
  if (folder != NULL) (void)closedir(folder);
}
