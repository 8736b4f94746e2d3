// What the probes of one wrapper print, and what the runtime warns about.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "event.h"

namespace {
namespace inductor_rewriter {

// Standard output and standard error of one wrapper.
class Printer {
 public:
  explicit Printer(const Options& options)
      : rank(read_rank()), upstream(!std::strcmp(options.format, "upstream")),
        label_(options.label) {
    const char* quiet = std::getenv("REWRITER_QUIET");
    quiet_ = quiet && *quiet && std::strcmp(quiet, "0");
  }

  const int rank;
  const bool upstream;

  // Write to standard output in one piece, flushed: what follows may crash.
  void write(const std::string& text) {
    if (text.empty() || quiet_) return;
    flockfile(stdout);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    funlockfile(stdout);
  }

  // Write a warning to standard error, once, about the first launch that it concerns.
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
    std::fwrite(line.data(), 1, line.size(), stderr);
  }

  // How a line starts: `[rewriter 0] forward call 3`. A wrapper that was instrumented alone has no
  // label, and its first call no number.
  std::string start(const Event& event) const {
    std::string text = "[rewriter " + std::to_string(rank) + "]", label = label_;
    if (!label.empty()) text += " " + label;
    if (label.empty() && !event.call) return text;
    return text + " call " + std::to_string(event.call);
  }

  // `[rewriter 0] #12 KERNEL`, for a line about a launch as a whole.
  std::string about(const Event& event) const {
    std::string text = start(event) + " " + event.about();
    if (!event.launch) return text;
    if (event.iteration) text += "." + std::to_string(event.iteration);
    return text + " " + event.launch->row->kernel;
  }

 private:
  static int read_rank() {
    const char* text = std::getenv("RANK");
    if (!text || !*text) text = std::getenv("LOCAL_RANK");
    if (!text || !*text || std::strspn(text, "0123456789") != std::strlen(text)) return 0;
    return std::strlen(text) < 10 ? std::atoi(text) : 0;
  }

  const char* label_;
  bool quiet_ = false;
  std::mutex warning_;
  std::vector<std::string> warned_;
};

}  // namespace inductor_rewriter
}  // namespace
