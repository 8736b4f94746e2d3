// Replaces dormant.h, which takes long to compile, if probes are not dormant.
#pragma once

#include "recorder.h"

namespace {
namespace inductor_rewriter {

struct Session {};

class Dormant {
 public:
  explicit Dormant(const Wrapper&) {}
  std::unique_ptr<RunningCall> begin() { return nullptr; }
};

inline void end_session(Session&) {}

}  // namespace inductor_rewriter
}  // namespace
