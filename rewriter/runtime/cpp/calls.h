// Which calls of a wrapper are recorded: `Calls` in rewriter/runtime/calls.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {
namespace inductor_rewriter {

// Numbers of calls: `3-5,9,20-`; all of them where the text is empty.
class Calls {
 public:
  explicit Calls(const std::string& text) {
    if (text.empty()) return;
    for (std::size_t at = 0, end; at <= text.size(); at = end + 1) {
      end = std::min(text.find(',', at), text.size());
      std::string part = text.substr(at, end - at);
      part.erase(0, std::min(part.find_first_not_of(' '), part.size()));
      part.erase(part.find_last_not_of(' ') + 1);
      const char* digits = "0123456789";
      std::size_t dash = std::min(part.find_first_not_of(digits), part.size());
      std::string first = part.substr(0, dash), last = first;
      bool sound = dash > 0 && dash <= 15;
      if (dash < part.size()) {
        last = part.substr(dash + 1);
        sound = sound && part[dash] == '-' && last.size() <= 15 &&
            last.find_first_not_of(digits) == std::string::npos;
      }
      int64_t low = sound ? std::atoll(first.c_str()) : 0;
      int64_t high = last.empty() ? INT64_MAX : std::atoll(last.c_str());
      if (!sound || low > high) {
        throw std::runtime_error("'" + part + "' is no call or range of calls, such as 3-5");
      }
      ranges_.emplace_back(low, high);
    }
  }

  bool contains(int64_t number) const {
    for (const auto& [low, high] : ranges_) {
      if (low <= number && number <= high) return true;
    }
    return ranges_.empty();
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> ranges_;
};

}  // namespace inductor_rewriter
}  // namespace
