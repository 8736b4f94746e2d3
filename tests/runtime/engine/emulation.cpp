// The GPU's kernel on the host: blocks one after the other, the threads of a block as fibers that take
// turns at barriers and exchanges. Slow; for tests.
#include <setjmp.h>
#include <ucontext.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define __launch_bounds__(...)
#define __global__
#define __shared__ static
#define INDUCTOR_REWRITER_DEVICE [[maybe_unused]] static inline
#define INDUCTOR_REWRITER_RARE static
#define INDUCTOR_REWRITER_CONSTANT
#define INDUCTOR_REWRITER_SPECIAL inline
#define INDUCTOR_REWRITER_MEMBER inline
#define INDUCTOR_REWRITER_TABLE static const

namespace {

constexpr int width = 256;
struct Place {
  unsigned x;
};
Place threadIdx, blockIdx;

// A fiber begins by its context, and goes on by a jump: contexts save the mask of signals, too, which
// is a call of the system each time.
ucontext_t begins[width];
jmp_buf scheduler, fibers[width];
bool finished[width];
char* stacks;
uint64_t given[width];

int turns, arrived, alive, opens;  // opens: the turn in which those at the barrier go on

void wait() {
  const unsigned self = threadIdx.x;
  if (!_setjmp(fibers[self])) _longjmp(scheduler, 1);
  threadIdx.x = self;
}
// Those that have returned are not waited for. All go on in the same turn.
void arrive() {
  if (arrived && arrived == alive) {
    arrived = 0;
    opens = turns + 1;
  }
}
void __syncthreads() {
  const int before = opens;
  ++arrived;
  arrive();
  while (opens == before || turns < opens) wait();
}
// The threads of a warp come here in the same turn.
template <class T>
T __shfl_xor_sync(unsigned, T value, int with) {
  std::memcpy(&given[threadIdx.x], &value, sizeof value);
  wait();
  T result;
  std::memcpy(&result, &given[threadIdx.x ^ static_cast<unsigned>(with)], sizeof result);
  wait();
  return result;
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  std::memcpy(&given[threadIdx.x], &value, sizeof value);
  wait();
  T result;
  std::memcpy(&result, &given[threadIdx.x / 32 * 32 + static_cast<unsigned>(lane)], sizeof result);
  wait();
  return result;
}
uint32_t __ballot_sync(unsigned, bool value) {
  given[threadIdx.x] = value;
  wait();
  uint32_t result = 0;
  for (unsigned i = 0; i < 32; ++i) {
    result |= static_cast<uint32_t>(given[threadIdx.x / 32 * 32 + i]) << i;
  }
  wait();
  return result;
}
int __ffs(int bits) { return __builtin_ffs(bits); }
int __popc(uint32_t bits) { return __builtin_popcount(bits); }
uint32_t atomicAdd(uint32_t* at, uint32_t value) { return (*at += value) - value; }
void atomicMax(int* at, int value) { *at = value > *at ? value : *at; }
void __threadfence() {}
uint32_t atomicInc(uint32_t* at, uint32_t most) {
  const uint32_t old = *at;
  *at = old >= most ? 0 : old + 1;
  return old;
}
template <class To, class From>
To as(From from) {
  To to;
  static_assert(sizeof to == sizeof from);
  std::memcpy(&to, &from, sizeof to);
  return to;
}
long long __double_as_longlong(double value) { return as<long long>(value); }
double __longlong_as_double(long long bits) { return as<double>(bits); }
double __hiloint2double(int high, int low) {
  return as<double>(static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low));
}
float __uint_as_float(uint32_t bits) { return as<float>(bits); }
float __int_as_float(int32_t bits) { return as<float>(bits); }
uint32_t __float_as_uint(float value) { return as<uint32_t>(value); }
int32_t __float_as_int(float value) { return as<int32_t>(value); }

}  // namespace

#include "engine/kernel.h"
#define private public  // the driver's functions are put in
#define protected public
#include "engine/gpu.h"
#undef private
#undef protected
#include "engine/bands.h"
#include "engine/cpu.h"

namespace {

using namespace inductor_rewriter;

gpu::Job job;
gpu::QuickJob quick_job;
gpu::MergeJob merge_job;
MemoryJob memory_job;
gpu::JoinedJob joined_job;
enum { all, quick, merging, memory, both } kernel;

void call() {
  if (kernel == quick) inductor_rewriter_measure_quickly(quick_job);
  else if (kernel == merging) inductor_rewriter_merge(merge_job);
  else if (kernel == memory) inductor_rewriter_memory(memory_job);
  else if (kernel == both) inductor_rewriter_measure_and_act(joined_job);
  else inductor_rewriter_measure(job);
}

// The thread of each block with one number, one block after the other.
void body() {
  for (;;) {
    call();
    finished[threadIdx.x] = true;
    --alive;
    arrive();
    wait();
  }
}

void go_on(int thread) {
  static bool begun[width];
  threadIdx.x = static_cast<unsigned>(thread);
  if (_setjmp(scheduler)) return;
  if (begun[thread]) _longjmp(fibers[thread], 1);
  begun[thread] = true;
  setcontext(&begins[thread]);
}

void begin() {
  constexpr std::size_t stack = 64 << 10;
  stacks = static_cast<char*>(std::malloc(stack * width));
  for (int j = 0; j < width; ++j) {
    getcontext(&begins[j]);
    begins[j].uc_stack.ss_sp = stacks + stack * static_cast<std::size_t>(j);
    begins[j].uc_stack.ss_size = stack;
    begins[j].uc_link = nullptr;
    makecontext(&begins[j], body, 0);
  }
}

void run(unsigned blocks, bool lacks_first = false) {
  if (!stacks) begin();
  // The last blocks first: in which order they run must not matter. But where the last ones wait for the first:
  // on a GPU these run beside them, here one block runs at a time.
  for (unsigned i = 0; i < blocks; ++i) {
    blockIdx.x = kernel == both ? i : blocks - 1 - i;
    if (lacks_first && !blockIdx.x) break;
    for (bool& one : finished) one = false;
    turns = arrived = 0;
    opens = -1;
    alive = width;
    for (bool any = true; any; ++turns) {
      any = false;
      for (int j = 0; j < width; ++j) {
        if (finished[j]) continue;
        any = true;
        go_on(j);
      }
    }
  }
}

}  // namespace

// Measures tensors on the CPU: what the kernels are held against. How many were measured.
extern "C" int measure_here(const Layout* layouts, int count, Measured* to) {
  int done = 0;
  while (done < count && measure_on_cpu(layouts[done], 1, to[done])) ++done;
  return done;
}

// Compares guard bands on the CPU.
extern "C" int compare_here(const Band* bands, int count, uint64_t launch, Damage* damage) {
  return compare_bands(bands, count, launch, damage);
}

// A device whose launches run here, at once.
namespace {

// By the quick kernel, by the one for all tensors; blocks of the last of the quick one; by that which acts on
// memory behind measuring, and by that which acts alone.
int launched[5];
// What is wrong with launches of the quick kernel: they fail, or their first block does not come to its end.
enum Fault { none, fails, lacks_a_block } fault;

int launch_here(
    void* function, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
    void*, void** arguments, void**) {
  kernel = *static_cast<decltype(kernel)*>(function);
  if ((kernel == quick || kernel == both) && fault == fails) return 1;
  if (kernel == quick) quick_job = *static_cast<gpu::QuickJob*>(arguments[0]);
  else if (kernel == merging) merge_job = *static_cast<gpu::MergeJob*>(arguments[0]);
  else if (kernel == both) joined_job = *static_cast<gpu::JoinedJob*>(arguments[0]);
  else if (kernel == memory) memory_job = *static_cast<MemoryJob*>(arguments[0]);
  else job = *static_cast<gpu::Job*>(arguments[0]);
  if (kernel == quick || kernel == all) ++launched[kernel == all];
  if (kernel == quick) launched[2] = static_cast<int>(blocks);
  if (kernel == both || kernel == memory) ++launched[3 + (kernel == memory)];
  run(blocks, kernel == quick && fault == lacks_a_block);
  return 0;
}

Gpu& device_here() {
  static Gpu* const gpu = [] {
    static decltype(kernel) kernels[] = {all, quick, merging, memory, memory, both};
    auto* made = new Gpu;
    gpu::Driver& driver = made->driver_;
    driver.get_context = [](void** context) { return *context = nullptr, 0; };
    driver.set_context = [](void*) { return 0; };
    driver.allocate = [](uintptr_t* to, std::size_t size) {
      return *to = reinterpret_cast<uintptr_t>(std::malloc(size)), 0;
    };
    driver.clear = [](uintptr_t at, unsigned char byte, std::size_t size) {
      return std::memset(reinterpret_cast<void*>(at), byte, size), 0;
    };
    driver.allocate_host = [](void** to, std::size_t size, unsigned) {
      return *to = std::malloc(size), 0;
    };
    driver.get_device_pointer = [](uintptr_t* to, void* at, unsigned) {
      return *to = reinterpret_cast<uintptr_t>(at), 0;
    };
    driver.launch = launch_here;
    driver.synchronize = [](void*) { return 0; };
    for (int i = 0; i < Gpu::kernels; ++i) made->kernels_[i] = &kernels[i];
    made->processors_ = 3;
    made->most_gathered_ = (1 << 20) / fingerprint::vector_bytes;
    made->problem_ = made->take_memory();
    made->started_ = made->problem_.empty();
    return made;
  }();
  return *gpu;
}

}  // namespace

// Issues the measuring of tensors on one of several streams: the first row, or 0.
extern "C" uint64_t device_measure(const Layout* layouts, int count, int stream, int when) {
  Gpu& gpu = device_here();
  const uint64_t first = gpu.ring.reserve(static_cast<uint64_t>(count));
  void* const on = reinterpret_cast<void*>(static_cast<uintptr_t>(stream));
  const bool done = gpu.measure(layouts, count, on, first, static_cast<Gpu::When>(when));
  return done ? first : 0;
}

// Reads rows, for which so many nanoseconds were waited: how many are there. All up to these are released.
extern "C" int device_read(uint64_t first, int count, int64_t waited, Measured* to) {
  Gpu& gpu = device_here();
  int found = 0;
  for (int i = 0; i < count; ++i) found += gpu.find(first + static_cast<uint64_t>(i), waited, to[i]);
  static uint64_t unread = 1;
  const uint64_t behind = first + static_cast<uint64_t>(count);
  if (behind > unread) gpu.ring.release(unread, static_cast<uint32_t>(behind - unread));
  unread = std::max(unread, behind);
  return found;
}

extern "C" int device_waits() { return device_here().quick_job_.count != 0; }
extern "C" void device_merge() { device_here().merge(); }
extern "C" void device_break(Fault next) { fault = next; }

// Launches so far by kernel (`launched`).
extern "C" void device_launches(int* to) { std::memcpy(to, launched, sizeof launched); }

// Compares guard bands and fills memory by one job, once what waits on that stream is measured. Records of damage go
// to `damage`, if it is given. 1, or 0 if that was not done.
extern "C" int device_act(
    const Band* bands, int compared, uint64_t launch, const Filled* parts, int filled, int stream, Damage* damage) {
  MemoryJob wanted = {};
  wanted.launch = launch;
  wanted.bands_count = static_cast<uint32_t>(compared);
  wanted.parts_count = static_cast<uint32_t>(filled);
  std::copy(bands, bands + compared, wanted.bands);
  std::copy(parts, parts + filled, wanted.parts);
  Damage* const records = device_here().damage();
  if (damage) std::fill(records, records + most_damaged, Damage());
  const bool done = device_here().act(wanted, reinterpret_cast<void*>(static_cast<uintptr_t>(stream)), false);
  if (damage) std::copy(records, records + most_damaged, damage);
  return done;
}

// What a line about memory does: with a launch bands are compared, otherwise memory is filled.
struct MemoryStep {
  uint64_t launch;
  Band band;
  Filled part;
};

// Has lines wait for one another where they can: how many jobs that takes.
extern "C" int device_work(const MemoryStep* steps, int count, Damage* damage) {
  MemoryWork work;
  int jobs = 0;
  Damage* const records = device_here().damage();
  std::fill(records, records + most_damaged, Damage());
  const auto settle = [&] {
    if (work.is_empty()) return;
    jobs += device_here().act(work.job(), nullptr, false);
    work.clear();
  };
  for (int i = 0; i < count; ++i) {
    const MemoryStep& step = steps[i];
    if (step.launch) {
      if (!work.takes_bands(1)) settle();
      work.compare(&step.band, 1, step.launch, 0, nullptr);
      continue;
    }
    if (!work.takes(&step.part, 1, 0, nullptr)) settle();
    work.fill(&step.part, 1, 0, nullptr, 0);
  }
  settle();
  std::copy(records, records + most_damaged, damage);
  return jobs;
}
