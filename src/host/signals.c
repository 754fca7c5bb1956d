/* Ctrl-C: the first asks, the second ends the process. SIGUSR1 says where the
** script is, which goes on. A limit of file sizes is an error of the write. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/late.h"
#include "host/host.h"

static lua_State *volatile running = NULL;
static volatile sig_atomic_t count = 0;

/* At its next instruction or line. */
static void hook(lua_State *L, lua_Hook fn) {
  lua_sethook(L, fn, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT,
              1);
}

/* Runs at the next instruction of the interrupted thread. */
static void stop_hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lua_sethook(L, NULL, 0, 0);
  if (!tfd_is_interrupted()) return; /* a tfdist call has raised already */
  tfd_interrupt(false);
  lua_getfield(L, LUA_REGISTRYINDEX, "tfdist.interrupted");
  /* With no call of C left it raises the engine's word, not its own. */
  if (lua_isfunction(L, -1) && lua_pcall(L, 0, 0, 0) != LUA_OK &&
      lua_istable(L, -1))
    lua_error(L);
  luaL_error(L, "interrupted");
}

/* lua_sethook is the one Lua function that is made for signal handlers. */
static void on_interrupt(int number) {
  (void)number;
  if (count > 0) _exit(TFD_EXIT_INTERRUPT);
  count = 1;
  tfd_interrupt(true);
  if (running != NULL) hook(running, stop_hook);
}

/* As Ctrl-C, for once; the process ends by the signal when it has finished. */
static volatile sig_atomic_t asked_to_end = 0;

static void on_request(int number) {
  asked_to_end = 1;
  on_interrupt(number);
}

void tfd__signals_end(void) {
  if (!asked_to_end) return;
  (void)signal(SIGTERM, SIG_DFL);
  (void)raise(SIGTERM);
}

/* Where the script is, by the library's own words; it goes on after. */
static void where_hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lua_sethook(L, NULL, 0, 0);
  lua_getfield(L, LUA_REGISTRYINDEX, "tfdist.where");
  if (!lua_isfunction(L, -1) || lua_pcall(L, 0, 0, 0) != LUA_OK) lua_pop(L, 1);
  if (count > 0 && tfd_is_interrupted()) hook(L, stop_hook);
}

/* Hooks of others, a profiler's say, and of Ctrl-C stay. */
static void on_where(int number) {
  (void)number;
  if (running != NULL && lua_gethook(running) == NULL) {
    hook(running, where_hook);
  }
}

static pthread_t main_thread;

/* A loop that LuaJIT has compiled looks at no hook: it says so at its end. */
static void say_where(void) {
  (void)pthread_kill(main_thread, SIGUSR1);
}

/* Without a handler the process would end; being ignored would be inherited by
** the programs that scripts start. The write says EFBIG. */
static void on_file_limit(int number) {
  (void)number;
}

void tfd__signals_running(lua_State *L) {
  lua_State *before = running;

  running = L;
  /* A signal that came while `before` was ending: its hook never ran. */
  if (L != before && count > 0 && tfd_is_interrupted())
    lua_sethook(L, stop_hook, LUA_MASKCALL | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

lua_State *tfd__signals_current(void) {
  return running;
}

bool tfd__signals_seen(void) {
  return count > 0;
}

void tfd__signals_reset(void) {
  count = 0;
  tfd_interrupt(false);
}

/* Compiled kernels of oneDNN keep values further below the stack pointer than
** the 128 bytes that a signal leaves alone: a handler on the same stack makes
** them write anywhere. */
static int own_stack(void) {
  static _Alignas(16) unsigned char memory[1 << 16];
  stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};

  return sigaltstack(&stack, NULL) == 0 ? SA_ONSTACK : 0;
}

/* No SA_RESTART: reads must wake up. */
static void handle(int number, void (*handler)(int), int flags) {
  struct sigaction old;
  struct sigaction now;

  memset(&now, 0, sizeof now);
  now.sa_handler = handler;
  now.sa_flags = flags;
  sigemptyset(&now.sa_mask);
  if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_IGN) return;
  sigaction(number, &now, NULL);
}

void tfd__signals_open(lua_State *L) {
  int flags = own_stack();

  running = L;
  handle(SIGINT, on_interrupt, flags);
  handle(SIGXFSZ, on_file_limit, flags);
  main_thread = pthread_self();
  handle(SIGUSR1, on_where, flags | (int)SA_RESTART);
  tfd__on_late(say_where);
}

void tfd__signals_end_softly(void) {
  handle(SIGTERM, on_request, own_stack() | (int)SA_RESETHAND);
}
