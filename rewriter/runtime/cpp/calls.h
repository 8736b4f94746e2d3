// Which calls of a wrapper are recorded: `Calls` in rewriter/runtime/calls.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "texts.h"

namespace inductor_rewriter {

// Numbers of calls: `3-5,9,20-,100-/10`; an empty text means all of them.
class Calls {
 public:
  explicit Calls(const std::string& text) {
    for (std::string& part : split(text, ",")) {
      part.erase(0, std::min(part.find_first_not_of(' '), part.size()));
      part.erase(part.find_last_not_of(' ') + 1);
      const std::size_t slash = std::min(part.find('/'), part.size());
      const std::size_t dash = std::min(part.find('-'), slash);
      Range range;
      bool sound = read(part.substr(0, dash), range.low);
      range.high = range.low;
      if (dash < slash) {
        const std::string last = part.substr(dash + 1, slash - dash - 1);
        range.high = INT64_MAX;
        sound = sound && (last.empty() || read(last, range.high));
      }
      if (slash < part.size()) {
        sound = sound && dash < slash && read(part.substr(slash + 1), range.step) && range.step;
      }
      if (!sound || range.low > range.high) {
        throw std::runtime_error("'" + part + "' is no call or range of calls, such as 3-5");
      }
      ranges_.push_back(range);
    }
  }

  bool are_all() const { return ranges_.empty(); }

  bool contains(int64_t number) const {
    for (const Range& range : ranges_) {
      const bool inside = range.low <= number && number <= range.high;
      if (inside && (number - range.low) % range.step == 0) return true;
    }
    return ranges_.empty();
  }

 private:
  struct Range {
    int64_t low = 0, high = 0, step = 1;
  };

  static bool read(const std::string& digits, int64_t& number) {
    number = std::atoll(digits.c_str());
    return !digits.empty() && digits.size() <= 15 &&
        digits.find_first_not_of("0123456789") == std::string::npos;
  }

  std::vector<Range> ranges_;
};

}  // namespace inductor_rewriter
