// The interface of probes. What lines of a wrapper each needs is declared in rewriter/runtime/probes/.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "dump.h"
#include "event.h"
#include "json.h"
#include "engine/writer.h"

namespace inductor_rewriter {

class Probe;
class Recorder;
struct RunningCall;

using Probes = std::vector<Probe*>;

// What is remembered about the values of one moment, so that later events cost less.
struct Plans {
  virtual ~Plans() = default;
};

// A moment: one phase of a launch, or the inputs of a call, with what is known before any event.
struct Moment {
  const ProbedLaunch* launch = nullptr;
  const char* phase = "inputs";
  const Labels* labels = nullptr;
  const Probes* probes = nullptr;
  std::string line;  // `#12 before KERNEL`
  std::string row;   // for events without values
  std::atomic<Plans*> plans{nullptr};  // made by the first thread that needs them

  ~Moment() { delete plans.load(std::memory_order_relaxed); }
};

// An event that waits to be emitted. Its measuring is issued, and what it does not need is
// released.
class EventJob : public Job {
 public:
  Event event;
  const Moment* moment = nullptr;
  RunningCall* call = nullptr;
  bool has_values = false;

  void emit() override;
  // Stores what was measured in the event.
  virtual void complete() {}
};

// Reads and measures values. Implemented in values.h, which only probes that read values include.
struct Values {
  // Makes an event of all values that can be read; throws if none can.
  virtual OwnedJob<EventJob> read(
      Moment& moment, const Contents& contents, RunningCall& call, Recorder& recorder) const = 0;
  // Measures the values of an event that `read` made, or issues it.
  virtual void measure(EventJob& job, bool heads, Recorder& recorder) const = 0;
  // Call before the memory of values that wait to be measured may be written or freed.
  virtual void settle() const = 0;
  // Finishes all measuring that was issued, if nothing follows for now.
  virtual void finish() const = 0;
  virtual void describe(Json& json, const Item& item) const = 0;
  // Whether a CUDA graph is being captured, so that waiting is not allowed.
  virtual bool is_in_capture() const = 0;
  // Waits for the replays that were issued. False if the device failed.
  virtual bool wait_for_replays() const = 0;
  // The number of replays that measured an event of a graph.
  virtual uint64_t replays(const EventJob& captured) const = 0;
  // A copy of the event with what the last replay measured, if there was one.
  virtual OwnedJob<EventJob> replayed(const EventJob& captured) const = 0;
};

// Acts on memory events, for all memory probes. Implemented in memory/watch.h, which only these
// include.
struct MemoryWatch {
  virtual ~MemoryWatch() = default;
  // Returns a tensor that replaces one that was allocated; null if that one stays. `problem` says why it has to,
  // if the caller knows.
  virtual AtenTensorHandle allocated(
      RunningCall& call, int event, AtenTensorHandle made, const char* problem) = 0;
  // The wrapper no longer needs the value of a buffer; if `is_reused`, it goes on using the memory. `problem`
  // says why it cannot be filled, if the caller knows.
  virtual void gone(
      RunningCall& call, int event, AtenTensorHandle buffer, bool is_reused, const char* problem) = 0;
  virtual void checked(RunningCall& call, int launch) = 0;
  // The call is over.
  virtual void finish(RunningCall& call) = 0;
};

// One probe of one wrapper, for all threads. State of a single call goes into `call.state`. All
// methods except `measured` are called by the thread of the model.
class Probe {
 public:
  // Declared by the probe's class in Python; set by `make_probe`.
  const char* when = "both";
  bool spans = false;
  bool of_results = false;
  const Values* values = nullptr;  // null if it does not read values
  bool measures = false;
  bool saves = false;
  bool marks = false;
  std::unique_ptr<MemoryWatch> (*watch)(const Options&, Recorder&) = nullptr;  // of memory probes

  // If it `marks`: makes the probe that acts before launches for it.
  std::unique_ptr<Probe> (*make_mark)() = nullptr;

  virtual ~Probe() = default;
  virtual void at(Event&, RunningCall&, Recorder&) {}
  // Called once the event is measured, maybe later and by another thread. There are no handles
  // then.
  virtual void measured(Event&, RunningCall&, Recorder&) {}
  // Gets the inputs of a call, before the wrapper looks at them, if `when` is "inputs".
  virtual void given(Event&, const Contents&, RunningCall&, Recorder&) {}
  // Called before values are read: sets `event.error` if the device is faulty.
  virtual void check(Event&, RunningCall&, Recorder&) {}
  // `start` is the last call before the launch is issued, `stop` the first one after it.
  virtual void start(Event&, RunningCall&, Recorder&) {}
  virtual void stop(Event&, RunningCall&, Recorder&) {}
  // Waits until everything so far is written.
  virtual void finish() {}
};

// Generated by rewriter/runtime/bundle.py for the selected probes, with what their classes
// in Python declare. Null for any other name.
inline std::unique_ptr<Probe> make_probe(const std::string& name);

}  // namespace inductor_rewriter
