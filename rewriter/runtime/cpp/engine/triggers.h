// The option `--on`: events that have the probe `record` write a dump. They are looked for where rows are
// formatted, for both languages.
#pragma once

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../json.h"
#include "../texts.h"
#include "files.h"
#include "flight.h"

namespace inductor_rewriter {

// The measurement of one value. `launch` is -1 for the inputs of a call; `place` is the value's index among
// those of the launch and phase.
struct TriggerValue {
  int32_t launch = -1, iteration = 0, place = 0;
  bool is_written = false, is_allowed = false;
  int64_t numel = 0, nan = 0, inf = 0;
  double largest = 0, deviation = 0;  // the largest magnitude and the deviation of the finite elements
  uint64_t print = 0;                 // equal for equal values
};

// Keeps a number of the last calls; their median is the usual value.
class Usual {
 public:
  // The ratio of a value to the usual one, 0 if that is not known yet. Then adds the value.
  double ratio(double value) {
    double result = 0;
    if (last_.size() >= enough) {
      std::vector<double> sorted(last_.begin(), last_.end());
      std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
      const double usual = sorted[sorted.size() / 2];
      if (usual > 0) result = value / usual;
    }
    last_.push_back(value);
    if (last_.size() > most) last_.pop_front();
    return result;
  }

 private:
  static constexpr std::size_t enough = 8, most = 15;
  std::deque<double> last_;
};

class Triggers {
 public:
  // `wanted` is like `nan,spike:10x`; `kernels` are those of the launches, by index.
  Triggers(FlightRing& ring, std::string root, int rank, const std::string& wanted,
           const std::map<int, std::string>& kernels)
      : ring_(ring), root_(std::move(root)), rank_(rank), kernels_(kernels) {
    for (const std::string& one : split(wanted, ",")) {
      const std::string name = one.substr(0, one.find(':'));
      const double factor = name.size() < one.size() ? std::atof(one.c_str() + name.size() + 1) : 0;
      if (name == "spike") spike_ = factor;
      if (name == "slow") slow_ = factor;
      for (int kind = 0; kind < FlightRing::kinds; ++kind) wanted_ |= (name == names[kind]) << kind;
    }
    for (const auto& [launch, kernel] : kernels) {
      if (is_random(kernel)) random_.insert(launch);
    }
  }

  // Looks at a value of a call; `name` is its variable in the wrapper.
  void see(const FlightCall& call, const TriggerValue& value, const std::string& name) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const bool is_input = value.launch < 0;
    if (wants(nan) && value.nan && !value.is_allowed && (is_input || value.is_written)) {
      plan(call, nan, value, name, count(value.nan, value) + " are NaN");
    }
    if (wants(inf) && value.inf && !value.is_allowed && value.is_written) {
      plan(call, inf, value, name, count(value.inf, value) + " are infinite");
    }
    if (wants(changed)) see_change(call, value, name);
    if (spike_ <= 0 || !value.is_written || value.numel == 0) return;
    Spikes& usual = usual_[{value.launch, value.iteration, value.place}];
    const double largest = usual.largest.ratio(value.largest);
    const double deviation = usual.deviation.ratio(value.deviation);
    if (std::max(largest, deviation) < spike_) return;
    const bool by_largest = largest >= spike_;
    char text[160];
    std::snprintf(
        text, sizeof text, "%s %.4g is %.1f times what is usual", by_largest ? "max |x|" : "std",
        by_largest ? value.largest : value.deviation, by_largest ? largest : deviation);
    plan(call, spike, value, name, text);
  }

  // A call is over. `ended_ns` is when its last launch ended, 0 if none did.
  void end(const FlightCall& call, uint64_t ended_ns) {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (slow_ > 0 && ended_ns > call.started) {
        const double took = static_cast<double>(ended_ns - call.started);
        const double ratio = durations_.ratio(took);
        // A small difference in time may come from anything else on the machine.
        if (ratio >= slow_ && took - took / ratio > 5e6) {
          char text[160];
          std::snprintf(text, sizeof text, "it took %.1f ms, %.1f times what is usual", took / 1e6, ratio);
          plan(call, slow, {slow, -1, -1}, "call " + std::to_string(call.number) + ": " + text);
        }
      }
    }
    fire();
  }

  // Writes the planned dumps; the rows that they are about are in the ring by now.
  void fire() {
    std::vector<Planned> planned;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (planned_.empty()) return;
      planned.swap(planned_);
    }
    for (const Planned& one : planned) {
      if (one.is_last) {
        say(one.text + "; no more of this process are written");
        continue;
      }
      std::string folder = root_ + "/triggered/" + names[one.kind] + "-" + ring_.name() + "-" +
          std::to_string(one.number);
      std::string problem;
      try {
        problem = make_own(folder) ? write(folder, one.text) : "cannot make " + folder;
      } catch (const std::exception& error) {
        problem = error.what();
      }
      say(one.text + (problem.empty() ? "; the last launches are in " + folder : "; " + problem));
    }
  }

 private:
  struct Spikes {
    Usual largest, deviation;
  };
  enum Kind { nan, inf, changed, spike, slow };
  static constexpr const char* names[] = {"nan", "inf", "changed", "spike", "slow"};
  static_assert(sizeof names / sizeof *names == FlightRing::kinds, "the ring counts each");
  struct Planned {
    Kind kind;
    std::string text;
    uint32_t number;
    bool is_last;
  };
  using Place = std::tuple<int32_t, int32_t, int32_t>;
  struct Known {
    uint64_t inputs = 0;
    std::map<Place, uint64_t> prints;
  };
  struct CallState {
    uint64_t inputs = 0;
    bool has_inputs = false, is_given_up = false;
  };

  static std::string count(int64_t of, const TriggerValue& value) {
    return std::to_string(of) + " of " + std::to_string(value.numel) + (value.numel == 1 ? " element" : " elements");
  }

  // Whether an operator draws random numbers; Inductor's draw of a seed does, too.
  static bool is_random(const std::string& kernel) {
    static const char* const operators[] = {"inductor_seed", "rand",    "bernoulli",   "multinomial",
                                            "normal",        "uniform", "exponential", "native_dropout"};
    if (kernel.find("aten.") == std::string::npos && kernel.find("prims.") == std::string::npos &&
        kernel.compare(0, 11, "aoti_torch_")) {
      return false;
    }
    return std::any_of(std::begin(operators), std::end(operators), [&](const char* one) {
      const std::size_t at = kernel.find(one);
      return at != std::string::npos && at && (kernel[at - 1] == '.' || kernel[at - 1] == '_');
    });
  }

  // Fires if a launch wrote something else than in an earlier call with the same inputs and the same random
  // numbers.
  void see_change(const FlightCall& call, const TriggerValue& value, const std::string& name) {
    // Rows of a device come late, so calls are remembered for a while.
    if (calls_.size() > most_calls) calls_.erase(calls_.begin());
    CallState& state = calls_[call.call];
    const bool is_input = value.launch < 0;
    if (!is_input && (!value.is_written || !state.has_inputs || state.is_given_up)) return;
    if (is_input || random_.count(value.launch)) {
      state.inputs = (state.inputs ^ value.print) * 0x9e3779b97f4a7c15u + 1;
      state.has_inputs = true;
      return;
    }
    auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& one) {
      return one.inputs == state.inputs;
    });
    if (known == known_.end()) {
      if (known_.size() >= most_inputs) known_.pop_front();
      known_.push_back({state.inputs, {}});
      known = known_.end() - 1;
    }
    const Place place{value.launch, value.iteration, value.place};
    const auto [found, is_new] = known->prints.emplace(place, value.print);
    if (is_new || found->second == value.print) return;
    state.is_given_up = true;  // later launches differ as a consequence
    plan(call, changed, value, name, "differs from an earlier call with the same inputs");
  }

  bool wants(Kind kind) const { return wanted_ >> kind & 1; }

  void plan(
      const FlightCall& call, Kind kind, const TriggerValue& value, const std::string& name,
      const std::string& what) {
    // Only the first event of its kind in a call: later ones are mostly its consequences.
    if (fired_.size() > most_calls) fired_.erase(fired_.begin());
    uint32_t& fired = fired_[call.call];
    if (fired >> kind & 1) return;
    fired |= 1u << kind;
    const auto kernel = kernels_.find(value.launch);
    const std::string where = value.launch < 0
        ? std::string("the inputs")
        : "#" + std::to_string(value.launch) + " " + (kernel == kernels_.end() ? "" : kernel->second);
    plan(
        call, kind, {kind, value.launch, value.place},
        name + " of " + where + ", call " + std::to_string(call.number) + ": " + what);
  }

  using Seen = std::tuple<int, int32_t, int32_t>;  // the kind, the launch, the place

  // Plans a dump, once for each event: it may happen again in every call.
  void plan(const FlightCall& call, Kind kind, const Seen& which, const std::string& text) {
    if (seen_.count(which)) return;
    uint32_t number = 0;
    const FlightRing::Dump dump = ring_.admit_dump(kind, wanted_, call, number);
    if (dump == FlightRing::Dump::none) return;
    seen_.insert(which);
    planned_.push_back({kind, names[kind] + (": " + text), number, dump == FlightRing::Dump::no_more});
  }

  void say(const std::string& text) const {
    const std::string line = "[rewriter " + std::to_string(rank_) + "] record: " + text + "\n";
    const ssize_t written = ::write(2, line.data(), line.size());
    static_cast<void>(written);
  }

  // Makes a new folder, under another name if an earlier process with the same pid left one.
  static bool make_own(std::string& folder) {
    const std::string wanted = folder;
    make_directories(wanted.substr(0, wanted.rfind('/')));
    for (int turn = 2; mkdir(folder.c_str(), 0777); ++turn) {
      if (errno != EEXIST || turn > 1000) return false;
      folder = wanted + "." + std::to_string(turn);
    }
    return true;
  }

  // Writes a dump with a copy of the ring. Returns an empty text, or the error.
  std::string write(const std::string& folder, const std::string& why) const {
    const std::string own = folder + "/record/" + ring_.name(), tables = folder + "/record/tables";
    make_directories(own);
    make_directories(tables);
    std::string manifest = read_file(root_ + "/manifest.json");
    const std::size_t end = manifest.rfind('}');
    if (end == std::string::npos) return "there is no manifest";
    while (!manifest.empty() && (manifest.back() == '}' || manifest.back() == '\n')) manifest.pop_back();
    manifest += ",\n \"trigger\": ";
    append_string(manifest, why.c_str());
    write_whole(folder + "/manifest.json", manifest + "\n}\n");
    each_file(root_ + "/record/tables", [&](const std::string& name) {
      const std::string path = root_ + "/record/tables/" + name, to = tables + "/" + name;
      if (name[0] != '.' && link(path.c_str(), to.c_str())) write_whole(to, read_file(path));
    });
    return ring_.copy_to(own + "/ring") ? "" : "it cannot be written: " + std::string(std::strerror(errno));
  }

  static constexpr std::size_t most_inputs = 16, most_calls = 256;

  FlightRing& ring_;
  const std::string root_;
  const int rank_;
  uint32_t wanted_ = 0;  // a bit for each kind that is wanted
  double spike_ = 0, slow_ = 0;
  const std::map<int, std::string> kernels_;
  std::set<int> random_;  // launches that draw random numbers
  std::mutex mutex_;
  std::set<Seen> seen_;
  std::map<uint64_t, uint32_t> fired_;  // by call: a bit for each kind that has fired
  std::map<Place, Spikes> usual_;
  Usual durations_;
  std::deque<Known> known_;
  std::map<uint64_t, CallState> calls_;
  std::vector<Planned> planned_;
};

}  // namespace inductor_rewriter
