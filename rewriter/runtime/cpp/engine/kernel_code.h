// Where the kernels come from: as they were compiled when the recorder was, from an earlier process, or from the
// compiler.
#pragma once

#include <dlfcn.h>
#include <glob.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <cstring>
#include <string>

#include "cpu.h"
#include "driver.h"
#include "files.h"

namespace inductor_rewriter::gpu {

// NVRTC, the compiler that torch ships: already loaded, or found beside torch's libraries, whose directory is `torch`.
struct Compiler {
  explicit Compiler(const std::string& torch) : library(open(torch)) {}

  void* const library;
  std::string problem = library ? "" : "no libnvrtc.so was found";  // why there is none
  int (*version)(int*, int*) = find("nvrtcVersion");
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*) =
      find("nvrtcCreateProgram");
  int (*compile)(void*, int, const char* const*) = find("nvrtcCompileProgram");
  int (*get_log_size)(void*, std::size_t*) = find("nvrtcGetProgramLogSize");
  int (*get_log)(void*, char*) = find("nvrtcGetProgramLog");
  int (*get_code_size)(void*, std::size_t*) = find("nvrtcGetCUBINSize");
  int (*get_code)(void*, char*) = find("nvrtcGetCUBIN");
  int (*destroy)(void**) = find("nvrtcDestroyProgram");

  // Such as "NVRTC 12.9", or why there is none.
  std::string describe() const {
    if (!problem.empty()) return problem;
    int major = 0, minor = 0;
    version(&major, &minor);
    return "NVRTC " + std::to_string(major) + "." + std::to_string(minor);
  }

 private:
  LibraryFunction find(const char* name) {
    const LibraryFunction found{library ? dlsym(library, name) : nullptr};
    if (!found.at && problem.empty()) problem = std::string("the compiler lacks ") + name;
    return found;
  }

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

// Compiled kernels that are linked to the recorder: for which device, such as 90, and where; then a 0.
extern "C" const int64_t inductor_rewriter_kernels[] __attribute__((weak, visibility("hidden")));

// Directories: of this library, beside which there may be compiled kernels; of torch's libraries; and for kernels
// that are compiled, or empty.
struct Places {
  std::string own, torch, cache;
};

// The kernels as they were compiled when the recorder was: linked to it, or in a file beside it. They are
// for this device, or for an earlier one of the same major version, whose code it runs. Null if there are none.
inline void* load_built(const Driver& driver, const std::string& own, int major, int minor) {
  void* module = nullptr;
  for (int target = 10 * major + minor; target >= 10 * major; --target) {
    const int64_t* linked = inductor_rewriter_kernels;
    for (; linked && linked[0]; linked += 2) {
      if (linked[0] != target) continue;
      if (!driver.load(&module, reinterpret_cast<const char*>(linked[1]))) return module;
    }
    if (own.empty()) continue;
    const std::string code = read_file(own + "/kernels-sm_" + std::to_string(target) + ".cubin");
    if (!code.empty() && !driver.load(&module, code.data())) return module;
  }
  return nullptr;
}

inline std::string compile(
    const Compiler& compiler, const char* source, const std::string& target, std::string& code) {
  const std::string architecture = "--gpu-architecture=sm_" + target;
  // Without fused operations, numbers are those of the CPU; fma() is called explicitly.
  const char* const options[] = {"-std=c++17", architecture.c_str(), "--fmad=false"};
  void* program = nullptr;
  if (compiler.create(&program, source, "measure.cu", 0, nullptr, nullptr)) {
    return "the compiler of kernels cannot start";
  }
  std::string problem;
  std::size_t size = 0;
  if (compiler.compile(program, 3, options)) {
    compiler.get_log_size(program, &size);
    std::string log(size, 0);
    if (size) compiler.get_log(program, &log[0]);
    const std::size_t at = log.find("error");
    problem = "the kernel was not compiled: " + log.substr(at == std::string::npos ? 0 : at, 200);
    problem.resize(std::strlen(problem.c_str()));
  } else {
    compiler.get_code_size(program, &size);
    code.resize(size);
    if (!size || compiler.get_code(program, &code[0])) problem = "the compiler gave no kernel";
  }
  compiler.destroy(&program);
  return problem;
}

// Loads the kernels for a device: as they were built, kept by an earlier process, or compiled now, and kept. Null
// if that fails, with the problem.
inline void* load_kernels(
    const Driver& driver, const char* source, const Places& places, int major, int minor, std::string& problem) {
  void* module = load_built(driver, places.own, major, minor);
  if (module) return module;
  const Compiler compiler(places.torch);
  problem = compiler.problem;
  const std::string target = std::to_string(10 * major + minor);
  std::string code, path;
  if (!places.cache.empty()) {
    // By all that the code depends on.
    const std::string from = std::string(source) + "\n" + target + "\n" + compiler.describe();
    path = places.cache + "/kernel-" + fingerprint_of(from) + ".bin";
    code = read_file(path);
    if (!code.empty() && !driver.load(&module, code.data())) return problem.clear(), module;
  }
  if (problem.empty()) problem = compile(compiler, source, target, code);
  if (!problem.empty()) return nullptr;
  try {
    if (!path.empty()) write_whole(path, code);
  } catch (const std::exception&) {
    // It is compiled again next time.
  }
  const int error = driver.load(&module, code.data());
  if (error) problem = driver_error("the kernel cannot be loaded", error);
  return error ? nullptr : module;
}

}  // namespace inductor_rewriter::gpu
