/* The command line: lua's options in full, and tfdist's long ones.
**
** Long options cannot collide: lua has none. They may stand anywhere before
** the script and take their value as --name=VALUE or --name VALUE. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "host/host.h"

static const char usage_text[] =
    "usage: %s [options] [script.lua [args...]]\n"
    "       %s [options] devices | doctor | version | help [topic]\n"
    "Lua options (as in lua):\n"
    "  -e STAT   run STAT            -l MOD    require MOD into global MOD\n"
    "  -l g=MOD  require MOD into g  -i        prompt after the script\n"
    "  -v        show the version    -E        ignore the environment\n"
    "  -W        turn warnings on    --        end of options\n"
    "  -         run stdin as a script\n"
    "tfdist options:\n"
    "  --cpu-devices=N        split the CPU into N logical devices\n"
    "  --threads=N            cores for each device\n"
    "  --memory-limit=SIZE    most memory of each device, \"512M\", \"16GiB\"\n"
    "  --queue=auto|inline|queued   how devices run their work\n"
    "  --log=error|warning|info|debug\n"
    "  --progress=auto|bar|lines|none   how fit shows its progress\n"
    "  --profile[=FILE]       write a timeline (tfdist-trace.json)\n"
    "  --full-traceback       keep the host's own frames in tracebacks\n"
    "  --allow-bytecode       let load and require take bytecode\n"
    "  --strict[=error]       warn about (or refuse) undeclared globals\n"
    "  --version  --help  --failpoints\n"
    "A script called like a command is run with ./NAME.\n";

static int usage(const char *program, const char *why, const char *what) {
  fprintf(stderr, "%s: ", program);
  fprintf(stderr, why, what);
  fputc('\n', stderr);
  fprintf(stderr, usage_text, program, program);
  return TFD_EXIT_USAGE;
}

/* --- long options --------------------------------------------------------- */

static int failed(const tfd__options *o) {
  const char *hint = tfd_error_hint();

  fprintf(stderr, "%s: %s\n", o->program, tfd_error_message());
  if (hint != NULL && hint[0] != 0) fprintf(stderr, "hint: %s\n", hint);
  return TFD_EXIT_USAGE;
}

/* The same, named by the option that the function was called for, with the
** number as it was given. */
static int failed_as(const tfd__options *o, const char *option,
                     const char *value) {
  const char *text = tfd_error_message();
  const char *rest = strstr(text, ": ");

  rest = rest != NULL ? rest + 2 : text;
  fprintf(stderr, "%s: %s: %s%s\n", o->program, option, value,
          rest + strspn(rest, "-0123456789"));
  return TFD_EXIT_USAGE;
}

enum { MOST_WHOLE = 1000000 }; /* more than anything here can be */

/* Exit code; *n_p gets a whole number, or the nearest of those. */
static int whole(const tfd__options *o, const char *text, int *n_p) {
  char *end = NULL;
  long n = strtol(text, &end, 10);

  if (end == text || *end != 0)
    return usage(o->program, "'%s' is not a whole number", text);
  *n_p = n > MOST_WHOLE ? MOST_WHOLE : n < -MOST_WHOLE ? -MOST_WHOLE : (int)n;
  return TFD_EXIT_OK;
}

static int set_cpu_devices(tfd__options *o, const char *value) {
  int n = 0;
  int code = whole(o, value, &n);

  if (code != TFD_EXIT_OK) return code;
  return tfd_config_set_cpu_devices(n) == TFD_OK
             ? TFD_EXIT_OK
             : failed_as(o, "--cpu-devices", value);
}

static int set_threads(tfd__options *o, const char *value) {
  int n = 0;
  int code = whole(o, value, &n);

  if (code != TFD_EXIT_OK) return code;
  return tfd_config_set_device_threads(n) == TFD_OK
             ? TFD_EXIT_OK
             : failed_as(o, "--threads", value);
}

/* Of each device; workers started from here inherit it. */
static int set_memory_limit(tfd__options *o, const char *value) {
  setenv("TFDIST_MEMORY_LIMIT", value, 1);
  return tfd__config_check() == TFD_OK ? TFD_EXIT_OK : failed(o);
}

static int set_queue(tfd__options *o, const char *value) {
  static const char *const names[] = {"auto", "inline", "queued"};
  int i = 0;

  for (i = 0; i < 3; i++) {
    if (strcmp(names[i], value) != 0) continue;
    return tfd_config_set_queue_mode((tfd_queue_mode)i) == TFD_OK ? TFD_EXIT_OK
                                                                  : failed(o);
  }
  return usage(o->program, "'%s' is not auto, inline or queued", value);
}

static int set_log(tfd__options *o, const char *value) {
  static const char *const names[] = {"error", "warning", "info", "debug"};
  int i = 0;

  for (i = 0; i < 4; i++) {
    if (strcmp(names[i], value) != 0) continue;
    setenv("TFDIST_LOG", value, 1); /* workers started from here inherit it */
    return TFD_EXIT_OK;
  }
  return usage(o->program, "'%s' is not error, warning, info or debug", value);
}

static int set_progress(tfd__options *o, const char *value) {
  static const char *const names[] = {"auto", "bar", "lines", "none"};
  int i = 0;

  for (i = 0; i < 4; i++) {
    if (strcmp(names[i], value) != 0) continue;
    setenv("TFDIST_PROGRESS", value, 1);
    return TFD_EXIT_OK;
  }
  return usage(o->program, "'%s' is not auto, bar, lines or none", value);
}

static int set_profile(tfd__options *o, const char *value) {
  if (value != NULL && value[0] == 0)
    return usage(o->program, "--profile= needs a file's name%s", "");
  o->profile = value != NULL ? value : "tfdist-trace.json";
  return TFD_EXIT_OK;
}

static int set_bytecode(tfd__options *o, const char *value) {
  (void)value;
  o->allow_bytecode = true;
  return TFD_EXIT_OK;
}

static int set_traceback(tfd__options *o, const char *value) {
  (void)value;
  o->full_traceback = true;
  return TFD_EXIT_OK;
}

static int set_strict(tfd__options *o, const char *value) {
  if (value != NULL && strcmp(value, "warn") != 0 &&
      strcmp(value, "error") != 0)
    return usage(o->program, "--strict is warn or error, not '%s'", value);
  o->strict = value != NULL ? value : "warn";
  return TFD_EXIT_OK;
}

static int set_version(tfd__options *o, const char *value) {
  (void)value;
  o->command = "version";
  return TFD_EXIT_OK;
}

static int set_help(tfd__options *o, const char *value) {
  (void)value;
  o->command = "help";
  return TFD_EXIT_OK;
}

static int set_failpoints(tfd__options *o, const char *value) {
  (void)value;
  o->show_failpoints = true;
  return TFD_EXIT_OK;
}

typedef enum value_form { NO_VALUE, NEEDS_VALUE, MAY_HAVE_VALUE } value_form;

typedef struct long_option {
  const char *name;
  value_form value; /* an optional one only as --name=VALUE */
  int (*set)(tfd__options *o, const char *value);
} long_option;

static const long_option long_options[] = {
    {"allow-bytecode", NO_VALUE, set_bytecode},
    {"cpu-devices", NEEDS_VALUE, set_cpu_devices},
    {"failpoints", NO_VALUE, set_failpoints},
    {"full-traceback", NO_VALUE, set_traceback},
    {"help", NO_VALUE, set_help},
    {"log", NEEDS_VALUE, set_log},
    {"memory-limit", NEEDS_VALUE, set_memory_limit},
    {"profile", MAY_HAVE_VALUE, set_profile},
    {"progress", NEEDS_VALUE, set_progress},
    {"queue", NEEDS_VALUE, set_queue},
    {"strict", MAY_HAVE_VALUE, set_strict},
    {"threads", NEEDS_VALUE, set_threads},
    {"version", NO_VALUE, set_version},
};

/* The option that `text` ("--name" or "--name=value") names, or NULL. */
static const long_option *find_long(const char *text) {
  size_t n = strcspn(text + 2, "=");
  size_t i = 0;

  for (i = 0; i < sizeof long_options / sizeof *long_options; i++) {
    const long_option *l = &long_options[i];

    if (strlen(l->name) == n && strncmp(l->name, text + 2, n) == 0) return l;
  }
  return NULL;
}

/* Unknown option: with the one that begins most like it, if any does. */
static int unknown_long(const tfd__options *o, const char *text) {
  enum { ALIKE = 3 };
  const char *best = NULL;
  size_t longest = ALIKE - 1;
  size_t i = 0;

  for (i = 0; i < sizeof long_options / sizeof *long_options; i++) {
    const char *name = long_options[i].name;
    size_t n = 0;

    while (name[n] != 0 && name[n] == text[2 + n]) n++;
    if (n <= longest) continue;
    longest = n;
    best = name;
  }
  if (best == NULL) return usage(o->program, "unknown option '%s'", text);
  fprintf(stderr,
          "%s: unknown option '%s'\nhint: did you mean --%s?\n"
          "%s --help lists all options\n",
          o->program, text, best, o->program);
  return TFD_EXIT_USAGE;
}

int tfd__options_width(char **argv, int i) {
  const char *a = argv[i];
  const long_option *l = NULL;

  if (a[1] == '-') {
    l = a[2] != 0 ? find_long(a) : NULL;
    if (l == NULL || l->value != NEEDS_VALUE) return 1;
    return strchr(a, '=') == NULL ? 2 : 1;
  }
#if LUA_VERSION_NUM < 502
  if (a[1] == 'j' && a[2] == 0) return 2;
#endif
  return (a[1] == 'e' || a[1] == 'l') && a[2] == 0 ? 2 : 1;
}

static int read_long(tfd__options *o, int i) {
  const long_option *l = find_long(o->argv[i]);
  const char *value = strchr(o->argv[i], '=');

  if (l == NULL) return unknown_long(o, o->argv[i]);
  if (l->value == NO_VALUE && value != NULL)
    return usage(o->program, "'%s' takes no value", o->argv[i]);
  if (value != NULL)
    value++;
  else if (l->value == NEEDS_VALUE)
    value = o->argv[i + 1];
  if (l->value == NEEDS_VALUE && value == NULL)
    return usage(o->program, "'%s' needs a value", o->argv[i]);
  return l->set(o, value);
}

/* --- lua's options -------------------------------------------------------- */

static int read_short(tfd__options *o, int i) {
  const char *a = o->argv[i];
  bool alone = a[2] == 0;

  switch (a[1]) {
  case 'E':
    o->ignore_environment = true;
    break;
  case 'W':
    break;
  case 'i':
    o->interactive = true; /* fall through */
  case 'v':
    o->show_version = true;
    break;
#if LUA_VERSION_NUM < 502
  case 'j':
  case 'O':
    alone = true;
    break;
#endif
  case 'e':
    o->has_chunk = true; /* fall through */
  case 'l':
    if (alone && (o->argv[i + 1] == NULL || o->argv[i + 1][0] == '-'))
      return usage(o->program, "'%s' needs argument", a);
    return TFD_EXIT_OK;
  default:
    return usage(o->program, "unrecognized option '%s'", a);
  }
  if (!alone) return usage(o->program, "unrecognized option '%s'", a);
  return TFD_EXIT_OK;
}

int tfd__options_read(int argc, char **argv, tfd__options *o) {
  int code = TFD_EXIT_OK;
  int i = 1;

  memset(o, 0, sizeof *o);
  o->program = argc > 0 && argv[0] != NULL ? argv[0] : "tfdist";
  o->argv = argv;
  o->argc = argc;
  while (i < argc && argv[i][0] == '-' && argv[i][1] != 0) {
    if (strcmp(argv[i], "--") == 0) {
      o->ends_with_dashes = true;
      i++;
      break;
    }
    code = argv[i][1] == '-' ? read_long(o, i) : read_short(o, i);
    if (code != TFD_EXIT_OK) return code;
    i += tfd__options_width(argv, i);
  }
  o->script = i < argc ? i : argc;
  return TFD_EXIT_OK;
}
