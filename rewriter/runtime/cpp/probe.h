// What a probe is; see `Probe` in rewriter/runtime/probes/__init__.py.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "dump.h"
#include "event.h"
#include "json.h"
#include "engine/writer.h"

namespace {
namespace inductor_rewriter {

class Probe;
class Recorder;
struct RunningCall;

using Probes = std::vector<Probe*>;

// What is kept of the values that came to one moment, so that the next ones cost less.
struct Plans {
  virtual ~Plans() = default;
};

// One phase of a launch, or the inputs of a call: what is known ahead of any event there.
struct Moment {
  const ProbedLaunch* launch = nullptr;
  const char* phase = "inputs";
  const Labels* labels = nullptr;
  const Probes* probes = nullptr;
  std::string line;  // `#12 before KERNEL`
  std::string row;   // of an event without values
  std::atomic<Plans*> plans{nullptr};  // by the thread that needs them first

  ~Moment() { delete plans.load(std::memory_order_relaxed); }
};

// An event on its way: whatever it waits for is issued, and what it does not need is let go.
class EventJob : public Job {
 public:
  Event event;
  const Moment* moment = nullptr;
  RunningCall* call = nullptr;
  bool has_values = false;

  void emit() override;
  // Enter what was measured.
  virtual void complete() {}
  // It is not going to be used any more.
  virtual void release() { delete this; }
};

// Whatever needs the values themselves: values.h, which only probes that read them include.
struct Values {
  // An event with all that can be read; raises what keeps all of it from being read.
  virtual EventJob* read(
      Moment& moment, const Contents& contents, RunningCall& call, Recorder& recorder) const = 0;
  // Measure the values of an event that `read` made, or issue that.
  virtual void measure(EventJob& job, bool heads, Recorder& recorder) const = 0;
  // The memory of values that wait to be measured may be written or freed.
  virtual void settle() const = 0;
  // Nothing follows for now, and what was issued is waited for.
  virtual void finish() const = 0;
  virtual void describe(Json& json, const Item& item) const = 0;
  // Whether calls go into a CUDA graph now: nothing may be waited for.
  virtual bool is_in_capture() const = 0;
  // Wait for the replays that were issued.
  virtual void wait_for_replays() const = 0;
  // How many replays measured an event of a graph.
  virtual uint64_t replays(const EventJob& captured) const = 0;
  // What the last one measured, if there was one, as an event of its own.
  virtual EventJob* replayed(const EventJob& captured) const = 0;
};

// What acts where memory comes from and goes to: memory.h, which only probes of memory include. One
// serves all of them.
struct MemoryWatch {
  virtual ~MemoryWatch() = default;
  // A tensor that takes the place of one that was allocated; null where it stays.
  virtual AtenTensorHandle allocated(RunningCall& call, int event, AtenTensorHandle made) = 0;
  // The wrapper is through with what a buffer holds; a reused one it goes on with.
  virtual void gone(RunningCall& call, int event, AtenTensorHandle buffer, bool is_reused) = 0;
  virtual void checked(RunningCall& call, int launch) = 0;
  // The call is over.
  virtual void finish(RunningCall& call) = 0;
};

// What happens around a launch. One object serves one wrapper, in all threads; what it keeps for a
// single call goes into `call.state`. All is called by the thread of the model, but for `measured`.
class Probe {
 public:
  // What its class in Python declares; set where it is made.
  const char* when = "both";
  bool spans = false;
  bool of_results = false;
  const Values* values = nullptr;  // how it reads them, if it does
  bool measures = false;
  bool saves = false;
  bool marks = false;
  std::unique_ptr<MemoryWatch> (*watch)(const Options&, Recorder&) = nullptr;  // of "memory"

  // Of what `marks`: what stands before launches for it, and where its calls go.
  std::unique_ptr<Probe> (*make_mark)() = nullptr;
  DumpWriter::MakeRecorded make_recorded = nullptr;

  virtual ~Probe() = default;
  virtual void at(Event&, RunningCall&, Recorder&) {}
  // Called once all is measured, maybe later and by another thread: there is no handle then.
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
