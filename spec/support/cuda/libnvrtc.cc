/* NVRTC without a GPU: the C++ compiler makes a shared object for the model of
** what is compiled, which libcuda's stand-in loads.
** TFD_STANDIN_NVRTC=80,90: the real NVRTC must compile it, too, for these.
** TFD_STANDIN_NVRTC_REFUSES: it compiles nothing. */
#include <nvrtc.h>

#include <atomic>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "standin.h"

extern char **environ;
extern "C" {
const int tfd_standin = 1;
}

struct _nvrtcProgram {
  std::string source;
  std::vector<std::string> names;
  std::vector<std::string> texts;
  std::string log;
  std::string cubin;
};

#define API extern "C" __attribute__((visibility("default"))) nvrtcResult

namespace {

/* --- files ---------------------------------------------------------------- */

bool write_file(const std::string &path, const std::string &text) {
  for (size_t at = path.find('/', 1); at != std::string::npos;
       at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), 0700);
  }
  FILE *f = fopen(path.c_str(), "wb");
  bool good =
      f != nullptr && fwrite(text.data(), 1, text.size(), f) == text.size();

  return f != nullptr && fclose(f) == 0 && good;
}

std::string read_file(const std::string &path) {
  FILE *f = fopen(path.c_str(), "rb");
  std::string text;
  char piece[4096];
  size_t n;

  if (f == nullptr) return text;
  while ((n = fread(piece, 1, sizeof piece, f)) > 0) text.append(piece, n);
  fclose(f);
  return text;
}

int run(const std::vector<std::string> &command, const std::string &log) {
  std::vector<char *> words;
  posix_spawn_file_actions_t files;
  pid_t pid = 0;
  int status = -1;

  for (const std::string &word : command) words.push_back((char *)word.c_str());
  words.push_back(nullptr);
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 2, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (posix_spawnp(&pid, words[0], &files, nullptr, words.data(), environ) ==
      0) {
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  }
  posix_spawn_file_actions_destroy(&files);
  return status;
}

/* --- the C++ compiler ----------------------------------------------------- */

const char ending[] = "\ntfd_model_kernel *tfd_model_kernels;\n"
                      "extern \"C\" __attribute__((visibility(\"default\")))\n"
                      "const tfd_model_kernel *tfd_module_kernels() {\n"
                      "  return tfd_model_kernels;\n"
                      "}\n";

/* The folder that this library lies in. */
std::string own_folder() {
  Dl_info info;
  std::string path;

  if (dladdr(&tfd_standin, &info) == 0) return ".";
  path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

bool compile_in(const std::string &folder, nvrtcProgram p) {
  bool good = write_file(folder + "/fused.cc", p->source + ending);

  for (size_t i = 0; i < p->names.size(); i++) {
    bool libc = p->names[i].find('/') == std::string::npos;

    good = good && write_file(folder + (libc ? "/libc/" : "/") + p->names[i],
                              p->texts[i]);
  }
  good = good && write_file(folder + "/fused.cu", p->source);
  good = good &&
         run({TFD_CXX, "-std=c++17", "-O1", "-fPIC", "-shared",
              "-fvisibility=hidden", "-DTFD_OWN_HALVES", "-I", folder, "-I",
              TFD_SOURCES "/spec/support/cuda", "-o", folder + "/fused.so",
              folder + "/fused.cc", "-L" + own_folder(), "-l:libcuda.so.1"},
             folder + "/log") == 0;
  p->log = read_file(folder + "/log");
  if (good) p->cubin = read_file(folder + "/fused.so");
  return !p->cubin.empty();
}

void remove_all(const std::string &folder) {
  run({"rm", "-rf", folder}, "/dev/null");
}

/* --- the real one: it asks libcuda for tables that the stand-in lacks, so in a
** process without that --- */

bool compile_really(const std::string &folder, nvrtcProgram p,
                    const std::string &arch) {
  std::vector<std::string> command = {own_folder() + "/really", arch, folder};

  for (const std::string &name : p->names) command.push_back(name);
  if (run(command, folder + "/log") == 0) return true;
  fprintf(stderr, "stand-in: NVRTC for sm_%s: %s\n%s\n", arch.c_str(),
          read_file(folder + "/log").c_str(), p->source.c_str());
  return false;
}

bool compile_for_all(const std::string &folder, nvrtcProgram p) {
  const char *list = getenv("TFD_STANDIN_NVRTC");
  std::string archs = list == nullptr ? "" : list;

  while (!archs.empty()) {
    size_t comma = archs.find(',');

    if (!compile_really(folder, p, archs.substr(0, comma))) return false;
    archs = comma == std::string::npos ? "" : archs.substr(comma + 1);
  }
  return true;
}

} // namespace

/* --- the API -------------------------------------------------------------- */

API nvrtcVersion(int *major, int *minor) {
  *major = 0; /* the stand-in's: no real one has it */
  *minor = 1;
  return NVRTC_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) const char *
nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_SUCCESS ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION";
}

API nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *,
                       int n, const char *const *texts,
                       const char *const *names) {
  *program = new _nvrtcProgram;
  (*program)->source = source;
  for (int i = 0; i < n; i++) {
    (*program)->names.push_back(names[i]);
    (*program)->texts.push_back(texts[i]);
  }
  return NVRTC_SUCCESS;
}

API nvrtcDestroyProgram(nvrtcProgram *program) {
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}

API nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options) {
  static std::atomic<int> number;
  std::string folder = "/tmp/tfd-nvrtc-" + std::to_string(getpid()) + "-" +
                       std::to_string(number++);
  bool good = false;

  for (int i = 0; i < n; i++) {
    if (strcmp(options[i], "--fmad=false") == 0) good = true;
  }
  if (getenv("TFD_STANDIN_NVRTC_REFUSES") != nullptr) good = false;
  if (!good || mkdir(folder.c_str(), 0700) != 0)
    return NVRTC_ERROR_INVALID_OPTION;
  good = compile_in(folder, p);
  if (!good) fprintf(stderr, "stand-in: %s\n", p->log.c_str());
  good = good && compile_for_all(folder, p);
  remove_all(folder);
  return good ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

API nvrtcGetCUBINSize(nvrtcProgram p, size_t *bytes) {
  *bytes = p->cubin.size();
  return NVRTC_SUCCESS;
}

API nvrtcGetCUBIN(nvrtcProgram p, char *cubin) {
  memcpy(cubin, p->cubin.data(), p->cubin.size());
  return NVRTC_SUCCESS;
}

API nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes) {
  *bytes = p->log.size() + 1;
  return NVRTC_SUCCESS;
}

API nvrtcGetProgramLog(nvrtcProgram p, char *log) {
  memcpy(log, p->log.c_str(), p->log.size() + 1);
  return NVRTC_SUCCESS;
}
