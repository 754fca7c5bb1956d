/* really ARCH FOLDER HEADER...: compiles FOLDER/fused.cu for sm_ARCH with the
** real NVRTC; 0 = without an error or a warning. */
#include <nvrtc.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

static std::string read_file(const std::string &path) {
  std::ifstream f(path, std::ios::binary);
  std::stringstream text;

  text << f.rdbuf();
  return text.str();
}

int main(int n, char **words) {
  std::string target = "--gpu-architecture=sm_" + std::string(words[1]);
  std::string folder = words[2];
  std::string source = read_file(folder + "/fused.cu");
  const char *options[] = {target.c_str(), "--std=c++17", "--fmad=false",
                           "--diag-suppress=186"};
  std::vector<std::string> texts;
  std::vector<const char *> list;
  nvrtcProgram program = nullptr;
  size_t bytes = 0;

  for (int i = 3; i < n; i++) {
    std::string name = words[i];
    bool libc = name.find('/') == std::string::npos;

    texts.push_back(read_file(folder + (libc ? "/libc/" : "/") + name));
  }
  for (const std::string &text : texts) list.push_back(text.c_str());
  nvrtcCreateProgram(&program, source.c_str(), "fused.cu", n - 3, list.data(),
                     words + 3);
  nvrtcResult result = nvrtcCompileProgram(program, 4, options);

  nvrtcGetProgramLogSize(program, &bytes);
  std::string log(bytes, '\0');

  if (bytes > 0) nvrtcGetProgramLog(program, &log[0]);
  log.resize(log.find('\0') == std::string::npos ? log.size() : log.find('\0'));
  std::cerr << log;
  if (result == NVRTC_SUCCESS) nvrtcGetCUBINSize(program, &bytes);
  return result == NVRTC_SUCCESS && bytes > 0 &&
                 log.find("warning") == std::string::npos
             ? 0
             : 1;
}
