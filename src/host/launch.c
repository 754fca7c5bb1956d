/* All tasks of `tfdist run`: the loop that hears of what they write, of their
** ends and of signals, and never waits for a reader of our own output. */
#define _GNU_SOURCE /* memfd_create */
#include "host/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "host/host.h"

/* Of a task's output at once. */
enum { PART_BYTES = 1 << 16 };
/* More than this waiting for the screen: tasks are read no further. */
enum { MOST_WAITING = 1 << 20 };

/* What waits to be written to a descriptor. */
typedef struct screen {
  char *text; /* malloc'ed */
  size_t from;
  size_t to;
  size_t size;
  int broken; /* errno of a write that failed; EPIPE = nobody reads it */
  bool told;
} screen;

static struct {
  bool is_open;
  sigset_t mask; /* as it was */
  struct sigaction broken;
  int signals;      /* signalfd */
  unsigned pending; /* bit n: signal n has come, but SIGCHLD */
  bool ended;       /* SIGCHLD has come */
  int n;
  int next; /* task to be looked at first */
  tfd__task tasks[TFD_MAX_TASKS];
  bool told_closed[TFD_MAX_TASKS];
  screen screens[2];
} all;

static const int watched[] = {SIGINT, SIGTERM, SIGHUP};
enum { WATCHED = sizeof watched / sizeof *watched };

static int failure(lua_State *L, const char *what, int error) {
  lua_pushnil(L);
  lua_pushfstring(L, "%s: %s", what, strerror(error));
  return 2;
}

/* --- begin and end -------------------------------------------------------- */

/* Signals that were ignored before stay ignored, for the tasks too. */
static int watch_signals(void) {
  struct sigaction plain = {.sa_handler = SIG_DFL};
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  struct sigaction old;
  sigset_t set;
  int i = 0;

  sigemptyset(&set);
  for (i = 0; i < WATCHED; i++) {
    if (sigaction(watched[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
      sigaddset(&set, watched[i]);
  }
  (void)sigaction(SIGCHLD, &plain, NULL);
  (void)sigaction(SIGPIPE, &ignore, &all.broken);
  sigaddset(&set, SIGCHLD);
  all.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (all.signals < 0) return errno;
  sigaddset(&set, SIGTTOU); /* giving the terminal away and taking it back */
  return sigprocmask(SIG_BLOCK, &set, &all.mask) == 0 ? 0 : errno;
}

/* open() -> true | nil, message */
static int launch_open(lua_State *L) {
  int error = 0;

  if (all.is_open) return luaL_error(L, "launch.open: it is open");
  error = watch_signals();
  if (error == 0) error = tfd__guard_start();
  if (error != 0) return failure(L, "the launcher cannot begin", error);
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
  all.is_open = true;
  lua_pushboolean(L, 1);
  return 1;
}

/* close(): nothing of the tasks is left afterwards. Signals stay blocked: the
** process is about to end. */
static int launch_close(lua_State *L) {
  int i = 0;

  (void)L;
  for (i = 0; i < all.n; i++) tfd__task_signal(&all.tasks[i], SIGKILL);
  tfd__reap_all();
  if (isatty(STDIN_FILENO)) (void)tcsetpgrp(STDIN_FILENO, getpgrp());
  return 0;
}

/* --- tasks ---------------------------------------------------------------- */

/* The list at index i as an array that a userdata on top of the stack holds. */
static char **to_words(lua_State *L, int i) {
  size_t n = lua_rawlen(L, i);
  char **words = NULL;
  size_t k = 0;

  luaL_checktype(L, i, LUA_TTABLE);
  words = lua_newuserdata(L, (n + 1) * sizeof *words);
  for (k = 0; k < n; k++) {
    lua_rawgeti(L, i, (int)k + 1);
    /* The list keeps the text alive, execvpe changes none. */
    words[k] = (char *)(uintptr_t)luaL_checkstring(L, -1);
    lua_pop(L, 1);
  }
  words[n] = NULL;
  return words;
}

/* start(argv, environment, how) -> id, pid | nil, message
** how: nil, "input" (send writes to it) or "terminal" (it has this one). */
static int launch_start(lua_State *L) {
  const char *how = luaL_optstring(L, 3, "");
  tfd__task_config c = {.mask = &all.mask,
                        .broken = &all.broken,
                        .has_input = strcmp(how, "input") == 0,
                        .has_terminal = strcmp(how, "terminal") == 0};
  int error = 0;

  if (!all.is_open) return luaL_error(L, "launch.start: it is not open");
  c.argv = to_words(L, 1);
  c.env = to_words(L, 2);
  if (all.n == TFD_MAX_TASKS) return failure(L, c.argv[0], EAGAIN);
  error = tfd__task_start(&c, &all.tasks[all.n]);
  if (error != 0) return failure(L, c.argv[0], error);
  all.told_closed[all.n] = false;
  lua_pushinteger(L, ++all.n);
  lua_pushinteger(L, (lua_Integer)all.tasks[all.n - 1].pid);
  return 2;
}

static tfd__task *check_task(lua_State *L) {
  lua_Integer id = luaL_checkinteger(L, 1);

  if (id < 1 || id > all.n) luaL_error(L, "launch: there is no such task");
  return &all.tasks[id - 1];
}

/* signal(id, number): to the task and all of its group. */
static int launch_signal(lua_State *L) {
  tfd__task_signal(check_task(L), (int)luaL_checkinteger(L, 2));
  return 0;
}

/* send(id, text): to its stdin, as much as fits. */
static int launch_send(lua_State *L) {
  const tfd__task *t = check_task(L);
  size_t n = 0;
  const char *text = luaL_checklstring(L, 2, &n);

  if (t->in >= 0) (void)!write(t->in, text, n);
  return 0;
}

/* forget(): the next task is the first again, and nothing is left of those that
** were, which have ended. */
static int launch_forget(lua_State *L) {
  int i = 0;
  int s = 0;

  (void)L;
  tfd__reap_left();
  for (i = 0; i < all.n; i++) {
    for (s = 0; s < 2; s++) {
      if (all.tasks[i].out[s] >= 0) (void)close(all.tasks[i].out[s]);
    }
  }
  all.n = 0;
  all.next = 0;
  return 0;
}

/* --- screen --------------------------------------------------------------- */

/* As much as its reader takes without a wait. */
static void show(int fd) {
  screen *s = &all.screens[fd - 1];

  while (s->from < s->to && s->broken == 0) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    size_t n = s->to - s->from;
    ssize_t done = 0;

    if (poll(&p, 1, 0) != 1) break;
    /* A pipe that can be written takes this much at once. */
    done = write(fd, s->text + s->from, n < PIPE_BUF ? n : PIPE_BUF);
    if (done < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (done < 0) s->broken = errno;
    if (done > 0) s->from += (size_t)done;
  }
  if (s->from == s->to || s->broken != 0) s->from = s->to = 0;
}

static bool make_room(screen *s, size_t n) {
  size_t used = s->to - s->from;
  char *text = NULL;

  if (s->size - s->to >= n) return true;
  if (s->from > 0) memmove(s->text, s->text + s->from, used);
  s->from = 0;
  s->to = used;
  if (s->size - s->to >= n) return true;
  text = realloc(s->text, (used + n) * 2);
  if (text == NULL) return false;
  s->text = text;
  s->size = (used + n) * 2;
  return true;
}

static int check_screen(lua_State *L) {
  lua_Integer fd = luaL_checkinteger(L, 1);

  luaL_argcheck(L, fd == 1 || fd == 2, 1, "1 or 2");
  return (int)fd;
}

/* write(fd, text): to stdout or stderr, in order, some time. */
static int launch_write(lua_State *L) {
  int fd = check_screen(L);
  screen *s = &all.screens[fd - 1];
  size_t n = 0;
  const char *text = luaL_checklstring(L, 2, &n);

  if (s->broken != 0) return 0;
  if (!make_room(s, n)) return luaL_error(L, "not enough memory");
  memcpy(s->text + s->to, text, n);
  s->to += n;
  show(fd);
  return 0;
}

static bool is_full(void) {
  return all.screens[0].to - all.screens[0].from > MOST_WAITING ||
         all.screens[1].to - all.screens[1].from > MOST_WAITING;
}

/* flush(seconds): wait for the readers, that long. */
static int launch_flush(lua_State *L) {
  tfd__deadline until = tfd__deadline_in(luaL_checknumber(L, 1));
  int fd = 0;

  for (fd = 1; fd <= 2; fd++) {
    const screen *s = &all.screens[fd - 1];
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    while (s->from < s->to && tfd__now_ns() < until) {
      (void)poll(&p, 1, 20);
      show(fd);
    }
  }
  return 0;
}

/* --- events --------------------------------------------------------------- */

static void read_signals(void) {
  struct signalfd_siginfo info;

  while (read(all.signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD)
      all.ended = true;
    else if (info.ssi_signo < 32)
      all.pending |= 1U << info.ssi_signo;
  }
}

/* "signal", number */
static int signal_event(lua_State *L) {
  int i = 0;

  for (i = 0; i < WATCHED; i++) {
    if ((all.pending & 1U << watched[i]) == 0) continue;
    all.pending &= ~(1U << watched[i]);
    lua_pushliteral(L, "signal");
    lua_pushinteger(L, watched[i]);
    return 2;
  }
  return 0;
}

/* "exit", id, status as shells have it, signal or nil */
static int exit_event(lua_State *L) {
  int status = 0;
  int i = 0;

  if (!all.ended) return 0;
  for (i = 0; i < all.n; i++) {
    if (!tfd__task_reap(&all.tasks[i], &status)) continue;
    lua_pushliteral(L, "exit");
    lua_pushinteger(L, i + 1);
    if (WIFSIGNALED(status)) {
      lua_pushinteger(L, 128 + WTERMSIG(status));
      lua_pushinteger(L, WTERMSIG(status));
      return 4;
    }
    lua_pushinteger(L, WEXITSTATUS(status));
    return 3;
  }
  all.ended = false;
  return 0;
}

/* "output", id, 1 or 2, text */
static int output_event(lua_State *L, int i, int s) {
  static char part[PART_BYTES];
  tfd__task *t = &all.tasks[i];
  bool runs = t->pid > 0;
  size_t most = sizeof part;
  ssize_t n = 0;

  if (!runs && (size_t)t->left[s] < most) most = (size_t)t->left[s];
  n = read(t->out[s], part, most);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (n > 0 && !runs) t->left[s] -= (int)n;
  if (n <= 0 || (!runs && t->left[s] == 0)) {
    (void)close(t->out[s]);
    t->out[s] = -1;
  }
  if (n <= 0) return 0;
  all.next = i + 1;
  lua_pushliteral(L, "output");
  lua_pushinteger(L, i + 1);
  lua_pushinteger(L, s + 1);
  lua_pushlstring(L, part, (size_t)n);
  return 4;
}

/* "closed", id: it will write no more. */
static int closed_event(lua_State *L) {
  int i = 0;

  for (i = 0; i < all.n; i++) {
    const tfd__task *t = &all.tasks[i];

    if (all.told_closed[i] || t->pid > 0 || t->out[0] >= 0 || t->out[1] >= 0)
      continue;
    all.told_closed[i] = true;
    lua_pushliteral(L, "closed");
    lua_pushinteger(L, i + 1);
    return 2;
  }
  return 0;
}

/* "broken", 1 or 2: what is written there is lost; why, where that is not for
** want of a reader. */
static int broken_event(lua_State *L) {
  int i = 0;

  for (i = 0; i < 2; i++) {
    int error = all.screens[i].broken;

    if (error == 0 || all.screens[i].told) continue;
    all.screens[i].told = true;
    lua_pushliteral(L, "broken");
    lua_pushinteger(L, i + 1);
    if (error == EPIPE) return 2;
    lua_pushstring(L, strerror(error));
    return 3;
  }
  return 0;
}

/* Wait for anything; the descriptors of tasks stand at 3 + 2 * i + s. What is
** left of those that have ended is no more than a pipe holds, and read whatever
** waits for the screen. */
static void wait_for_any(struct pollfd *p, int milliseconds) {
  bool full = is_full();
  int fd = 0;
  int i = 0;
  int s = 0;

  p[0] = (struct pollfd){.fd = all.signals, .events = POLLIN};
  for (fd = 1; fd <= 2; fd++) {
    const screen *sc = &all.screens[fd - 1];

    p[fd] =
        (struct pollfd){.fd = sc->from < sc->to ? fd : -1, .events = POLLOUT};
  }
  for (i = 0; i < all.n; i++) {
    for (s = 0; s < 2; s++) {
      const tfd__task *t = &all.tasks[i];

      p[3 + 2 * i + s] = (struct pollfd){
          .fd = full && t->pid > 0 ? -1 : t->out[s], .events = POLLIN};
    }
  }
  (void)poll(p, (nfds_t)(3 + 2 * all.n), milliseconds);
  if (p[0].revents != 0) read_signals();
  for (fd = 1; fd <= 2; fd++) {
    if (p[fd].revents != 0) show(fd);
  }
}

static int any_output(lua_State *L, const struct pollfd *p) {
  int k = 0;

  for (k = 0; k < all.n; k++) {
    int i = (all.next + k) % all.n;
    int s = 0;

    for (s = 0; s < 2; s++) {
      int got = 0;

      if (p[3 + 2 * i + s].fd < 0 || p[3 + 2 * i + s].revents == 0) continue;
      got = output_event(L, i, s);
      if (got > 0) return got;
    }
  }
  return 0;
}

/* next(seconds) -> what has happened, or nothing when nothing has in that time.
** Ends come before output: their order is what counts. */
static int launch_next(lua_State *L) {
  static struct pollfd p[3 + 2 * TFD_MAX_TASKS];
  double seconds = luaL_checknumber(L, 1);
  tfd__deadline until = tfd__now_ns() + (int64_t)(seconds * 1e9);
  static int (*const events[])(lua_State *) = {signal_event, exit_event,
                                               closed_event, broken_event};
  size_t e = 0;
  int got = 0;

  for (;;) {
    int64_t left = until - tfd__now_ns();

    read_signals();
    for (e = 0; e < sizeof events / sizeof *events; e++) {
      got = events[e](L);
      if (got > 0) return got;
    }
    wait_for_any(p, left > 0 ? (int)(left / 1000000 + 1) : 0);
    got = any_output(L, p);
    if (got > 0) return got;
    if (left <= 0) return 0;
  }
}

/* --- what tasks are given ------------------------------------------------- */

/* reserve(port) -> descriptor, port | nil, message: a port of 127.0.0.1 (0 =
** any) that only who binds that very port with SO_REUSEADDR gets, as tasks do.
** A socket that does not listen hears of no connection. */
static int launch_reserve(lua_State *L) {
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)luaL_checkinteger(L, 1)),
                          .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t bytes = sizeof a;
  int on = 1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  char address[32];
  int error = 0;

  (void)snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(a.sin_port));
  if (fd < 0) return failure(L, address, errno);
  (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0 ||
      getsockname(fd, (struct sockaddr *)&a, &bytes) != 0) {
    error = errno;
    (void)close(fd);
    return failure(L, address, error);
  }
  lua_pushinteger(L, fd);
  lua_pushinteger(L, ntohs(a.sin_port));
  return 2;
}

/* secret() -> path, text | nil, message: a file in memory that tasks inherit
** and whose path they open; nothing of it is left on a disk. */
static int launch_secret(lua_State *L) {
  enum { BYTES = 32 };
  unsigned char random[BYTES];
  char text[2 * BYTES + 1];
  int fd = -1;
  int i = 0;

  if (getrandom(random, sizeof random, 0) != sizeof random)
    return failure(L, "secret", errno);
  for (i = 0; i < BYTES; i++) (void)sprintf(text + 2 * i, "%02x", random[i]);
  fd = memfd_create("tfdist-secret", 0);
  if (fd < 0 || fchmod(fd, 0600) != 0 ||
      write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1)
    return failure(L, "secret", errno);
  lua_pushfstring(L, "/proc/self/fd/%d", fd);
  lua_pushstring(L, text);
  return 2;
}

/* environment() -> list of "NAME=VALUE" */
static int launch_environment(lua_State *L) {
  extern char **environ;
  int i = 0;

  lua_newtable(L);
  for (i = 0; environ[i] != NULL; i++) {
    lua_pushstring(L, environ[i]);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* cores() -> cores that this process may use */
static int launch_cores(lua_State *L) {
  lua_pushinteger(L, tfd__cores());
  return 1;
}

/* program() -> path of this program's own file */
static int launch_program(lua_State *L) {
  static const char self[] = "/proc/self/exe"; /* even when it was removed */
  char path[PATH_MAX];
  ssize_t n = readlink(self, path, sizeof path - 1);

  if (n > 0) path[n] = 0;
  lua_pushstring(L, n > 0 && access(path, X_OK) == 0 ? path : self);
  return 1;
}

void tfd__launch_open(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"close", launch_close},
      {"cores", launch_cores},
      {"environment", launch_environment},
      {"flush", launch_flush},
      {"forget", launch_forget},
      {"next", launch_next},
      {"open", launch_open},
      {"program", launch_program},
      {"reserve", launch_reserve},
      {"secret", launch_secret},
      {"send", launch_send},
      {"signal", launch_signal},
      {"start", launch_start},
      {"write", launch_write},
      {NULL, NULL},
  };
  const luaL_Reg *f = NULL;

  lua_newtable(L);
  for (f = functions; f->name != NULL; f++) {
    lua_pushcfunction(L, f->func);
    lua_setfield(L, -2, f->name);
  }
}
