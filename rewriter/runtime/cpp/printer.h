// Prints the output of one wrapper's probes, and warnings.
#pragma once

#include <fcntl.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "engine/write_all.h"
#include "event.h"
#include "ranks.h"

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
    for (const std::string& before : warned_) {
      if (before == text) return;
    }
    warned_.push_back(text);
    say(rank, about, message);
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
  std::string start(const Event& event) const { return start(event.call); }

  // `[rewriter 0] #12 KERNEL`, for a line about a launch as a whole.
  std::string about(const Event& event) const {
    std::string text = start(event) + " " + event.about();
    if (!event.launch) return text;
    if (event.iteration) text += "." + std::to_string(event.iteration);
    return text + " " + event.launch->row->kernel;
  }

 private:
  static bool read_quiet() {
    const char* quiet = std::getenv("REWRITER_QUIET");
    return quiet && *quiet && std::strcmp(quiet, "0");
  }

  const char* const label_;
  std::mutex warning_;
  std::vector<std::string> warned_;
};

}  // namespace inductor_rewriter
