// The compiler of kernels: already loaded, or found beside torch's libraries.
#pragma once

#include <dlfcn.h>
#include <glob.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace inductor_rewriter::gpu {

// NVRTC, the compiler that torch ships: already loaded, or found beside torch's libraries.
struct Compiler {
  int (*version)(int*, int*) = nullptr;
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*) =
      nullptr;
  int (*compile)(void*, int, const char* const*) = nullptr;
  int (*get_log_size)(void*, std::size_t*) = nullptr;
  int (*get_log)(void*, char*) = nullptr;
  int (*get_code_size)(void*, std::size_t*) = nullptr;
  int (*get_code)(void*, char*) = nullptr;
  int (*destroy)(void**) = nullptr;

  // `torch` is the directory of torch's libraries. Returns why there is none.
  std::string find(const std::string& torch) {
    void* library = open(torch);
    if (!library) return "no libnvrtc.so was found";
    const std::pair<void*, const char*> names[] = {
        {&version, "nvrtcVersion"},
        {&create, "nvrtcCreateProgram"},
        {&compile, "nvrtcCompileProgram"},
        {&get_log_size, "nvrtcGetProgramLogSize"},
        {&get_log, "nvrtcGetProgramLog"},
        {&get_code_size, "nvrtcGetCUBINSize"},
        {&get_code, "nvrtcGetCUBIN"},
        {&destroy, "nvrtcDestroyProgram"},
    };
    for (const auto& [to, name] : names) {
      void* const function = dlsym(library, name);
      if (!function) return std::string("the compiler lacks ") + name;
      std::memcpy(to, &function, sizeof function);
    }
    return "";
  }

 private:
  static void* open(const std::string& torch) {
    const char* const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
    auto first = [&](int flags) -> void* {
      for (const char* name : names) {
        if (void* library = dlopen(name, flags)) return library;
      }
      return nullptr;
    };
    if (void* library = first(RTLD_NOLOAD | RTLD_LAZY)) return library;
    // A library of torch is linked with the compiler, so it has the compiler's path.
    if (dlopen((torch + "/libcaffe2_nvrtc.so").c_str(), RTLD_LAZY)) {
      if (void* library = first(RTLD_NOLOAD | RTLD_LAZY)) return library;
    }
    for (const std::string name : names) {
      if (void* library = dlopen((torch + "/" + name).c_str(), RTLD_LAZY)) return library;
      glob_t found;
      if (glob((torch + "/../../nvidia/*/lib/" + name).c_str(), 0, nullptr, &found)) continue;
      void* const library = dlopen(found.gl_pathv[0], RTLD_LAZY);
      globfree(&found);
      if (library) return library;
    }
    return first(RTLD_LAZY);
  }
};

// Which compiler would be used, such as "NVRTC 12.9", or why there is none. Works without a device.
inline std::string describe_compiler(const std::string& torch) {
  Compiler compiler;
  const std::string problem = compiler.find(torch);
  if (!problem.empty()) return problem;
  int major = 0, minor = 0;
  compiler.version(&major, &minor);
  return "NVRTC " + std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace inductor_rewriter::gpu
