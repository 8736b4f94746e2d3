// Where the kernels come from: as they were compiled when the recorder was, from an earlier process, or from the
// compiler.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "compiler.h"
#include "cpu.h"
#include "driver.h"

namespace inductor_rewriter::gpu {

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
    std::ifstream file(own + "/kernels-sm_" + std::to_string(target) + ".cubin", std::ios::binary);
    const std::string code{std::istreambuf_iterator<char>(file), {}};
    if (!code.empty() && !driver.load(&module, code.data())) return module;
  }
  return nullptr;
}

inline std::string compile(
    const Compiler& compiler, const char* source, const std::string& target,
    std::string& code) {
  std::vector<std::string> options = {"-std=c++17"};
  if (!target.empty()) {
    options.push_back("--gpu-architecture=sm_" + target);
    options.emplace_back("--fmad=false");  // numbers are those of the CPU; fma() is called explicitly
  } else {
    options.emplace_back("-ffp-contract=off");
  }
  std::vector<const char*> given;
  for (const std::string& option : options) given.push_back(option.c_str());
  void* program = nullptr;
  if (compiler.create(&program, source, "measure.cu", 0, nullptr, nullptr)) {
    return "the compiler of kernels cannot start";
  }
  std::string problem;
  if (compiler.compile(program, static_cast<int>(given.size()), given.data())) {
    std::size_t size = 0;
    compiler.get_log_size(program, &size);
    std::string log(size, 0);
    if (size) compiler.get_log(program, &log[0]);
    const std::size_t at = log.find("error");
    problem = "the kernel was not compiled: " + log.substr(at == std::string::npos ? 0 : at, 200);
    problem.resize(std::strlen(problem.c_str()));
  } else {
    std::size_t size = 0;
    compiler.get_code_size(program, &size);
    code.resize(size);
    if (!size || compiler.get_code(program, &code[0])) problem = "the compiler gave no kernel";
  }
  compiler.destroy(&program);
  return problem;
}

// The name contains the fingerprint of the source, the architecture and the compiler.
inline std::string file_name(
    const char* source, const std::string& target, const std::string& compiler) {
  const std::string all = std::string(source) + "\n" + target + "\n" + compiler;
  const int64_t shape = static_cast<int64_t>(all.size()), stride = 1;
  Layout layout = {dtypes::uint8, 1, shape, &shape, &stride, -1};
  Measured measured;
  measure_on_cpu(layout, all.data(), 1, measured);
  char name[80];
  std::snprintf(
      name, sizeof name, "kernel-%016llx%016llx.bin",
      static_cast<unsigned long long>(measured.fingerprint[0]),
      static_cast<unsigned long long>(measured.fingerprint[1]));
  return name;
}

inline std::string seal(const std::string& content) {
  const int64_t shape = static_cast<int64_t>(content.size()), stride = 1;
  Layout layout = {dtypes::uint8, 1, shape, &shape, &stride, -1};
  Measured measured;
  measure_on_cpu(layout, content.data(), 1, measured);
  std::string text(16, 0);
  std::memcpy(&text[0], measured.fingerprint, 16);
  return text;
}

inline bool read_file(const std::string& path, std::string& to) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) return false;
  char piece[1 << 16];
  std::string content;
  for (std::size_t size; (size = std::fread(piece, 1, sizeof piece, file)) > 0;) {
    content.append(piece, size);
  }
  std::fclose(file);
  // The file ends with 16 bytes that are computed from the rest: otherwise it is not complete.
  if (content.size() < 16) return false;
  const std::string end = content.substr(content.size() - 16);
  content.resize(content.size() - 16);
  if (end != seal(content)) return false;
  to = content;
  return true;
}

inline void write_file(const std::string& path, const std::string& content) {
  const std::string partial = path + "." + std::to_string(getpid()) + ".part";
  std::FILE* file = std::fopen(partial.c_str(), "wb");
  if (!file) return;
  const std::string end = seal(content);
  bool whole = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  whole = std::fwrite(end.data(), 1, end.size(), file) == end.size() && whole;
  whole = !std::fclose(file) && whole;
  if (!whole || std::rename(partial.c_str(), path.c_str())) std::remove(partial.c_str());
}

// The kernel for this device: kept from an earlier process, or compiled.
inline std::string find_code(
    const char* source, const Places& places, bool is_hip, const std::string& target, std::string& code) {
  Compiler compiler;
  const std::string problem = compiler.find(places.torch, is_hip);
  const std::string about = describe_compiler(places.torch, is_hip);
  const std::string path = places.cache.empty() ? "" : places.cache + "/" + file_name(source, target, about);
  if (!path.empty() && read_file(path, code)) return "";
  if (!problem.empty()) return problem;
  const std::string failed = compile(compiler, source, target, code);
  if (!failed.empty()) return failed;
  if (!path.empty()) write_file(path, code);
  return "";
}

// Loads the kernels for a device. Null if that fails, with the problem.
inline void* load_kernels(
    const Driver& driver, const char* source, const Places& places, int major, int minor, std::string& problem) {
  void* module = driver.is_hip ? nullptr : load_built(driver, places.own, major, minor);
  if (module) return module;
  std::string code;
  problem = find_code(source, places, driver.is_hip, driver.is_hip ? "" : std::to_string(10 * major + minor), code);
  if (!problem.empty()) return nullptr;
  const int error = driver.load(&module, code.data());
  if (error) problem = driver.describe("the kernel cannot be loaded", error);
  return error ? nullptr : module;
}

}  // namespace inductor_rewriter::gpu
