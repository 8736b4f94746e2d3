// Keeps the last launches in a ring that outlives the process: rewriter/runtime/probes/record.py.
#pragma once

#include "../recorder.h"

namespace inductor_rewriter {

class Record : public Probe {
 public:
  void start(Event& event, RunningCall& call, Recorder&) override {
    if (RecordedCall* of = recorded(event, call)) of->began(event.launch->row->launch, event.iteration);
  }
  void stop(Event& event, RunningCall& call, Recorder&) override {
    if (RecordedCall* of = recorded(event, call)) of->ended(event.launch->row->launch, event.iteration);
  }
  void measured(Event& event, RunningCall& call, Recorder& recorder) override {
    RecordedCall* const of = call.directory ? call.directory->recorded.get() : nullptr;
    if (!of) return;
    int place = 0;
    for (const Item& item : event.items) {
      of->see(event, item, place, recorder.allows(event, item));
      place += item.is_tensor();
    }
  }

 private:
  static RecordedCall* recorded(const Event& event, const RunningCall& call) {
    return event.launch && call.directory ? call.directory->recorded.get() : nullptr;
  }
};

}  // namespace inductor_rewriter
