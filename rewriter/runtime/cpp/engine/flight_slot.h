// The marks of one thread in the ring of the probe `record` (flight.h).
#pragma once

#include <cstdint>

#include "process.h"

namespace inductor_rewriter {

struct FlightSlot {
  uint64_t thread, call;
  int32_t began, began_again;  // the launch plus 1, and its iteration
  uint64_t began_ns;
  int32_t ended, ended_again;
  uint64_t ended_ns;
  uint64_t number, table;  // the call's number in its wrapper, and its table of launches

  static uint64_t now() { return static_cast<uint64_t>(clock_ns()); }
  void begin(int32_t launch, int32_t iteration) {
    began = launch + 1;
    began_again = iteration;
    began_ns = now();
  }
  void end(int32_t launch, int32_t iteration) {
    ended_again = iteration;
    ended = launch + 1;
    ended_ns = now();
  }
};
static_assert(sizeof(FlightSlot) == 64, "Python has it as 64 bytes");

}  // namespace inductor_rewriter
