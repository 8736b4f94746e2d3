// Stands between a library of AOTInductor and torch: a shared object that is loaded before torch
// (LD_PRELOAD). It defines the functions of the C shim that the library launches with, which
// `rewriter/execution/interposer.py` writes below this text, and takes the place of the library's own
// kernels. What is launched, and with which tensors, goes to a function that the process sets.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using Handle = void*;
// When (0 before, 1 after), which name, and its tensors: handles, addresses of their values, and
// how often memory was allocated there.
using Report = void (*)(int32_t, int32_t, int64_t, Handle*, int64_t*, int64_t*);

Report reported = nullptr;
pthread_t owner;  // the thread that is recorded

bool is_recorded() { return reported && pthread_equal(pthread_self(), owner); }

struct Seen {
  Handle handle;
  int64_t address;
};
std::vector<Seen> asked;                        // whose address was asked for since the last launch
std::unordered_map<int64_t, Handle> constants;  // those that were asked for before the first one
std::unordered_map<int64_t, int64_t> allocations;

// Python loads torch without making its symbols global, so the next one may not be found by order.
constexpr const char* LIBRARIES[] = {"libtorch_cpu.so", "libtorch_cuda.so", "libtorch_xpu.so",
                                     "libtorch_hip.so", "libcuda.so.1"};

template <typename F>
F real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  for (const char* library : LIBRARIES) {
    if (found) break;
    if (void* loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD)) found = dlsym(loaded, name);
  }
  if (!found) {
    std::fprintf(stderr, "[rewriter] torch has no %s\n", name);
    std::abort();
  }
  return reinterpret_cast<F>(found);
}

int64_t address_of(Handle handle) {
  static auto get = real<int32_t (*)(Handle, void**)>("aoti_torch_get_data_ptr");
  void* pointer = nullptr;
  get(handle, &pointer);
  return reinterpret_cast<int64_t>(pointer);
}

void report(int32_t phase, int32_t name, const std::vector<Handle>& handles) {
  if (!is_recorded()) return;
  std::vector<Handle> given;
  std::vector<int64_t> addresses, generations;
  for (Handle handle : handles) {
    if (!handle) continue;
    given.push_back(handle);
    addresses.push_back(address_of(handle));
    auto known = allocations.find(addresses.back());
    generations.push_back(known == allocations.end() ? 0 : known->second);
  }
  reported(phase, name, static_cast<int64_t>(given.size()), given.data(), addresses.data(),
           generations.data());
  asked.clear();
}

// A launch through the C shim: tensors that it is given, and those that it returns.
struct Launch {
  int32_t name;
  std::vector<Handle> given;
  std::vector<Handle*> returned;

  void begin() { report(0, name, given); }
  void end() {
    for (Handle* handle : returned)
      if (handle) given.push_back(*handle);
    report(1, name, given);
  }
};

// Kernels of the library: a jump at their beginning leads here, and is taken out while they run. So only
// one thread may launch them: another one would find them half patched.
#if defined(__x86_64__)
constexpr size_t JUMP = 14;
void write_jump(unsigned char* at, void* target) {
  const unsigned char code[6] = {0xff, 0x25, 0, 0, 0, 0};
  std::memcpy(at, code, 6);
  std::memcpy(at + 6, &target, 8);
}
#elif defined(__aarch64__)
constexpr size_t JUMP = 16;
void write_jump(unsigned char* at, void* target) {
  const uint32_t code[2] = {0x58000051, 0xd61f0220};  // ldr x17, #8; br x17
  std::memcpy(at, code, 8);
  std::memcpy(at + 8, &target, 8);
}
#else
constexpr size_t JUMP = 0;
void write_jump(unsigned char*, void*) {}
#endif

struct Kernel {
  int32_t name = 0;
  unsigned char* at = nullptr;
  unsigned char original[16];
  void* thunk = nullptr;
  std::vector<Handle> given;

  void divert() const {
    write_jump(at, thunk);
    __builtin___clear_cache(reinterpret_cast<char*>(at), reinterpret_cast<char*>(at + JUMP));
  }
  void restore() const {
    std::memcpy(at, original, JUMP);
    __builtin___clear_cache(reinterpret_cast<char*>(at), reinterpret_cast<char*>(at + JUMP));
  }
  // Tensors come first among the arguments, then sizes. Which those are, nothing in the library
  // says: they are what the wrapper has just asked the address of, or a constant.
  void begin(const int64_t* slots, size_t count) {
    if (!pthread_equal(pthread_self(), owner)) {
      std::fprintf(stderr, "[rewriter] the library launches kernels in several threads, which cannot "
                           "be recorded\n");
      std::abort();
    }
    given.clear();
    std::vector<Seen> left = asked;
    for (size_t slot = 0; slot < count; slot++) {
      Handle handle = nullptr;
      for (size_t one = 0; one < left.size() && !handle; one++)
        if (left[one].address == slots[slot]) {
          handle = left[one].handle;
          left.erase(left.begin() + one);
        }
      if (!handle) {
        auto constant = constants.find(slots[slot]);
        if (constant != constants.end()) handle = constant->second;
      }
      if (!handle) break;
      given.push_back(handle);
    }
    report(0, name, given);
    restore();
  }
  void end() {
    divert();
    report(1, name, given);
  }
};
Kernel kernels[REWRITER_KERNELS + 1];

}  // namespace

#define REWRITER_API extern "C" __attribute__((visibility("default")))

// From here on launches are reported; what was asked for until now were constants.
REWRITER_API void inductor_rewriter_report(Report report) {
  for (const Seen& one : asked) constants[one.address] = one.handle;
  asked.clear();
  owner = pthread_self();
  reported = report;
}

// Has a kernel at an address in memory reported. 0 where it cannot be.
REWRITER_API int32_t inductor_rewriter_kernel(int32_t index, int32_t name, void* at, void* thunk) {
  if (JUMP == 0) return 0;
  Kernel& kernel = kernels[index];
  kernel.name = name, kernel.at = static_cast<unsigned char*>(at), kernel.thunk = thunk;
  const int64_t page = sysconf(_SC_PAGESIZE), start = reinterpret_cast<int64_t>(at) & -page;
  const int64_t end = reinterpret_cast<int64_t>(at) + JUMP;
  if (mprotect(reinterpret_cast<void*>(start), end - start, PROT_READ | PROT_WRITE | PROT_EXEC))
    return 0;
  std::memcpy(kernel.original, at, JUMP);
  kernel.divert();
  return 1;
}

REWRITER_API int32_t aoti_torch_get_data_ptr(Handle tensor, void** pointer) {
  static auto get = real<int32_t (*)(Handle, void**)>("aoti_torch_get_data_ptr");
  const int32_t error = get(tensor, pointer);
  if (!error && (!reported || is_recorded())) asked.push_back({tensor, reinterpret_cast<int64_t>(*pointer)});
  return error;
}

REWRITER_API int32_t aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes,
                                              const int64_t* strides, int32_t dtype,
                                              int32_t device, int32_t index, Handle* tensor) {
  static auto make = real<decltype(&aoti_torch_empty_strided)>("aoti_torch_empty_strided");
  const int32_t error = make(ndim, sizes, strides, dtype, device, index, tensor);
  if (!error && is_recorded()) allocations[address_of(*tensor)]++;
  return error;
}
