// The beginning of a printed line.
#pragma once

#include <string>

#include "recorder.h"

namespace inductor_rewriter {

// `[rewriter 0] #12.1 before KERNEL`, or `[rewriter 0] inputs`.
inline std::string line_start(const Event& event, const Recorder& recorder) {
  std::string text = recorder.start(event) + " ";
  if (event.line && !event.iteration) return text + *event.line;
  if (!event.launch) return text + event.phase;
  text += event.about();
  if (event.iteration) text += "." + std::to_string(event.iteration);
  text += std::string(" ") + event.phase;
  text.append(event.phase[0] == 'a' ? 2 : 1, ' ');
  return text + event.launch->row->kernel;
}

}  // namespace inductor_rewriter
