// The file of a call's rows. It holds complete rows only.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <string>

#include "flight.h"
#include "triggers.h"
#include "write_all.h"

namespace {
namespace inductor_rewriter {

// The file of one call's rows. After a failure it takes no more rows: a gap would be misread.
class RowsFile {
 public:
  explicit RowsFile(int descriptor) : descriptor_(descriptor) {}

  std::string text;  // not yet written

  bool is_open() const { return descriptor_ >= 0 || ring_; }

  // From now on rows go into a ring, and not into the file.
  void record(FlightRing& ring, const FlightCall& call, Triggers* triggers) {
    ring_ = &ring;
    call_ = call;
    triggers_ = triggers;
  }

  // The triggers that look at recorded values; null for none.
  Triggers* triggers() const { return ring_ ? triggers_ : nullptr; }
  const FlightCall& call() const { return call_; }

  // Writes the rows; 0, or errno. After a failure complete rows stay, and the rest is cut off.
  int flush() {
    if (ring_) {
      ring_->append_rows(call_, text.data(), text.size());
      text.clear();
      if (triggers_) triggers_->fire();
      return 0;
    }
    std::size_t done;
    const int problem = is_open() ? write_all(descriptor_, text.data(), text.size(), done) : 0;
    if (problem) {
      const std::size_t end = done ? text.rfind('\n', done - 1) : std::string::npos;
      const std::size_t kept = end == std::string::npos ? 0 : end + 1;
      const off_t size = ::lseek(descriptor_, 0, SEEK_END);
      const bool cut = size >= 0 && !::ftruncate(descriptor_, size - static_cast<off_t>(done - kept));
      static_cast<void>(cut);
      close();
    }
    text.clear();
    return problem;
  }

  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
    ring_ = nullptr;
  }

 private:
  int descriptor_;
  FlightRing* ring_ = nullptr;
  FlightCall call_;
  Triggers* triggers_ = nullptr;
};

}  // namespace inductor_rewriter
}  // namespace
