// The clocks of the system.
#pragma once

#include <time.h>

#include <cstdint>

namespace inductor_rewriter {

inline int64_t clock_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

}  // namespace inductor_rewriter
