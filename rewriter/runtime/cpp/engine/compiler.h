// The compiler of kernels: already loaded, or found beside torch's libraries.
#pragma once

#include <dlfcn.h>
#include <glob.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace inductor_rewriter::gpu {

// NVRTC or hipRTC, the compiler that torch ships: already loaded, or found beside torch's libraries.
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

  // `torch` is the directory of torch's libraries.
  std::string find(const std::string& torch, bool is_hip) {
    void* library = open(torch, is_hip);
    if (!library) return is_hip ? "no libhiprtc.so was found" : "no libnvrtc.so was found";
    struct Name {
      void* to;
      const char* cuda;
      const char* hip;
    };
    const Name names[] = {
        {&version, "nvrtcVersion", "hiprtcVersion"},
        {&create, "nvrtcCreateProgram", "hiprtcCreateProgram"},
        {&compile, "nvrtcCompileProgram", "hiprtcCompileProgram"},
        {&get_log_size, "nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize"},
        {&get_log, "nvrtcGetProgramLog", "hiprtcGetProgramLog"},
        {&get_code_size, "nvrtcGetCUBINSize", "hiprtcGetCodeSize"},
        {&get_code, "nvrtcGetCUBIN", "hiprtcGetCode"},
        {&destroy, "nvrtcDestroyProgram", "hiprtcDestroyProgram"},
    };
    for (const Name& name : names) {
      void* function = dlsym(library, is_hip ? name.hip : name.cuda);
      if (!function) return std::string("the compiler lacks ") + (is_hip ? name.hip : name.cuda);
      std::memcpy(name.to, &function, sizeof function);
    }
    return "";
  }

 private:
  static void* open(const std::string& torch, bool is_hip) {
    const std::vector<std::string> names = is_hip
        ? std::vector<std::string>{"libhiprtc.so", "libhiprtc.so.6", "libhiprtc.so.7"}
        : std::vector<std::string>{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
    auto first = [&](int flags) -> void* {
      for (const std::string& name : names) {
        if (void* library = dlopen(name.c_str(), flags)) return library;
      }
      return nullptr;
    };
    if (void* library = first(RTLD_NOLOAD | RTLD_LAZY)) return library;
    // A library of torch is linked with the compiler, so it has the compiler's path.
    if (!is_hip && dlopen((torch + "/libcaffe2_nvrtc.so").c_str(), RTLD_LAZY)) {
      if (void* library = first(RTLD_NOLOAD | RTLD_LAZY)) return library;
    }
    for (const std::string& name : names) {
      const std::string beside = torch + "/" + name;
      if (void* library = dlopen(beside.c_str(), RTLD_LAZY)) return library;
      glob_t found;
      void* library = nullptr;
      if (!glob((torch + "/../../nvidia/*/lib/" + name).c_str(), 0, nullptr, &found)) {
        library = dlopen(found.gl_pathv[0], RTLD_LAZY);
        globfree(&found);
      }
      if (library) return library;
    }
    return first(RTLD_LAZY);
  }
};

// Which compiler would be used, such as "NVRTC 12.9", or why there is none. Works without a device.
inline std::string describe_compiler(const std::string& torch, bool is_hip) {
  Compiler compiler;
  const std::string problem = compiler.find(torch, is_hip);
  if (!problem.empty()) return problem;
  int major = 0, minor = 0;
  compiler.version(&major, &minor);
  return std::string(is_hip ? "hipRTC " : "NVRTC ") + std::to_string(major) + "." +
      std::to_string(minor);
}

}  // namespace inductor_rewriter::gpu
