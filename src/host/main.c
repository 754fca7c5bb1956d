/* The interpreter's life: options, state, chunks, script or prompt, exit. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm/comm.h"
#include "host/host.h"
#include "lua/bind.h"

/* --- messages ------------------------------------------------------------- */

/* True when the text begins with a script position, "file:12:". */
static bool has_position(const char *text) {
  const char *p = text;

  while ((p = strchr(p, ':')) != NULL) {
    size_t digits = strspn(p + 1, "0123456789");

    if (digits > 0 && p[1 + digits] == ':') return true;
    if (memchr(text, '\n', (size_t)(p - text)) != NULL) return false;
    p++;
  }
  return false;
}

static void print_message(const tfd__options *o, const char *text) {
  if (text == NULL) text = "(no message)";
  fflush(stdout);
  if (has_position(text))
    fprintf(stderr, "%s\n", text);
  else
    fprintf(stderr, "%s: %s\n", o->program, text);
  fflush(stderr);
}

/* What the last error object wants the process to end with; 0 = nothing. */
static int asked_code;

static void read_exit_code(lua_State *L) {
  asked_code = 0;
  if (!lua_istable(L, 1)) return;
  lua_pushliteral(L, "exit_code");
  lua_rawget(L, 1);
  if (lua_isnumber(L, -1)) asked_code = (int)lua_tonumber(L, -1);
  lua_pop(L, 1);
}

/* Message handler: the library's report of the error, or what lua would say
** when there is no library yet. */
static int handle_message(lua_State *L) {
  read_exit_code(L);
  lua_getfield(L, LUA_REGISTRYINDEX, "tfdist.report");
  if (lua_isfunction(L, -1)) {
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 2); /* level of the function that failed */
    if (lua_pcall(L, 2, 1, 0) == LUA_OK && lua_isstring(L, -1)) return 1;
  }
  lua_settop(L, 1);
  if (lua_tostring(L, 1) == NULL) {
    if (luaL_callmeta(L, 1, "__tostring") && lua_isstring(L, -1)) return 1;
    lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
  }
  luaL_traceback(L, L, lua_tostring(L, -1), 1);
  return 1;
}

static int call(lua_State *L, int arguments, int results) {
  int base = lua_gettop(L) - arguments;
  int status = 0;

  lua_pushcfunction(L, handle_message);
  lua_insert(L, base);
  status = lua_pcall(L, arguments, results, base);
  lua_remove(L, base);
  return status;
}

static int exit_code(bool ok) {
  if (ok) return TFD_EXIT_OK;
  if (tfd__signals_seen()) return TFD_EXIT_INTERRUPT;
  return asked_code > 0 && asked_code < 256 ? asked_code : TFD_EXIT_ERROR;
}

static char *error_file; /* of this process, not of what it starts */

static void take_error_file(void) {
  const char *path = getenv("TFDIST_ERROR_FILE");

  if (path != NULL) error_file = strdup(path);
  unsetenv("TFDIST_ERROR_FILE");
}

/* For the launcher, which must know who failed first: when, with what status,
** and why. */
static void write_error_file(const char *text) {
  FILE *file = error_file != NULL ? fopen(error_file, "we") : NULL;
  struct timespec now;

  if (file == NULL) return;
  clock_gettime(CLOCK_REALTIME, &now);
  fprintf(file, "%lld.%06ld %d\n%s\n", (long long)now.tv_sec,
          now.tv_nsec / 1000, exit_code(false), text != NULL ? text : "");
  fclose(file);
}

/* What the last error said, for those who wait for this process. */
static char last_words[1024];

/* Without the stack, which is this process's alone. */
static void remember(const char *text) {
  const char *stack = text == NULL ? NULL : strstr(text, "\nstack traceback:");
  size_t n = stack == NULL ? sizeof last_words - 1 : (size_t)(stack - text);

  if (n >= sizeof last_words) n = sizeof last_words - 1;
  (void)snprintf(last_words, sizeof last_words, "%.*s", (int)n,
                 text == NULL ? "(no message)" : text);
}

/* Print the message of a failed step; true when it succeeded. */
static bool report(lua_State *L, const tfd__options *o, int status) {
  if (status == LUA_OK) return true;
  write_error_file(lua_tostring(L, -1));
  remember(lua_tostring(L, -1));
  print_message(o, lua_tostring(L, -1));
  lua_pop(L, 1);
  return false;
}

/* --- pieces of the command line ------------------------------------------- */

/* Table `arg`: the script at 0, its arguments after, the rest before. */
static void set_arg(lua_State *L, const tfd__options *o) {
  int script = o->script == o->argc ? 0 : o->script;
  int i = 0;

  lua_createtable(L, o->argc - script, script + 1);
  for (i = 0; i < o->argc; i++) {
    lua_pushstring(L, o->argv[i]);
    lua_rawseti(L, -2, i - script);
  }
  lua_setglobal(L, "arg");
}

static bool run_text(lua_State *L, const tfd__options *o, const char *text,
                     const char *name) {
  int status = tfd__chunks_load(L, text, strlen(text), name);

  if (status == LUA_OK) status = call(L, 0, 0);
  return report(L, o, status);
}

static bool run_file(lua_State *L, const tfd__options *o, const char *path) {
  int status = tfd__chunks_load_file(L, path);

  if (status == LUA_OK) status = call(L, 0, 0);
  return report(L, o, status);
}

/* -l MOD, -l g=MOD. The library's usual name is tf. */
static bool run_require(lua_State *L, const tfd__options *o, char *text) {
  char *equals = strchr(text, '=');
  const char *module = equals != NULL ? equals + 1 : text;
  int status = 0;

  lua_getglobal(L, "require");
  lua_pushstring(L, module);
  status = call(L, 1, 1);
  if (status != LUA_OK) return report(L, o, status);
  if (equals == NULL && strcmp(module, "tfdist") == 0) {
    lua_pushvalue(L, -1);
    lua_setglobal(L, "tf");
  }
  if (equals != NULL) *equals = 0; /* the global's name ends here */
  lua_setglobal(L, text);
  if (equals != NULL) *equals = '=';
  return true;
}

static bool run_environment(lua_State *L, const tfd__options *o) {
  const char *name = "=" TFD_HOST_INIT;
  const char *text = getenv(name + 1);

  if (text == NULL) {
    name = "=LUA_INIT";
    text = getenv(name + 1);
  }
  if (text == NULL) return true;
  if (text[0] == '@') return run_file(L, o, text + 1);
  return run_text(L, o, text, name);
}

#if LUA_VERSION_NUM < 502
/* -j COMMAND: "on", "off", "flush" of the compiler, else jit.COMMAND. */
static bool run_jit(lua_State *L, const tfd__options *o, const char *text) {
  static const char chunk[] =
      "local name, args = ...\n"
      "if type(jit[name]) == 'function' then\n"
      "  if args ~= '' then jit[name](args) else jit[name]() end\n"
      "else require('jit.' .. name).start(args ~= '' and args or nil) end";
  size_t n = strcspn(text, "=");
  int status = tfd__chunks_load(L, chunk, sizeof chunk - 1, "=-j");

  if (status != LUA_OK) return report(L, o, status);
  lua_pushlstring(L, text, n);
  lua_pushstring(L, text[n] == '=' ? text + n + 1 : "");
  return report(L, o, call(L, 2, 0));
}

static bool run_optimiser(lua_State *L, const tfd__options *o,
                          const char *text) {
  static const char chunk[] =
      "local opts, list = ..., {}\n"
      "for w in opts:gmatch('[^,]+') do list[#list + 1] = w end\n"
      "require('jit.opt').start(unpack(list))";
  int status = tfd__chunks_load(L, chunk, sizeof chunk - 1, "=-O");

  if (status != LUA_OK) return report(L, o, status);
  lua_pushstring(L, text);
  return report(L, o, call(L, 1, 0));
}
#endif

/* -e, -l, -W (and -j, -O), in their order. */
static bool run_option(lua_State *L, const tfd__options *o, int i) {
  char *value = o->argv[i][2] != 0 ? o->argv[i] + 2 : o->argv[i + 1];

  switch (o->argv[i][1]) {
  case 'e':
    return run_text(L, o, value, "=(command line)");
  case 'l':
    return run_require(L, o, value);
#if LUA_VERSION_NUM < 502
  case 'j':
    return run_jit(L, o, value);
  case 'O':
    return run_optimiser(L, o, o->argv[i] + 2);
#else
  case 'W':
    lua_warning(L, "@on", 0);
    return true;
#endif
  default:
    return true;
  }
}

static bool run_options(lua_State *L, const tfd__options *o) {
  int i = 1;

  while (i < o->script && strcmp(o->argv[i], "--") != 0) {
    if (!run_option(L, o, i)) return false;
    i += tfd__options_width(o->argv, i);
  }
  return true;
}

/* The script with the arguments in `arg`. */
static bool run_script(lua_State *L, const tfd__options *o) {
  const char *path = o->argv[o->script];
  const char *base = strrchr(path, '/');
  int n = o->argc - o->script - 1;
  int status = 0;
  int i = 0;

  if (strcmp(base != NULL ? base + 1 : path, "tfdist.lua") == 0) {
    print_message(o, "RuntimeError: your script tfdist.lua hides the module "
                     "of the same name; rename it");
    return false;
  }
  if (strcmp(path, "-") == 0 && !o->ends_with_dashes) path = NULL;
  status = tfd__chunks_load_file(L, path);
  if (status == LUA_OK) {
    luaL_checkstack(L, n + 3, "too many arguments to script");
    lua_getglobal(L, "arg");
    if (!lua_istable(L, -1)) luaL_error(L, "'arg' is not a table");
    for (i = 1; i <= n; i++) lua_rawgeti(L, -i, i);
    lua_remove(L, -n - 1);
    status = call(L, n, LUA_MULTRET);
  }
  return report(L, o, status);
}

/* --- commands and prompt: written in Lua ---------------------------------- */

/* Call tfdist.host.cli's function with the arguments from `first` on. Its
** result is the exit code, or nil when it does not know the command. */
static int run_command(lua_State *L, const tfd__options *o, const char *name,
                       int first) {
  int code = -1;
  int i = 0;

  lua_getglobal(L, "require");
  lua_pushliteral(L, "tfdist.host.cli");
  if (!report(L, o, call(L, 1, 1))) return exit_code(false);
  lua_getfield(L, -1, "main");
  lua_remove(L, -2);
  lua_pushstring(L, name);
  luaL_checkstack(L, o->argc + 8, "too many arguments");
  for (i = first; i < o->argc; i++) lua_pushstring(L, o->argv[i]);
  if (!report(L, o, call(L, 1 + (o->argc > first ? o->argc - first : 0), 1)))
    return exit_code(false);
  if (lua_isnumber(L, -1)) code = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  return code;
}

static bool run_prompt(lua_State *L, const tfd__options *o) {
  lua_getglobal(L, "require");
  lua_pushliteral(L, "tfdist.host.repl");
  if (!report(L, o, call(L, 1, 1))) return false;
  lua_getfield(L, -1, "run");
  lua_remove(L, -2);
  return report(L, o, call(L, 0, 0));
}

/* --- the whole ------------------------------------------------------------ */

static void print_version(void) {
  printf("%s (tfdist %s)\n", TFD_HOST_COPYRIGHT, tfd_version());
  fflush(stdout);
}

/* What TFDIST_FAILPOINTS may name. */
static int list_failpoints(void) {
  int i = 0;

  for (i = 0; tfd__failpoint_name(i) != NULL; i++) {
    printf("%-18s %s\n", tfd__failpoint_name(i), tfd__failpoint_what(i));
  }
  printf("actions: %s\n", tfd__failpoint_actions());
  return TFD_EXIT_OK;
}

/* Errors module and its report function, before user code can break them. */
static void prepare_errors(lua_State *L, const tfd__options *o) {
  lua_getglobal(L, "require");
  lua_pushliteral(L, "tfdist.base.errors");
  if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
    print_message(o, lua_tostring(L, -1));
    lua_pop(L, 1);
    return;
  }
  if (o->full_traceback) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "full_traceback");
  }
  lua_getfield(L, -1, "report");
  lua_setfield(L, LUA_REGISTRYINDEX, "tfdist.report");
  lua_getfield(L, -1, "interrupted");
  lua_setfield(L, LUA_REGISTRYINDEX, "tfdist.interrupted");
  lua_getfield(L, -1, "say_where");
  lua_setfield(L, LUA_REGISTRYINDEX, "tfdist.where");
  lua_pop(L, 1);
}

static void preload(lua_State *L, const char *name, lua_CFunction open) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, open);
  lua_setfield(L, -2, name);
  lua_pop(L, 2);
}

/* LuaJIT's own pairs loops go wrong: see tfdist.base.pairs. */
static bool mend_pairs(lua_State *L, const tfd__options *o) {
  if (LUA_VERSION_NUM >= 502) return true;
  lua_getglobal(L, "require");
  lua_pushliteral(L, "tfdist.base.pairs");
  if (!report(L, o, call(L, 1, 1))) return false;
  lua_setglobal(L, "pairs");
  return true;
}

static void open_state(lua_State *L, const tfd__options *o) {
  if (o->ignore_environment) {
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
  }
  luaL_openlibs(L);
#if LUA_VERSION_NUM >= 504
  lua_gc(L, LUA_GCGEN, 0, 0); /* as lua does */
#endif
  preload(L, "tfdist.core", luaopen_tfdist_core);
  preload(L, "tfdist.host", tfd__host_module);
  tfd__chunks_open(L, o);
  tfd__coroutines_open(L);
  set_arg(L, o);
  prepare_errors(L, o);
}

/* --strict: watch globals before any user code runs. */
static bool watch_globals(lua_State *L, const tfd__options *o) {
  if (o->strict == NULL) return true;
  lua_getglobal(L, "require");
  lua_pushliteral(L, "tfdist.host.strict");
  if (!report(L, o, call(L, 1, 1))) return false;
  lua_pushstring(L, o->strict);
  return report(L, o, call(L, 1, 0));
}

/* A word without '.' and '/' may be a command; anything else is a script. */
static int try_command(lua_State *L, const tfd__options *o) {
  const char *name = o->argv[o->script];

  if (o->ends_with_dashes || strpbrk(name, "./") != NULL ||
      strcmp(name, "-") == 0)
    return -1;
  return run_command(L, o, name, o->script + 1);
}

/* Queued work may have failed after the last line that looked at it: wait for
** all of it, so that a program which went wrong does not end as if it had not.
** os.exit does not come by here. */
static int settle(lua_State *L, const tfd__options *o) {
  if (!tfd_is_started()) return TFD_EXIT_OK;
  lua_getglobal(L, "require");
  lua_pushliteral(L, "tfdist.core.device");
  if (!report(L, o, call(L, 1, 1))) return exit_code(false);
  lua_getfield(L, -1, "sync_devices");
  lua_remove(L, -2);
  return exit_code(report(L, o, call(L, 0, 0)));
}

static int run(lua_State *L, const tfd__options *o) {
  bool has_script = o->script < o->argc;
  int code = 0;

  if (o->command != NULL) return run_command(L, o, o->command, o->script);
  if (o->show_failpoints) return list_failpoints();
  if (o->show_version) print_version();
  if (!mend_pairs(L, o) || !watch_globals(L, o)) return exit_code(false);
  if (!o->ignore_environment && !run_environment(L, o)) return exit_code(false);
  if (!run_options(L, o)) return exit_code(false);
  if (has_script) {
    code = try_command(L, o);
    if (code >= 0) return code;
    if (!run_script(L, o)) return exit_code(false);
  }
  if (o->interactive) return exit_code(run_prompt(L, o));
  if (has_script || o->has_chunk || o->show_version) return TFD_EXIT_OK;
  if (isatty(STDIN_FILENO)) return exit_code(run_prompt(L, o));
  return exit_code(run_file(L, o, NULL));
}

typedef struct program {
  const tfd__options *options;
  int code;
} program;

static int run_protected(lua_State *L) {
  program *p = lua_touserdata(L, 1);

  lua_settop(L, 0);
#if LUA_VERSION_NUM >= 502
  luaL_checkversion(L);
#endif
  open_state(L, p->options);
  tfd__signals_open(L); /* before, Ctrl-C ends the process as it always does */
  if (p->options->profile != NULL) tfd__signals_end_softly();
  tfd__crash_open();
  p->code = run(L, p->options);
  if (p->code == TFD_EXIT_OK) p->code = settle(L, p->options);
  return 0;
}

/* Where standard descriptors are closed, files that are opened would have their
** numbers, and what is printed would be written to them. */
static void hold_standard(void) {
  int fd = 0;

  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd < 3);
  if (fd >= 3) (void)close(fd);
}

int main(int argc, char **argv) {
  tfd__options options;
  program p = {&options, TFD_EXIT_ERROR};
  lua_State *L = NULL;
  bool interrupted;
  int code = TFD_EXIT_OK;

  hold_standard();
  code = tfd__options_read(argc, argv, &options);
  if (code != TFD_EXIT_OK) return code;
  if (!tfd__profile_open(&options)) return TFD_EXIT_USAGE;
  take_error_file();
  /* What a task prints is shown line by line. */
  if (getenv("TFDIST_RESTART") != NULL) setvbuf(stdout, NULL, _IOLBF, 0);
  L = tfd__state_new();
  if (L == NULL) {
    fprintf(stderr, "%s: cannot create state: not enough memory\n",
            options.program);
    return TFD_EXIT_ERROR;
  }
  lua_pushcfunction(L, run_protected);
  lua_pushlightuserdata(L, &p);
  if (!report(L, &options, lua_pcall(L, 1, 0, 0))) p.code = exit_code(false);
  tfd__signals_running(NULL);
  if (p.code != TFD_EXIT_OK) {
    tfd__groups_abort(last_words);
    tfd__devices_stop();
  }
  /* Finalizers run then, which Lua lets fail without a word. */
  interrupted = tfd__signals_seen();
  tfd__state_close(L);
  if (p.code == TFD_EXIT_OK && !interrupted && tfd__signals_seen())
    return TFD_EXIT_INTERRUPT;
  return p.code;
}
