// Where the rows of one call go: into a directory of the dump, or into the ring of the process.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/files.h"
#include "engine/write_all.h"
#include "recorded_calls.h"

namespace inductor_rewriter {

// The directory of one call. `begin` makes its files, later, so that the model need not wait. Rows are
// collected until `flush`.
class CallDirectory {
 public:
  CallDirectory(const std::string& path, std::unique_ptr<RecordedCall> instead)
      : path(path), recorded(std::move(instead)) {}
  CallDirectory(const std::string& path, std::function<void()> make_files)
      : path(path), make_files_(std::move(make_files)) {}
  CallDirectory(const CallDirectory&) = delete;
  CallDirectory& operator=(const CallDirectory&) = delete;
  ~CallDirectory() {
    if (events_ >= 0) ::close(events_);
  }

  bool has_begun() const { return !make_files_; }

  // Makes the files, if that was not tried before. Throws if it fails; a full disk is not to fill up with
  // directories of calls that have nothing.
  void begin() {
    if (!make_files_) return;
    const auto make_files = std::exchange(make_files_, nullptr);
    try {
      make_files();
    } catch (...) {
      unlink((path + "/launches.json").c_str());
      rmdir(path.c_str());
      throw;
    }
    const std::string name = path + "/events.jsonl";
    events_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (events_ < 0) fail("write", name);
  }

  void write(const std::string& lines) {
    rows_ += lines;
    if (rows_.size() > most) flush();
  }

  // Writes all rows since the last time, or none of them.
  void flush() {
    if (recorded) {
      recorded->rows(rows_.data(), rows_.size());
      rows_.clear();
      return;
    }
    begin();
    if (events_ < 0) return rows_.clear();  // `begin` has reported the reason
    std::size_t done = 0;
    const int problem = write_all(events_, rows_.data(), rows_.size(), done);
    rows_.clear();
    if (problem) {
      if (done) static_cast<void>(!ftruncate(events_, size_));
      ::close(std::exchange(events_, -1));
      throw std::runtime_error(
          "cannot write " + path + "/events.jsonl: " + strerror(problem) + "; no more rows of this call");
    }
    size_ += static_cast<off_t>(done);
  }

  const std::string path;
  const std::unique_ptr<RecordedCall> recorded;  // receives the rows instead of a file

 private:
  static constexpr std::size_t most = 1 << 16;

  std::function<void()> make_files_;  // empty once it was called
  int events_ = -1;
  std::string rows_;
  off_t size_ = 0;  // of the complete rows
};

}  // namespace inductor_rewriter
