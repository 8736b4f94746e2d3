// What follows from a NaN that the probe `nan` found: nothing if `--allow` names it; with `--stop` the program
// ends, once everything that was recorded is written.
#pragma once

#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <mutex>
#include <string>
#include <thread>

#include "call_directory.h"
#include "engine/files.h"
#include "engine/process.h"
#include "event.h"
#include "json.h"

namespace inductor_rewriter {

// Whether a value may be NaN or infinite: `Allowed` in rewriter/dump/allowed.py.
inline bool is_allowed(const char* patterns, const std::string& kernel, const std::string& name) {
  auto fits = [](const std::string& pattern, const std::string& text) {
    return !fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE);
  };
  for (const std::string& pattern : split(patterns, "; ")) {
    const std::size_t colon = pattern.rfind(':');
    if (colon == std::string::npos || !fits(pattern.substr(0, colon), kernel)) continue;
    const std::string value = pattern.substr(colon + 1);
    if (fits(value, name) || fits(value, name.substr(0, name.find('[')))) return true;
  }
  return false;
}

// The first NaN, at which the program ends.
class Finding {
 public:
  bool is_there() const { return is_there_; }

  // `to` is the call in the dump; null if there is none.
  void note(const Event& event, const Item& item, const CallDirectory* to) {
    std::lock_guard<std::mutex> guard(lock_);
    if (is_there_) return;
    const Row* const row = event.launch ? event.launch->row : nullptr;
    const int64_t numel = item.tensor.numel;
    const std::string& name = item.label->name;
    text_ = " stopped at " + (row ? "#" + std::to_string(row->launch) + " " + row->kernel : "the inputs") + ": " +
        std::to_string(item.measurement.nan) + " of " + std::to_string(numel) +
        (numel == 1 ? " element of " + name + " is" : " elements of " + name + " are") + " NaN (--stop)\n";
    call_ = event.call;
    if (to) {
      path_ = to->root() + "/stopped.json";
      facts_.open('{').key("format").string("rewriter.stopped").key("version").number(1);
      facts_.key("run").string(to->run()).key("pid").number(getpid());
      facts_.key("launch").put(row ? std::to_string(row->launch) : "null");
      facts_.key("kernel").string(row ? row->kernel : "").key("arg").string(name).close('}').text += '\n';
    }
    is_there_ = true;
  }

  int64_t call() const { return call_; }
  // What the program ends with, after the beginning of every line.
  const std::string& text() const { return text_; }
  // Records in the dump that the program ended here; only the first process does.
  void write() const {
    if (!path_.empty()) write_file(path_, O_EXCL, facts_.text.data(), facts_.text.size());
  }

 private:
  std::mutex lock_;
  std::atomic<bool> is_there_{false};
  int64_t call_ = 0;
  std::string text_, path_;
  Json facts_{true};
};

// Flushes what a Python program has printed. A thread without Python's lock waits for it no longer than
// five seconds: its owner may wait for this thread, and a process that exits never releases it.
inline void flush_python() {
  int (*const initialized)() = loaded("Py_IsInitialized");
  int (*const holds_lock)() = loaded("PyGILState_Check");
  int (*const ensure)() = loaded("PyGILState_Ensure");
  int (*const run)(const char*) = loaded("PyRun_SimpleString");
  if (!initialized || !holds_lock || !ensure || !run || !initialized()) return;
  const char* const text = "import sys\nfor _ in (sys.stdout, sys.stderr):\n  try: _.flush()\n  except Exception: 0\n";
  if (holds_lock()) return static_cast<void>(run(text));
  static std::promise<void> done;
  auto flushed = done.get_future();
  std::thread([=] {
    ensure();  // never released: the process ends
    run(text);
    done.set_value();
  }).detach();
  flushed.wait_for(std::chrono::seconds(5));
}

// Ends the process, not by an exception, which no caller of a kernel expects. Flushes what the
// program has printed first, also in Python.
[[noreturn]] inline void end_process(const std::string& message) {
  static std::atomic<bool> ending{false};
  while (ending.exchange(true)) pause();  // another thread ends it
  flush_python();
  std::fflush(nullptr);
  std::fwrite(message.data(), 1, message.size(), stderr);
  std::fflush(stderr);
  _exit(1);
}

}  // namespace inductor_rewriter
