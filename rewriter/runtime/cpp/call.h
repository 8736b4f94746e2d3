// The bodies of what a wrapper calls.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "awake.h"

namespace {
namespace inductor_rewriter {

// Held while the recorder of a wrapper is made.
inline std::mutex& starting() {
  static std::mutex mutex;
  return mutex;
}

inline void be_silent(Wrapper& wrapper, bool yes) {
  __atomic_store_n(&wrapper.silent, yes, __ATOMIC_RELAXED);
}

// The Recorder of a wrapper, or with dormant probes its Dormant; made at the first call. Null if there is
// nothing to do.
template <class Recorder>
Recorder* recorder_of(Wrapper& wrapper) {
  if (__atomic_load_n(&wrapper.silent, __ATOMIC_RELAXED)) return nullptr;
  void* made = __atomic_load_n(&wrapper.recorder, __ATOMIC_ACQUIRE);
  if (made) return static_cast<Recorder*>(made);
  std::lock_guard<std::mutex> guard(starting());
  made = __atomic_load_n(&wrapper.recorder, __ATOMIC_ACQUIRE);
  if (made) return static_cast<Recorder*>(made);
  const char* off = std::getenv("REWRITER_PROBE");
  if (off && (off[0] | 32) == 'o' && (off[1] | 32) == 'f' && (off[2] | 32) == 'f' && !off[3]) {
    be_silent(wrapper, true);
    return nullptr;
  }
  try {
    Recorder* recorder = new Recorder(wrapper);
    __atomic_store_n(&wrapper.recorder, static_cast<void*>(recorder), __ATOMIC_RELEASE);
    return recorder;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[rewriter] warning: no probes: %s\n", error.what());
    be_silent(wrapper, true);
    return nullptr;
  }
}

// For code that puts probes into a running program: calls that begin from now on are recorded into this
// directory, by a new recorder, or not at all if it is null. Waits until earlier calls are written. False if
// that failed.
inline bool record_into(Wrapper& wrapper, const char* directory, bool quiet) noexcept {
  if (wrapper.options.dormant) return false;  // its control file switches it
  std::lock_guard<std::mutex> guard(starting());
  try {
    void* const before = __atomic_load_n(&wrapper.recorder, __ATOMIC_ACQUIRE);
    if (directory) {
      void* const recorder = new Recorder(wrapper, directory, quiet);
      __atomic_store_n(&wrapper.recorder, recorder, __ATOMIC_RELEASE);
    }
    be_silent(wrapper, !directory);
    if (before) static_cast<Recorder*>(before)->finish();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[rewriter] warning: no probes: %s\n", error.what());
    be_silent(wrapper, true);
    return false;
  }
}

// Waits until the calls that ended are written.
inline void finish_writing(Wrapper& wrapper) noexcept {
  if (wrapper.options.dormant) return;
  void* const made = __atomic_load_n(&wrapper.recorder, __ATOMIC_ACQUIRE);
  if (!made) return;
  static_cast<Recorder*>(made)->read_replays();
  static_cast<Recorder*>(made)->finish();
}

Call::Call(Wrapper& wrapper) noexcept : picks_(wrapper.picks) {
  try {
    if (wrapper.options.dormant) {
      Dormant* dormant = recorder_of<Dormant>(wrapper);
      if (dormant) running_ = dormant->begin();
      return;
    }
    Recorder* recorder = recorder_of<Recorder>(wrapper);
    if (!recorder || recorder->is_worker() || recorder->is_fork()) return;
    running_ = recorder->begin();
  } catch (...) {
    // Out of memory: the model runs on without probes.
  }
}

Call::~Call() {
  if (!running_) return;
  RunningCall& running = *static_cast<RunningCall*>(running_);
  try {
    // A forked process must neither write nor free what it inherited.
    if (running.recorder.is_fork()) return;
    Session* const session = running.session;
    running.recorder.end(running);
    if (session) end_session(*session);
  } catch (...) {
    // Out of memory.
  }
}

inline void report_to(RunningCall& call, Phase phase, int launch, Contents& contents) {
  if (call.recorder.is_fork()) return;
  if (phase == Phase::inputs) call.recorder.at_inputs(call, contents);
  else call.recorder.at_launch(call, launch, phase == Phase::before, contents);
}

inline const char* pick_of(const Pick* picks, Phase phase, int launch) {
  if (phase == Phase::inputs) return picks[0].before;
  return phase == Phase::before ? picks[launch + 1].before : picks[launch + 1].after;
}

[[maybe_unused]] void Call::send(Phase phase, int launch, const char* codes, ...) noexcept {
  if (!running_) return;
  RunningCall& running = *static_cast<RunningCall*>(running_);
  va_list from;
  va_start(from, codes);
  try {
    Contents& contents = running.contents;
    contents.clear();
    contents.reserve(std::strlen(codes));
    const char* pick = picks_ ? pick_of(picks_, phase, launch) : nullptr;
    for (; *codes; ++codes) {
      using Kind = Content::Kind;
      if (pick && *pick++ == '0') {
        if (*codes == 'f') va_arg(from, double);
        else if (*codes == 't') va_arg(from, AtenTensorHandle);
        else va_arg(from, int64_t);
        continue;
      }
      contents.emplace_back();
      Content& content = contents.back();
      switch (*codes) {
        case 't':
          content.kind = Kind::tensor;
          content.handle = va_arg(from, AtenTensorHandle);
          continue;
        case 'f':
          content.kind = Kind::floating;
          content.floating = va_arg(from, double);
          continue;
      }
      content.integer = va_arg(from, int64_t);
      switch (*codes) {
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
    // Out of memory: the model runs on without this event.
  }
  va_end(from);
}

// Passes something to the memory probes, if there are any.
template <class Act>
inline void watch_memory(void* running, Act&& act) {
  if (!running) return;
  RunningCall& call = *static_cast<RunningCall*>(running);
  try {
    call.recorder.at_memory(call, act);
  } catch (...) {
    // Out of memory.
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
    int64_t offset) noexcept {
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
