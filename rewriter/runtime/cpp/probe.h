// What a probe is; see `Probe` in rewriter/runtime/probes/__init__.py.
#pragma once

#include <memory>
#include <string>

#include "event.h"
#include "json.h"

namespace {
namespace inductor_rewriter {

class Recorder;
struct RunningCall;

// Whatever needs the values themselves: values.h, which only probes that read them include.
struct Values {
  // Raises what keeps all of them from being read.
  virtual void read(
      Event& event, const Labels& labels, Contents& contents,
      Recorder& recorder) const = 0;
  virtual void measure(Event& event, bool statistics, bool heads, Recorder& recorder) const = 0;
  virtual void describe(Json& json, const Item& item) const = 0;
};

// What happens around a launch. One object serves one wrapper, in all threads; what it keeps for a
// single call goes into `call.state`.
class Probe {
 public:
  // What its class in Python declares; set where it is made.
  const char* when = "both";
  bool spans = false;
  bool of_results = false;
  const Values* values = nullptr;  // how it reads them, if it does
  bool measures = false;
  bool saves = false;

  virtual ~Probe() = default;
  virtual void at(Event&, RunningCall&, Recorder&) {}
  virtual void measured(Event&, RunningCall&, Recorder&) {}
  // The inputs of a call, before the wrapper looks at them; for what acts at "inputs".
  virtual void given(Event&, const Contents&, RunningCall&, Recorder&) {}
  // Before anything is read: set `event.error` where the device is faulty.
  virtual void check(Event&, RunningCall&, Recorder&) {}
  // Last before the launch runs, and first after it was issued.
  virtual void start(Event&, RunningCall&, Recorder&) {}
  virtual void stop(Event&, RunningCall&, Recorder&) {}
};

// Made for the selected probes by rewriter/instrumentation/bundle.py, with what their classes in
// Python declare; null for a name that is none of them.
inline std::unique_ptr<Probe> make_probe(const std::string& name);

}  // namespace inductor_rewriter
}  // namespace
