// What the probes of one wrapper write, in order: printed lines, warnings, and rows of its calls.
#pragma once

#include <fcntl.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "engine/files.h"
#include "engine/writer.h"
#include "event.h"
#include "rows.h"
#include "running_call.h"
#include "settings.h"

namespace inductor_rewriter {

// Opens the standard streams that are closed, on nothing. Else the next file that is opened has the number
// of one, such as a file of the dump, and gets the printed lines.
inline void hold_standard_streams() {
  int file = -1;
  do file = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  while (file >= 0 && file <= STDERR_FILENO);
  if (file >= 0) ::close(file);
}

// Where wrappers in Python print: a descriptor, or texts that the extension module takes.
struct PythonOutput {
  static constexpr int collects = -1;

  // The text, if it is collected.
  bool take(const std::atomic<int>& to, std::string& all, const char* text, std::size_t size) {
    if (to.load(std::memory_order_relaxed) != collects) return false;
    std::lock_guard<std::mutex> guard(lock);
    all.append(text, size);
    return true;
  }
  static PythonOutput& get() {
    static PythonOutput& output = *new PythonOutput;
    return output;
  }

  std::mutex lock;
  std::atomic<int> descriptor{STDOUT_FILENO}, error_descriptor{STDERR_FILENO};
  std::string lines, messages;
};

// Standard output and standard error of one wrapper.
class Printer {
 public:
  explicit Printer(const Options& options, bool be_quiet = false)
      : rank(read_rank()), upstream(!std::strcmp(options.format, "upstream")),
        quiet(be_quiet || options.quiet || read_quiet()), of_python(options.of_python), label_(options.label) {
    hold_standard_streams();
  }

  const int rank;
  const bool upstream;
  const bool quiet;
  const bool of_python;  // whether the wrapper is in Python

  // Writes to standard output immediately: what follows may crash. Flushes C's buffer first, and
  // uses one system call, so that other output does not come in between.
  void write_now(const char* text, std::size_t size) {
    if (quiet) return;
    int to = fileno(stdout);
    if (of_python) {
      PythonOutput& output = PythonOutput::get();
      if (output.take(output.descriptor, output.lines, text, size)) return;
      to = output.descriptor;
    }
    if (__fpending(stdout)) std::fflush(stdout);
    std::size_t done;
    if (const int problem = write_all(to, text, size, done)) {
      warn("stdout", std::string("lines cannot be printed: ") + std::strerror(problem));
    }
  }

  // Writes a warning to standard error, once, for the first launch that it is about.
  void warn(const std::string& about, const std::string& message) {
    std::lock_guard<std::mutex> guard(warning_);
    // Two messages that differ only in paths and numbers are the same message.
    std::string text, word;
    for (char letter : message + " ") {
      if (letter != ' ') {
        if (letter < '0' || letter > '9') word += letter;
        continue;
      }
      if (word.find('/') == std::string::npos) text += word + letter;
      word.clear();
    }
    if (warned_.insert(text).second) say(rank, about, message);
  }

  static void say(int rank, const std::string& about, const std::string& message) {
    say("[rewriter " + std::to_string(rank) + "] warning: " + about + ": " + message + "\n");
  }

  static void say(const std::string& line) {
    PythonOutput& output = PythonOutput::get();
    if (output.take(output.error_descriptor, output.messages, line.data(), line.size())) return;
    std::fwrite(line.data(), 1, line.size(), stderr);
  }

  // The beginning of a line: `[rewriter 0] forward call 3`. A wrapper that was instrumented alone
  // has no label, and its first call no number.
  std::string start(int64_t call) const {
    std::string text = "[rewriter " + std::to_string(rank) + "]", label = label_;
    if (!label.empty()) text += " " + label;
    if (label.empty() && !call) return text;
    return text + " call " + std::to_string(call);
  }

  // `[rewriter 0] #12.1 before KERNEL`, or `[rewriter 0] inputs`.
  std::string line(const Event& event) const { return start(event.call) + " " + line_text(event); }

  // `[rewriter 0] #12 KERNEL`, for a line about a launch as a whole.
  std::string about(const Event& event) const {
    const std::string text = start(event.call) + " " + launch_text(event.launch, event.phase, event.iteration);
    return event.launch ? text + " " + event.launch->row->kernel : text;
  }

 private:
  static bool read_quiet() {
    const std::string quiet = environment("REWRITER_QUIET");
    return !quiet.empty() && quiet != "0";
  }

  const char* const label_;
  std::mutex warning_;
  std::set<std::string> warned_;
};

// Printing, after what other jobs print and write.
class QueuedOutput : public Printer, public Writer {
 public:
  QueuedOutput(const Options& options, bool be_quiet) : Printer(options, be_quiet) {}

  // Writes to standard output, after all earlier output.
  void write(std::string text) {
    if (text.empty() || quiet) return;
    if (is_emitting()) return collect(text);
    put(job_of([this, own = std::move(text)] { collect(own); }));
  }

  // Adds a separate row about an event to the dump, if there is one, after all earlier rows; `add` writes its fields.
  template <class Add>
  void note(RunningCall& call, const Event& event, Add&& add) {
    if (!call.directory) return;
    Json json(false);
    open_row(json, event);
    add(json);
    json.close('}').text += '\n';
    if (is_emitting()) add_row(call, json.text);
    else put(job_of([this, &call, own = std::move(json.text)] { add_row(call, own); }));
  }

  // Waits until all is written, and stops the thread. Nothing may follow.
  void retire() {
    drain();
    stop();
  }

  // Calls `act`; an exception becomes a warning, so that the other probes go on.
  template <class About, class Act>
  void act(const About& about, Act&& act) {
    try {
      act();
    } catch (const std::exception& error) {
      warn(about, error.what());
    } catch (...) {
      warn(about, "unknown failure");
    }
  }

  bool prompt = false;  // whether an event is written before the line returns

 protected:
  void put(OwnedJob<Job> job) { Writer::put(std::move(job), prompt); }
  void put(const RunningCall& call, OwnedJob<Job> job) {
    if (call.is_behind) put_behind(std::move(job));
    else put(std::move(job));
  }

  // While a job is emitted.
  void add_row(RunningCall& call, const std::string& lines) {
    if (!call.directory) return;
    if (last_written_ != call.directory.get()) flush_rows();
    last_written_ = call.directory.get();
    act("dump", [&] { call.directory->write(lines); });
  }

  void flush() override {
    flush_rows();
    if (text_.empty()) return;
    write_now(text_.data(), text_.size());
    text_.clear();
  }

 private:
  static constexpr std::size_t most_text = 1 << 16;

  void collect(const std::string& text) {
    text_ += text;
    if (text_.size() > most_text) flush();
  }

  void flush_rows() {
    if (last_written_) act("dump", [&] { last_written_->flush(); });
    last_written_ = nullptr;
  }

  // Emitted and not flushed yet.
  std::string text_;
  CallDirectory* last_written_ = nullptr;
};

}  // namespace inductor_rewriter
