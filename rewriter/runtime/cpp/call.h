// The functions of the recorder that a wrapper calls.
#pragma once

#include <pthread.h>

#include <cstdarg>
#include <exception>
#include <mutex>

#include "dormant.h"
#include "engine/process.h"
#include "recorder_events.h"

namespace inductor_rewriter {

// Held while the recorder of a wrapper is made.
inline std::mutex& starting() {
  static std::mutex mutex;
  return mutex;
}

// No other thread holds these locks when the process forks, so that the fork can take them.
inline void hold_locks_while_forking() {
  const auto unlock = [] {
    Writers::lock().unlock();
    starting().unlock();
  };
  static const int registered = pthread_atfork(
      [] {
        starting().lock();
        Writers::lock().lock();
      },
      unlock, unlock);
  static_cast<void>(registered);
}

// What was read of a table; done at the first call, and never freed, since a thread may be in a call. The
// library with the table stays loaded then, where the recorder is another one: it points to the table.
inline Wrapper& read(Table& table) {
  void* made = __atomic_load_n(&table.made, __ATOMIC_ACQUIRE);
  if (!made) {
    hold_locks_while_forking();
    const std::lock_guard<std::mutex> guard(starting());
    made = __atomic_load_n(&table.made, __ATOMIC_ACQUIRE);
    if (!made) {
      made = new Wrapper(table);
      stay_loaded(&table);
      __atomic_store_n(&table.made, made, __ATOMIC_RELEASE);
    }
  }
  return *static_cast<Wrapper*>(made);
}

// The Recorder of a wrapper, or with dormant probes its Dormant; made at the first call. Null if there is
// nothing to do.
template <class Recorder>
Recorder* recorder_of(Wrapper& wrapper) {
  if (wrapper.silent.load(std::memory_order_relaxed)) return nullptr;
  void* made = wrapper.recorder.load(std::memory_order_acquire);
  if (made) return static_cast<Recorder*>(made);
  const std::lock_guard<std::mutex> guard(starting());
  made = wrapper.recorder.load(std::memory_order_acquire);
  if (made) return static_cast<Recorder*>(made);
  if (is_off(environment("REWRITER_PROBE"))) {
    wrapper.silent = true;
    return nullptr;
  }
  try {
    Recorder* recorder = new Recorder(wrapper);
    wrapper.recorder.store(recorder, std::memory_order_release);
    return recorder;
  } catch (const std::exception& error) {
    Printer::say(std::string("[rewriter] warning: no probes: ") + error.what() + "\n");
    wrapper.silent = true;
    return nullptr;
  }
}

// For code that puts probes into a running program: calls that begin from now on are recorded into this
// directory, by a new recorder, or not at all if it is null. Waits until earlier calls are written. False if
// that failed.
inline bool record_into(Table& table, const char* directory, bool quiet) noexcept {
  try {
    Wrapper& wrapper = read(table);
    if (wrapper.options.dormant) return false;  // its control file switches it
    const std::lock_guard<std::mutex> guard(starting());
    void* const before = wrapper.recorder.load(std::memory_order_acquire);
    try {
      if (directory) {
        wrapper.recorder.store(new Recorder(wrapper, directory, quiet), std::memory_order_release);
      }
      wrapper.silent = !directory;
    } catch (...) {
      wrapper.silent = true;
      throw;
    }
    if (before) static_cast<Recorder*>(before)->finish();
    return true;
  } catch (const std::exception& error) {
    Printer::say(std::string("[rewriter] warning: no probes: ") + error.what() + "\n");
    return false;
  }
}

// The recorder of a table; null if there was no call yet, or if its probes are dormant.
inline Recorder* recorder_made(Table& table) {
  void* const made = __atomic_load_n(&table.made, __ATOMIC_ACQUIRE);
  if (!made) return nullptr;
  const Wrapper& wrapper = *static_cast<Wrapper*>(made);
  return wrapper.options.dormant ? nullptr : static_cast<Recorder*>(wrapper.recorder.load());
}

inline void finish_writing(Table& table) noexcept {
  Recorder* const recorder = recorder_made(table);
  if (!recorder) return;
  recorder->read_replays();
  recorder->finish();
}

// Does what a line of a wrapper asks for. Out of memory, the model runs on without it.
template <class Act>
void spare_model(Act&& act) noexcept {
  try {
    act();
  } catch (...) {
  }
}

inline void* begin_call(Table& table) noexcept {
  std::unique_ptr<RunningCall> call;
  spare_model([&] {
    Wrapper& wrapper = read(table);
    if (wrapper.options.dormant) {
      if (Dormant* dormant = recorder_of<Dormant>(wrapper)) call = dormant->begin();
    } else {
      Recorder* recorder = recorder_of<Recorder>(wrapper);
      if (recorder && !recorder->is_worker() && !recorder->is_fork()) call = recorder->begin();
    }
    if (call) call->picks = wrapper.picks;
  });
  return call.release();  // `end_call` takes it again
}

inline void end_call(void* call) noexcept {
  RunningCall& running = *static_cast<RunningCall*>(call);
  spare_model([&] {
    // A forked process must neither write nor free what it inherited.
    if (running.recorder.is_fork()) return;
    Session* const session = running.session;
    running.recorder.end(std::unique_ptr<RunningCall>(&running));
    if (session) session->of.end(*session);
  });
}

inline const char* pick_of(const Pick* picks, char phase, int launch) {
  if (phase == 'i') return picks[0].before;
  return phase == 'b' ? picks[launch + 1].before : picks[launch + 1].after;
}

// A tensor or number, by the kind of a `Value` or an `Object`; for others something that only has a name.
inline Content content_of(char kind, int64_t integer, double floating, AtenTensorHandle handle) {
  using Kind = Content::Kind;
  Content content;
  content.integer = integer;
  switch (kind) {
    case 't':
      content.kind = Kind::tensor;
      content.seen.handle = handle;
      break;
    case 'f':
      content.kind = Kind::floating;
      content.floating = floating;
      break;
    case 'i': content.kind = Kind::integer; break;
    case 'u': content.kind = Kind::unsigned_integer; break;
    case 'b': content.kind = Kind::boolean; break;
    default: break;
  }
  return content;
}

[[maybe_unused]] inline void take_line(void* call, char phase, int launch, int count, ...) noexcept {
  RunningCall& running = *static_cast<RunningCall*>(call);
  va_list from;
  va_start(from, count);
  spare_model([&] {
    Contents& contents = running.contents;
    contents.clear();
    contents.reserve(static_cast<std::size_t>(count));
    if (running.recorder.is_fork()) return;
    const char* pick = running.picks ? pick_of(running.picks, phase, launch) : nullptr;
    for (int i = 0; i < count; ++i) {
      const Value value = va_arg(from, Value);
      if (pick && pick[i] == '0') continue;
      if (value.kind == 'k') contents.push_back(running.kept[static_cast<std::size_t>(value.integer)]);
      else contents.push_back(content_of(value.kind, value.integer, value.floating, value.handle));
    }
    if (phase == 'i') running.recorder.at_inputs(running, contents);
    else running.recorder.at_launch(running, launch, phase == 'b', contents);
    running.kept.clear();
  });
  va_end(from);
}

inline Value keep(void* call, const Content& content) noexcept {
  Contents& kept = static_cast<RunningCall*>(call)->kept;
  try {
    kept.push_back(content);
    return {'k', static_cast<int64_t>(kept.size()) - 1};
  } catch (...) {
    return {'o'};  // out of memory
  }
}

inline Value keep_view(
    void* call, Value of, int64_t dim, const int64_t* sizes, const int64_t* strides, int64_t offset) noexcept {
  Content content;
  content.kind = Content::Kind::view;
  content.seen = {false, false, true, -1, 0, -1, dim, offset, sizes, strides, of.handle, nullptr};
  return keep(call, content);
}

inline Value keep_array(
    void* call, const void* data, const char* type, int64_t dim, const int64_t* sizes,
    const int64_t* strides, int32_t device_type, int32_t device_index) noexcept {
  Content content;
  content.kind = Content::Kind::array;
  const int32_t index = device_type == aoti_torch_device_type_cpu() ? -1 : device_index;
  content.seen = {true, true, true, dtype_named(type), device_type, index, dim, 0, sizes, strides, nullptr,
                  static_cast<const char*>(data)};
  return keep(call, content);
}

inline AtenTensorHandle pass_memory_line(
    void* call, char line, int number, AtenTensorHandle buffer, const char* problem) noexcept {
  RunningCall& running = *static_cast<RunningCall*>(call);
  AtenTensorHandle other = nullptr;
  spare_model([&] {
    running.recorder.at_memory([&](MemoryOfWrapper& watch) {
      if (line == 'c') watch.checked(running, number);
      else if (buffer && line == 'a') other = watch.allocated(running, number, buffer, problem);
      else if (buffer) watch.gone(running, number, buffer, line == 'r', problem);
    });
  });
  return other;
}

inline const Functions* own_functions() {
  static const Functions all{
      begin_call, end_call, take_line, keep_view,
      [](void* call, char line, int number, AtenTensorHandle buffer) noexcept {
        return pass_memory_line(call, line, number, buffer, nullptr);
      },
      keep_array};
  return &all;
}

}  // namespace inductor_rewriter
