// The moments of a wrapper: both phases of each launch of its table, and the inputs of its calls.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "probe.h"
#include "device.h"
#include "rows.h"

namespace inductor_rewriter {

// The lists in a line of Python, of which each member is a value of its own: for each value of the line, the
// place of its label, and what its name ends with. `shape` is the same for lines with the same lists.
struct Lists {
  std::string shape;
  std::vector<std::pair<std::size_t, std::string>> values;
};

class Moments {
 public:
  Moments(const Wrapper& wrapper, const ChosenProbes& probes)
      : inputs_(read_labels(wrapper.inputs)), launches_(wrapper.rows.size()), moments_(2 * wrapper.rows.size() + 1) {
    bool on_device = false;
    for (std::size_t i = 0; i < wrapper.rows.size(); ++i) {
      const Row& row = wrapper.rows[i];
      launches_[i] = {&row, read_labels(row.before), read_labels(row.after)};
      make(moments_[2 * i], launches_[i], "before", launches_[i].before, probes.before);
      make(moments_[2 * i + 1], launches_[i], "after", launches_[i].after, probes.after);
      if (places_.size() <= std::size_t(row.launch)) places_.resize(row.launch + 1, -1);
      places_[row.launch] = static_cast<int>(i);
      on_device = on_device || is_gpu_kind(row.kind);
      on_cpu_ = on_cpu_ || !std::strcmp(row.kind, "cpp");
    }
    on_cpu_ = on_cpu_ && !on_device;
    moments_.back().labels = &inputs_;
    moments_.back().probes = &probes.readers;
  }

  const std::vector<ProbedLaunch>& launches() const { return launches_; }
  // Whether all launches run on the CPU, by their kinds.
  bool are_on_cpu() const { return on_cpu_; }

  // The place of a launch in the table; -1 if it has no lines.
  int place_of(int launch) const {
    return launch >= 0 && std::size_t(launch) < places_.size() ? places_[std::size_t(launch)] : -1;
  }
  Moment& inputs(const Lists* lists) { return listed(moments_.back(), lists); }
  Moment& at(int place, bool before, const Lists* lists) {
    return listed(moments_[std::size_t(2 * place + !before)], lists);
  }

 private:
  // A moment whose labels name the members of lists.
  struct Listed {
    Labels labels;
    Moment moment;
  };

  static void make(
      Moment& moment, const ProbedLaunch& launch, const char* phase, const Labels& labels, const Probes& probes) {
    moment.launch = &launch;
    moment.phase = phase;
    moment.labels = &labels;
    moment.probes = &probes;
    const Event event({0, &launch, phase, 0, nullptr});
    moment.line = line_text(event);
    moment.row = event_rows(event, false);
  }

  Moment& listed(Moment& plain, const Lists* lists) {
    if (!lists) return plain;
    std::lock_guard<std::mutex> guard(listing_);
    std::unique_ptr<Listed>& known = listed_[{&plain, lists->shape}];
    if (known) return known->moment;
    known = std::make_unique<Listed>();
    known->labels = Labels(lists->values.size());
    for (std::size_t i = 0; i < lists->values.size(); ++i) {
      const auto& [place, end] = lists->values[i];
      if (place >= plain.labels->size()) continue;
      Label& label = known->labels[i] = (*plain.labels)[place];
      label.name += end;
      label.expr += end;
    }
    Moment& made = known->moment;
    made.launch = plain.launch;
    made.phase = plain.phase;
    made.labels = &known->labels;
    made.probes = plain.probes;
    made.line = plain.line;
    made.row = plain.row;
    return made;
  }

  Labels inputs_;
  std::vector<ProbedLaunch> launches_;
  std::vector<Moment> moments_;  // two for each launch, and one for the inputs
  std::vector<int> places_;      // positions of launches in the table, by index
  bool on_cpu_ = false;
  std::mutex listing_;
  std::map<std::pair<const Moment*, std::string>, std::unique_ptr<Listed>> listed_;
};

}  // namespace inductor_rewriter
