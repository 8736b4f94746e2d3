// The bodies of what a wrapper calls.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "awake.h"

namespace {
namespace inductor_rewriter {

// The recorder of a wrapper, or what its dormant probes wait in, made when it is first called; null if
// there is nothing to do.
template <class Recorder>
Recorder* recorder_of(Wrapper& wrapper) {
  if (wrapper.silent.load(std::memory_order_relaxed)) return nullptr;
  void* made = wrapper.recorder.load(std::memory_order_acquire);
  if (made) return static_cast<Recorder*>(made);
  std::lock_guard<std::mutex> guard(wrapper.starting);
  made = wrapper.recorder.load();
  if (made) return static_cast<Recorder*>(made);
  const char* off = std::getenv("REWRITER_PROBE");
  if (off && (off[0] | 32) == 'o' && (off[1] | 32) == 'f' && (off[2] | 32) == 'f' && !off[3]) {
    wrapper.silent = true;
    return nullptr;
  }
  try {
    Recorder* recorder = new Recorder(wrapper);
    wrapper.recorder = recorder;
    return recorder;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[rewriter] warning: no probes: %s\n", error.what());
    wrapper.silent = true;
    return nullptr;
  }
}

// For who puts probes into a program that runs: calls that begin from now on are recorded into this
// directory, by a recorder of their own, and not at all where it is null. All of the calls that
// ended before is written then. False where that could not be done.
inline bool record_into(Wrapper& wrapper, const char* directory, bool quiet) noexcept {
  if (wrapper.options.dormant) return false;  // it is switched by its file
  std::lock_guard<std::mutex> guard(wrapper.starting);
  try {
    Recorder* before = static_cast<Recorder*>(wrapper.recorder.load());
    if (directory) wrapper.recorder = new Recorder(wrapper, directory, quiet);
    wrapper.silent = !directory;
    if (before) before->finish();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[rewriter] warning: no probes: %s\n", error.what());
    wrapper.silent = true;
    return false;
  }
}

// All of the calls that ended is written.
inline void finish_writing(Wrapper& wrapper) noexcept {
  if (wrapper.options.dormant) return;
  if (void* made = wrapper.recorder.load()) static_cast<Recorder*>(made)->finish();
}

Call::Call(Wrapper& wrapper) noexcept {
  try {
    if (wrapper.options.dormant) {
      Dormant* dormant = recorder_of<Dormant>(wrapper);
      if (dormant && !Recorder::is_worker()) running_ = dormant->begin();
      return;
    }
    Recorder* recorder = recorder_of<Recorder>(wrapper);
    if (!recorder || recorder->is_worker() || recorder->is_fork("begin")) return;
    running_ = recorder->begin();
  } catch (...) {
    // No memory: the model goes on without probes.
  }
}

Call::~Call() {
  if (!running_) return;
  RunningCall& running = *static_cast<RunningCall*>(running_);
  try {
    // What a fork inherited is not its to write, nor to free.
    if (running.recorder.is_fork("end")) return;
    Session* const session = running.session;
    running.recorder.end(running);
    if (session) end_session(*session);
  } catch (...) {
    // No memory.
  }
}

inline void report_to(RunningCall& call, Phase phase, int launch, Contents& contents) {
  if (call.recorder.is_fork("inputs", phase == Phase::inputs ? -1 : launch)) return;
  if (phase == Phase::inputs) call.recorder.at_inputs(call, contents);
  else call.recorder.at_launch(call, launch, phase == Phase::before, contents);
}

[[maybe_unused]] void Call::send(Phase phase, int launch, const char* codes, ...) noexcept {
  if (!running_) return;
  RunningCall& running = *static_cast<RunningCall*>(running_);
  va_list from;
  va_start(from, codes);
  try {
    Contents& contents = running.contents;
    contents.clear();
    contents.resize(std::strlen(codes));
    for (std::size_t i = 0; i < contents.size(); ++i) {
      using Kind = Content::Kind;
      Content& content = contents[i];
      switch (codes[i]) {
        case 't':
        case 'c':
          content.kind = Kind::tensor;
          content.is_constant = codes[i] == 'c';
          content.handle = va_arg(from, AtenTensorHandle);
          continue;
        case 'f':
          content.kind = Kind::floating;
          content.floating = va_arg(from, double);
          continue;
      }
      content.integer = va_arg(from, int64_t);
      switch (codes[i]) {
        case 'i': content.kind = Kind::integer; break;
        case 'u': content.kind = Kind::unsigned_integer; break;
        case 'b': content.kind = Kind::boolean; break;
        case 'k': content = running.kept[static_cast<std::size_t>(content.integer)]; break;
        default: break;
      }
    }
    report_to(running, phase, launch, contents);
    running.kept.clear();
  } catch (...) {
    // No memory: the model goes on without this event.
  }
  va_end(from);
}

// Hands something over to what acts on memory, if there is that.
template <class Act>
inline void watch_memory(void* running, Act&& act) {
  if (!running) return;
  RunningCall& call = *static_cast<RunningCall*>(running);
  try {
    call.recorder.at_memory(call, act);
  } catch (...) {
    // No memory.
  }
}

[[maybe_unused]] AtenTensorHandle Call::replace(int event, AtenTensorHandle made) noexcept {
  AtenTensorHandle other = nullptr;
  watch_memory(running_, [&](MemoryWatch& watch, RunningCall& call) {
    if (made) other = watch.allocated(call, event, made);
  });
  return other;
}

[[maybe_unused]] void Call::reused(int event, AtenTensorHandle buffer) noexcept {
  watch_memory(running_, [&](MemoryWatch& watch, RunningCall& call) {
    if (buffer) watch.gone(call, event, buffer, true);
  });
}

[[maybe_unused]] void Call::released(int event, AtenTensorHandle buffer) noexcept {
  watch_memory(running_, [&](MemoryWatch& watch, RunningCall& call) {
    if (buffer) watch.gone(call, event, buffer, false);
  });
}

[[maybe_unused]] void Call::checked(int launch) noexcept {
  watch_memory(running_, [&](MemoryWatch& watch, RunningCall& call) { watch.checked(call, launch); });
}

[[maybe_unused]] Kept Call::keep(
    AtenTensorHandle base, int64_t dim, const int64_t* sizes, const int64_t* strides,
    int64_t offset, bool is_constant) noexcept {
  Array array{};
  array.sizes = sizes;
  array.strides = strides;
  array.dim = dim;
  Kept kept = keep(array);
  if (!running_) return kept;
  Content& view = static_cast<RunningCall*>(running_)->kept.back();
  view.kind = Content::Kind::view;
  view.handle = base;
  view.offset = offset;
  view.is_constant = is_constant;
  return kept;
}

[[maybe_unused]] Kept Call::keep(const Array& array) noexcept {
  if (!running_) return {0};
  Contents& all = static_cast<RunningCall*>(running_)->kept;
  all.emplace_back();
  all.back().kind = Content::Kind::array;
  all.back().array = array;
  return {static_cast<int64_t>(all.size()) - 1};
}

}  // namespace inductor_rewriter
}  // namespace
