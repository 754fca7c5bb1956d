/* The module tfdist.host: what the prompt and the commands need from C. */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/host.h"
#include "lua/embedded.h"

#ifdef TFD_LIBEDIT
#include <editline/readline.h>
#endif

/* --- reading lines -------------------------------------------------------- */

/* A line through stdio; NULL at the end and when a signal came. */
static bool read_plain(lua_State *L, const char *prompt) {
  luaL_Buffer b;
  char part[512];

  fputs(prompt, stdout);
  fflush(stdout);
  luaL_buffinit(L, &b);
  for (;;) {
    size_t n = 0;

    errno = 0;
    if (fgets(part, sizeof part, stdin) == NULL) {
      bool interrupted = errno == EINTR;

      clearerr(stdin);
      luaL_pushresult(&b);
      if (interrupted || lua_rawlen(L, -1) == 0) return false;
      return true;
    }
    n = strlen(part);
    if (n > 0 && part[n - 1] == '\n') {
      luaL_addlstring(&b, part, n - 1);
      luaL_pushresult(&b);
      return true;
    }
    luaL_addlstring(&b, part, n);
  }
}

#ifdef TFD_LIBEDIT
static lua_State *completing = NULL;
static char **candidates = NULL; /* malloc'ed, as the library wants it */
static size_t candidates_n = 0;

/* Ask the Lua function in the registry for the words that may stand here. */
static char *next_candidate(const char *text, int state) {
  static size_t at = 0;

  if (state == 0) {
    lua_State *L = completing;
    size_t i = 0;

    at = 0;
    candidates_n = 0;
    lua_getfield(L, LUA_REGISTRYINDEX, "tfdist.complete");
    lua_pushstring(L, text);
    if (lua_pcall(L, 1, 1, 0) == LUA_OK && lua_istable(L, -1)) {
      size_t n = lua_rawlen(L, -1);

      free(candidates);
      candidates = calloc(n > 0 ? n : 1, sizeof *candidates);
      for (i = 0; candidates != NULL && i < n; i++) {
        lua_rawgeti(L, -1, (int)i + 1);
        if (lua_isstring(L, -1))
          candidates[candidates_n++] = strdup(lua_tostring(L, -1));
        lua_pop(L, 1);
      }
    }
    lua_pop(L, 1);
  }
  return at < candidates_n ? candidates[at++] : NULL;
}

static char **complete(const char *text, int start, int end) {
  (void)start;
  (void)end;
  rl_completion_append_character = 0;
  rl_attempted_completion_over = 1;
  return rl_completion_matches(text, next_candidate);
}

static bool read_edited(lua_State *L, const char *prompt) {
  static bool ready = false;
  char *line = NULL;

  if (!ready) {
    setlocale(LC_CTYPE, "");
    rl_readline_name = "tfdist";
    rl_initialize();
    rl_attempted_completion_function = complete;
    rl_basic_word_break_characters = " \t\n\"'(){}[],;+-*/%^=<>~#&|?";
    ready = true;
  }
  completing = L;
  line = readline(prompt);
  if (line == NULL) return false;
  if (line[0] != 0) add_history(line);
  lua_pushstring(L, line);
  free(line);
  return true;
}
#endif

/* readline(prompt) -> line | nil, "interrupted" | nil, "end" */
static int host_readline(lua_State *L) {
  const char *prompt = luaL_optstring(L, 1, "");
  bool got = false;

  tfd__signals_reset();
#ifdef TFD_LIBEDIT
  if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
    got = read_edited(L, prompt);
  else
    got = read_plain(L, prompt);
#else
  got = read_plain(L, prompt);
#endif
  if (!got) {
    lua_pushnil(L);
    lua_pushstring(L, tfd__signals_seen() ? "interrupted" : "end");
    /* The hook that the signal set must not hit the prompt itself. */
    lua_sethook(L, NULL, 0, 0);
    tfd__signals_reset();
    return 2;
  }
  lua_sethook(L, NULL, 0, 0);
  tfd__signals_reset();
  return 1;
}

/* --- the rest ------------------------------------------------------------- */

static int host_isatty(lua_State *L) {
  lua_pushboolean(L, isatty((int)luaL_checknumber(L, 1)));
  return 1;
}

/* complete(fn): fn(word) -> list of words, for the Tab key. */
static int host_complete(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, "tfdist.complete");
  return 0;
}

/* source(file) -> text of an embedded file, "tfdist/base/errors.lua", or nil.
 */
static int host_source(lua_State *L) {
  const char *file = luaL_checkstring(L, 1);
  const tfd__embedded *e = tfd__embedded_library;

  while (e->name != NULL && strcmp(e->file, file) != 0) e++;
  if (e->name != NULL)
    lua_pushlstring(L, e->text, e->size);
  else
    lua_pushnil(L);
  return 1;
}

/* reset_interrupt(): the next Ctrl-C is a first one again. */
static int host_reset_interrupt(lua_State *L) {
  (void)L;
  tfd__signals_reset();
  return 0;
}

int tfd__host_module(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"complete", host_complete}, {"isatty", host_isatty},
      {"readline", host_readline}, {"reset_interrupt", host_reset_interrupt},
      {"source", host_source},     {NULL, NULL},
  };
  const luaL_Reg *f = NULL;

  lua_newtable(L);
  for (f = functions; f->name != NULL; f++) {
    lua_pushcfunction(L, f->func);
    lua_setfield(L, -2, f->name);
  }
  tfd__launch_open(L);
  lua_setfield(L, -2, "launch");
  lua_pushliteral(L, TFD_HOST_LUA);
  lua_setfield(L, -2, "lua");
#ifdef TFD_LIBEDIT
  lua_pushboolean(L, 1);
#else
  lua_pushboolean(L, 0);
#endif
  lua_setfield(L, -2, "has_editing");
#ifdef __VERSION__
  lua_pushliteral(L, __VERSION__);
  lua_setfield(L, -2, "compiler");
#endif
  return 1;
}
