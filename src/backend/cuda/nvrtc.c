/* NVRTC, opened when a kernel is to be made. It gets the headers that the text
** includes from the plug-in's data. */
#include <nvrtc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/fuse.h"
#include "base/memory.h"

#define FUNCTIONS(F)        \
  F(nvrtcVersion)           \
  F(nvrtcCreateProgram)     \
  F(nvrtcDestroyProgram)    \
  F(nvrtcCompileProgram)    \
  F(nvrtcGetCUBINSize)      \
  F(nvrtcGetCUBIN)          \
  F(nvrtcGetProgramLogSize) \
  F(nvrtcGetProgramLog)     \
  F(nvrtcGetErrorString)

static struct {
#define FIELD(name) __typeof__(&name) name;
  FUNCTIONS(FIELD)
#undef FIELD
} rtc;

static int version[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* --- headers -------------------------------------------------------------- */

#define HEADERS(H)            \
  H(args, "args.h")           \
  H(dialect, "dialect.h")     \
  H(functions, "functions.h") \
  H(fused, "fused.h")         \
  H(halves, "halves.h")       \
  H(loops, "loops.h")         \
  H(numbers, "numbers.h")     \
  H(ops, "ops.def")

#define EMBED(name, file)                                   \
  __asm__(".section .rodata\n"                              \
          "tfd__header_" #name ":\n"                        \
          ".incbin \"src/backend/cuda/kernels/" file "\"\n" \
          ".byte 0\n.previous\n");                          \
  extern const char tfd__header_##name[];
HEADERS(EMBED)

/* There is no C library on a GPU. */
static const char stdint_text[] =
    "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\n"
    "typedef short int16_t;\ntypedef unsigned short uint16_t;\n"
    "typedef int int32_t;\ntypedef unsigned int uint32_t;\n"
    "typedef long int64_t;\ntypedef unsigned long uint64_t;\n"
    "#define INT64_MAX 0x7fffffffffffffffl\n";
static const char math_text[] = "#define INFINITY __int_as_float(0x7f800000)\n";

static const char *const header_names[] = {
#define NAME(name, file) "backend/cuda/kernels/" file,
    HEADERS(NAME)
#undef NAME
        "stdint.h",
    "math.h"};
static const char *const header_texts[] = {
#define TEXT(name, file) tfd__header_##name,
    HEADERS(TEXT)
#undef TEXT
        stdint_text,
    math_text};

enum { HEADERS_N = sizeof header_names / sizeof *header_names };

static uint64_t headers_hash(void) {
  uint64_t h = 0;
  int i;

  for (i = 0; i < HEADERS_N; i++) {
    h = 31 * h + tfd__cuda_hash(header_texts[i], strlen(header_texts[i]));
  }
  return h;
}

/* -------------------------------------------------------------------------- */

static int open_library(void) {
  static void *library;

  if (version[0] != 0 || version[1] != 0) return TFD_OK;
  if (library == NULL) {
    TFD_TRY(tfd__cuda_library("libnvrtc.so.13:libnvrtc.so.12", &library));
  }
#define FIND(name) TFD_TRY(tfd__cuda_symbol(library, #name, &rtc.name));
  FUNCTIONS(FIND)
#undef FIND
  if (rtc.nvrtcVersion(&version[0], &version[1]) != NVRTC_SUCCESS) {
    return tfd__fail(TFD_UNAVAILABLE, "NVRTC does not say its version");
  }
  return TFD_OK;
}

int tfd__cuda_nvrtc_open(void) {
  int rc;

  pthread_mutex_lock(&lock);
  rc = open_library();
  pthread_mutex_unlock(&lock);
  return rc;
}

static int check(nvrtcResult result, const char *what) {
  if (result == NVRTC_SUCCESS) return TFD_OK;
  return tfd__fail(TFD_INTERNAL, "NVRTC: %s: %s", what,
                   rtc.nvrtcGetErrorString(result));
}

/* The first line of what the compiler says. */
static int refuse(nvrtcProgram program, nvrtcResult result) {
  char line[512] = "";
  size_t bytes = 0;
  char *text = NULL;

  if (rtc.nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS) {
    text = malloc(bytes + 1);
  }
  if (text != NULL && rtc.nvrtcGetProgramLog(program, text) == NVRTC_SUCCESS) {
    text[bytes] = '\0';
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
  }
  free(text);
  return tfd__fail(TFD_INTERNAL, "NVRTC: compiling fused ops: %s: %s",
                   rtc.nvrtcGetErrorString(result), line);
}

static int take(nvrtcProgram program, tfd__cubin *cubin_p) {
  TFD_TRY(check(rtc.nvrtcGetCUBINSize(program, &cubin_p->bytes), "cubin"));
  cubin_p->data = malloc(cubin_p->bytes);
  if (cubin_p->data == NULL) {
    return tfd__no_memory(cubin_p->bytes, "fused ops");
  }
  return check(rtc.nvrtcGetCUBIN(program, cubin_p->data), "cubin");
}

static int compile(const char *source, const char *arch, tfd__cubin *cubin_p) {
  /* 186: `x < 0` where x is of an unsigned type. */
  const char *options[] = {arch, "--std=c++17", "--fmad=false",
                           "--diag-suppress=186"};
  nvrtcProgram program = NULL;
  nvrtcResult result;
  int rc;

  TFD_TRY(check(rtc.nvrtcCreateProgram(&program, source, "fused.cu", HEADERS_N,
                                       header_texts, header_names),
                "a program"));
  result = rtc.nvrtcCompileProgram(
      program, (int)(sizeof options / sizeof *options), options);
  rc = result == NVRTC_SUCCESS ? take(program, cubin_p)
                               : refuse(program, result);
  (void)rtc.nvrtcDestroyProgram(&program);
  if (rc != TFD_OK) {
    free(cubin_p->data);
    cubin_p->data = NULL;
  }
  return rc;
}

/* All that the machine code depends on. Owns: the text (malloc). */
static char *key_of(const char *source, const char *arch) {
  size_t room = strlen(source) + 128;
  char *key = malloc(room);

  if (key == NULL) return NULL;
  (void)snprintf(key, room, "NVRTC %d.%d %s headers %016llx\n%s", version[0],
                 version[1], arch, (unsigned long long)headers_hash(), source);
  return key;
}

static int find_or_compile(const char *source, int capability,
                           tfd__cubin *cubin_p) {
  char arch[40];
  char *key = NULL;
  int rc;

  TFD_TRY(open_library());
  (void)snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d", capability);
  key = key_of(source, arch);
  if (key == NULL) return tfd__no_memory(strlen(source), "fused ops");
  if (tfd__cuda_cubin_find(key, cubin_p)) {
    rc = TFD_OK;
  } else {
    rc = compile(source, arch, cubin_p);
    if (rc == TFD_OK) tfd__cuda_cubin_keep(key, cubin_p);
  }
  free(key);
  return rc;
}

int tfd__cuda_compile(const char *source, int capability, tfd__cubin *cubin_p) {
  int rc;

  memset(cubin_p, 0, sizeof *cubin_p);
  pthread_mutex_lock(&lock);
  rc = find_or_compile(source, capability, cubin_p);
  pthread_mutex_unlock(&lock);
  return rc;
}
