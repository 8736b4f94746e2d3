// What the injected lines and the table in the header are made of.
//
//     Call _rw(wrapper);                first in an entry's body
//     _rw.inputs({arg0_1, arg1_1});     once the inputs have names
//     _rw.before(12, {arg0_1, s0});     around a launch
//     _rw.after(12, {buf1});
//
// Everything here has internal linkage: many instrumented libraries meet in one process.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <mutex>

#include "value.h"

namespace {
namespace inductor_rewriter {

struct Options {
  const char* artifact;
  const char* sha256;
  const char* version;
  const char* probes;  // names, separated by commas
  const char* when;    // before, after, both; empty: as each probe prefers
  const char* format;  // text or upstream
  bool values;
};

// One launch of the table. Labels are `role name[ expr]`, separated by `; `; null where nothing is
// injected at that phase.
struct Row {
  int launch;
  const char* kernel;
  const char* kind;
  const char* scope;
  int line;
  const char* source_nodes;
  const char* origins;
  bool repeats;
  const char* before;
  const char* after;
};

class Recorder;
struct Running;

// A wrapper's table. Initialised by the compiler; the first call makes what it needs at run time.
struct Wrapper {
  constexpr Wrapper(const Options& about, const Row* table, std::size_t count, const char* labels)
      : options(about), rows(table), size(count), inputs(labels) {}

  const Options& options;
  const Row* rows;
  std::size_t size;
  const char* inputs;
  std::atomic<Recorder*> recorder{nullptr};  // never freed: a thread may still be in a call
  std::atomic<bool> silent{false};
  std::mutex starting;
};

// One call of a wrapper. Nothing here throws, and nothing is done under REWRITER_PROBE=off.
class Call {
 public:
  __attribute__((noinline)) explicit Call(Wrapper& wrapper) noexcept;
  __attribute__((noinline)) ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  __attribute__((noinline)) void inputs(std::initializer_list<Value> values = {}) noexcept;
  __attribute__((noinline)) void before(
      int launch, std::initializer_list<Value> values = {}) noexcept;
  __attribute__((noinline)) void after(
      int launch, std::initializer_list<Value> values = {}) noexcept;

 private:
  Running* running_ = nullptr;
};

}  // namespace inductor_rewriter
}  // namespace
