#ifndef TFD_HOST_HOST_H
#define TFD_HOST_HOST_H
/* L9 host: an interpreter with the command line of `lua`, the library inside.
**
** One source for both engines: `tfdist` is Lua 5.4, `tfdist-luajit` LuaJIT.
** Invariants:
** H1 Nothing here loads bytecode unless --allow-bytecode was given.
** H2 `running` is the Lua thread that executes now, or the one that resumed
**    it; it never dangles, because resume restores it. On LuaJIT, whose hooks
**    are for all threads at once, it stays the main one.
** H3 stdout belongs to the script; the host writes to stderr.
** May include everything. Specs: spec/host_spec.lua, spec/lua. */

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdbool.h>
#include <stddef.h>

#include "tfdist.h"

#if LUA_VERSION_NUM < 502
#include <luajit.h>
#define TFD_HOST_LUA LUAJIT_VERSION
#define TFD_HOST_COPYRIGHT LUAJIT_VERSION " -- " LUAJIT_COPYRIGHT
#define TFD_HOST_INIT "LUA_INIT"
#define LUA_OK 0
#define lua_rawlen lua_objlen
#else
#define TFD_HOST_LUA LUA_RELEASE
#define TFD_HOST_COPYRIGHT LUA_COPYRIGHT
#define TFD_HOST_INIT "LUA_INIT_5_4"
#endif

/* Exit codes. */
enum { TFD_EXIT_OK = 0, TFD_EXIT_ERROR = 1, TFD_EXIT_INTERRUPT = 130 };

/* What the command line said. */
typedef struct tfd__options {
  const char *program; /* argv[0] */
  char **argv;
  int argc;
  int script;            /* index of the script or command; argc = none */
  bool ends_with_dashes; /* "--" before the script: "-" is a file name */
  bool ignore_environment;
  bool interactive;
  bool show_version;
  bool show_failpoints;
  bool has_chunk; /* -e or --help and the like: no REPL afterwards */
  bool allow_bytecode;
  bool full_traceback;
  const char *profile; /* file for the timeline, or NULL */
  const char *strict;  /* "warn", "error", or NULL */
  const char *command; /* "help", "version" asked for as an option */
} tfd__options;

/* Read the options before the script. Prints and returns a TFD_EXIT_ code
** other than 0 on bad usage. Applies --cpu-devices and friends. */
int tfd__options_read(int argc, char **argv, tfd__options *o);
/* Arguments that the option at argv[i] takes up, itself included. */
int tfd__options_width(char **argv, int i);

/* --profile: begin a timeline that is written when the process exits, however
** its script ends. Prints and returns false when the file cannot be written. */
bool tfd__profile_open(const tfd__options *o);

/* An empty state with the host's allocator; NULL without memory. */
lua_State *tfd__state_new(void);
void tfd__state_close(lua_State *L);

/* Searchers, load, loadfile, dofile ... that take text only; the embedded
** library; package.cpath without the current directory. */
void tfd__chunks_open(lua_State *L, const tfd__options *o);
/* luaL_loadfile with the host's rule about bytecode; NULL = stdin. */
int tfd__chunks_load_file(lua_State *L, const char *path);
int tfd__chunks_load(lua_State *L, const char *text, size_t size,
                     const char *name);

/* coroutine.resume and coroutine.wrap that know who runs; on LuaJIT, what
** calls back from C stops nesting before the C stack ends. To be called near
** the bottom of the stack, before any code of the user's. */
void tfd__coroutines_open(lua_State *L);

/* Ctrl-C. */
void tfd__signals_open(lua_State *L);
void tfd__signals_running(lua_State *L); /* H2 */
lua_State *tfd__signals_current(void);
bool tfd__signals_seen(void);  /* since the last reset */
void tfd__signals_reset(void); /* the next Ctrl-C is a first one again */
/* The first SIGTERM stops the script as Ctrl-C does; tfd__signals_end then ends
** the process by it. */
void tfd__signals_end_softly(void);
void tfd__signals_end(void);

/* A crash says where it was. After tfd__signals_open, on the main thread. */
void tfd__crash_open(void);

/* Push the table of functions that `tfdist run` is made of. */
void tfd__launch_open(lua_State *L);

/* The module tfdist.host: prompt, terminal, embedded sources, launch. */
int tfd__host_module(lua_State *L);

#endif
