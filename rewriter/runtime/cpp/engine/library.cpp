// The engine as a library with a C interface, for Python (rewriter/runtime/engine.py).

#include "events.h"
#include "gpu.h"
#include "saving.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using inductor_rewriter::Band;
using inductor_rewriter::Damage;
using inductor_rewriter::Gpu;
using inductor_rewriter::Layout;
using inductor_rewriter::Measured;
using inductor_rewriter::MemoryJob;

namespace {

constexpr int most_devices = 64;
constexpr std::size_t most_awaited = 1024;  // tensors of one launch; the ring has 4096 rows

// The Gpu of a device. Made on the first call, by a thread for which the device is current. Never destroyed,
// since the driver may be gone when the process exits.
struct Gpus {
  std::mutex mutex;
  Gpu* all[most_devices] = {};
};

Gpus& gpus() {
  static Gpus& made = *new Gpus;
  return made;
}

Gpu& gpu(int device) {
  const std::lock_guard<std::mutex> lock(gpus().mutex);
  Gpu*& one = gpus().all[device < 0 || device >= most_devices ? 0 : device];
  if (!one) one = new Gpu;
  return *one;
}

}  // namespace

// The version of this interface, raised when a structure or a function changes. Python compares it.
EXPORTED int32_t inductor_rewriter_interface() { return 9; }

// Measures `count` tensors on the CPU, one after the other, with so many threads. Returns how many were
// measured before the first one that cannot be.
EXPORTED int32_t inductor_rewriter_measure(
    const Layout* const* layouts, const void* const* data, int32_t count, int32_t threads,
    Measured* to) {
  for (int32_t i = 0; i < count; ++i) {
    if (!inductor_rewriter::measure_on_cpu(*layouts[i], data[i], threads, to[i])) return i;
  }
  return count;
}

// Prepares the current device, a GPU: compiles the kernels, or finds them in `cache`. Null, or the error.
EXPORTED const char* inductor_rewriter_gpu_start(
    int32_t device, const char* source, const char* torch, const char* cache) {
  Gpu& one = gpu(device);
  return one.start(source, torch, cache) ? nullptr : one.problem().c_str();
}

// Which compiler of kernels for CUDA there is, given the directory of torch's libraries, or why there is none.
EXPORTED const char* inductor_rewriter_gpu_compiler(const char* torch) {
  static thread_local std::string text;
  text = inductor_rewriter::gpu::describe_compiler(torch, false);
  return text.c_str();
}

// Which compiler compiled the kernels of a device.
EXPORTED const char* inductor_rewriter_gpu_about(int32_t device) {
  return gpu(device).about().c_str();
}

// Launches the measuring of `count` tensors on a stream, without waiting. `at_once`: the rows are there when
// the launch is over. Returns the first row, or 0 for failure.
EXPORTED uint64_t inductor_rewriter_gpu_issue(
    int32_t device, const Layout* const* layouts, const void* const* data, int32_t count,
    void* stream, int32_t at_once) {
  Gpu& one = gpu(device);
  if (!one.is_started()) return 0;
  const uint64_t first = one.ring.reserve(static_cast<uint64_t>(count));
  const Gpu::When when = at_once ? Gpu::When::at_once : Gpu::When::soon;
  if (one.measure(layouts, data, count, stream, first, when)) return first;
  one.ring.release(first + static_cast<uint64_t>(count) - 1);
  return 0;
}

// Waits for rows. Null, or the error, as text that is valid until this thread calls again.
EXPORTED const char* inductor_rewriter_gpu_fetch(
    int32_t device, uint64_t first, int32_t count, void* stream, Measured* to) {
  static thread_local std::string problem;
  problem = gpu(device).fetch(first, count, stream, to);
  return problem.empty() ? nullptr : problem.c_str();
}

// Adds the measuring of tensors to a CUDA graph that is being captured. Returns the number of the first of the
// graph's own rows, or -1 for failure.
EXPORTED int64_t inductor_rewriter_gpu_capture(
    int32_t device, const Layout* const* layouts, const void* const* data, int32_t count,
    void* stream) {
  uint64_t first = 0;
  return gpu(device).capture(layouts, data, count, stream, first) ? static_cast<int64_t>(first) : -1;
}

// Reads what the last replay measured. Returns how many replays there were.
EXPORTED uint64_t inductor_rewriter_gpu_captured(int32_t device, int64_t number, Measured* to) {
  uint64_t replays = 0;
  return gpu(device).read_captured(static_cast<uint64_t>(number), replays, *to) ? replays : 0;
}

// --- Guard bands (bands.h) -------------------------------------------------------------------------

// The records of damage of a GPU's bands, or of bands in host memory for -1. Null if there are none.
EXPORTED Damage* inductor_rewriter_damage(int32_t device) {
  static Damage of_host[inductor_rewriter::most_damaged];
  return device < 0 ? of_host : gpu(device).damage();
}

// Does a job, on a GPU on a stream that is not being captured. Returns how many bands in host memory are
// damaged that were not before; 0 for a GPU, which is not waited for; -1 for failure.
EXPORTED int32_t inductor_rewriter_act_on_memory(int32_t device, MemoryJob* job, void* stream) {
  if (device >= 0) return gpu(device).act(*job, stream, false) ? 0 : -1;
  job->damage = inductor_rewriter_damage(-1);
  return inductor_rewriter::act_on_host(*job);
}

// Compares bands behind a launch; `launch` is its index plus 1. The stream may be captured. Returns the same.
EXPORTED int32_t inductor_rewriter_compare(
    int32_t device, const Band* bands, int32_t count, uint64_t launch, void* stream) {
  const std::size_t all = static_cast<std::size_t>(count);
  if (device >= 0) {
    const auto act = [&](MemoryJob& job) { return gpu(device).act(job, stream, true); };
    return inductor_rewriter::compare_all(bands, all, launch, act) ? 0 : -1;
  }
  return inductor_rewriter::compare_bands(bands, count, launch, inductor_rewriter_damage(-1));
}

// --- Events (events.h): launches that are measured, and written in order ---------------------------

using inductor_rewriter::EventCall;
using inductor_rewriter::Events;
using inductor_rewriter::FlightCall;
using inductor_rewriter::FlightRing;
using inductor_rewriter::Triggers;
using inductor_rewriter::TriggerValue;

namespace {
thread_local std::string flight_problem;
}  // namespace

// Makes a call of a wrapper. `lines` is the descriptor that lines are written to, -1 for no lines, -2 if
// Python writes them; `rows` is the descriptor of the file of rows, or -1. `threads` is how many threads
// measure on the CPU. `prompt`: each launch returns when it is written. `start` begins each line.
EXPORTED void* inductor_rewriter_open(
    int32_t lines, int32_t rows, int32_t threads, int32_t prompt, const char* start, int64_t size) {
  auto* call = new EventCall(lines, rows, std::string(start, static_cast<std::size_t>(size)));
  call->threads = threads;
  call->is_prompt = prompt;
  return call;
}

// The ring of this process in the folder of a dump (flight.h). Null if there can be none.
EXPORTED FlightRing* inductor_rewriter_flight(const char* root, int32_t rank) {
  return FlightRing::of(root, rank, flight_problem);
}

// Why there is no ring.
EXPORTED const char* inductor_rewriter_flight_problem() { return flight_problem.c_str(); }

EXPORTED const char* inductor_rewriter_flight_path(FlightRing* ring) { return ring->path().c_str(); }

// A call of a wrapper begins in this thread.
EXPORTED void inductor_rewriter_flight_start(
    FlightRing* ring, uint64_t number, uint64_t table, FlightCall* to) {
  *to = ring->start(number, table);
}

// The offset, in the ring's file, of the marks of the call's thread.
EXPORTED uint64_t inductor_rewriter_flight_enter(FlightRing* ring, const FlightCall* call) {
  return ring->offset_of(ring->enter(*call));
}

EXPORTED void inductor_rewriter_flight_rows(
    FlightRing* ring, const FlightCall* call, const char* data, int64_t size) {
  ring->append_rows(*call, data, static_cast<std::size_t>(size));
}

EXPORTED void inductor_rewriter_flight_end(
    FlightRing* ring, const FlightCall* call, Triggers* triggers) {
  ring->append(*call, FlightRing::end, nullptr, 0);
  if (triggers) triggers->end(*call, ring->ended_ns(*call));
}

// Makes the triggers of one wrapper, for the option `--on` (triggers.h). Never freed.
EXPORTED Triggers* inductor_rewriter_triggers(
    FlightRing* ring, const char* root, int32_t rank, const char* wanted, const char* kernels) {
  return new Triggers(*ring, root, rank, wanted, kernels);
}

// Has the triggers look at a value that Python measured.
EXPORTED void inductor_rewriter_trigger(
    Triggers* triggers, const FlightCall* call, const TriggerValue* value, const char* name) {
  triggers->see(*call, *value, name);
}

EXPORTED void inductor_rewriter_fire(Triggers* triggers) { triggers->fire(); }

EXPORTED void inductor_rewriter_flight_finish(FlightRing* ring, const char* exception) {
  ring->finish(exception);
}

// From now on the rows of a call go into the ring.
EXPORTED void inductor_rewriter_record(
    EventCall* call, FlightRing* ring, const FlightCall* as, Triggers* triggers) {
  call->rows.record(*ring, *as, triggers);
}

// The call is over.
EXPORTED void inductor_rewriter_close(EventCall* call) {
  Events& events = Events::get();
  events.writer.put(new inductor_rewriter::Close(events.output, *call));
}

EXPORTED void* inductor_rewriter_plan(const char* packed) {
  return new inductor_rewriter::SharedPlan(inductor_rewriter::PlanReader(packed).read());
}

EXPORTED void inductor_rewriter_forget(inductor_rewriter::SharedPlan* plan) { delete plan; }

// Measures a phase of a launch. `packed` has the call, the plan, the iteration, the stream, and the address of
// each tensor. Returns 1, 0 if a tensor cannot be measured, or 2 if there are problems to report.
EXPORTED int32_t inductor_rewriter_launch(const int64_t* packed) {
  Events& events = Events::get();
  EventCall& call = *reinterpret_cast<EventCall*>(packed[0]);
  const auto& plan = *reinterpret_cast<inductor_rewriter::SharedPlan*>(packed[1]);
  const bool at_once = call.is_prompt;
  const Gpu::When when = at_once ? Gpu::When::at_once
      : plan->has(inductor_rewriter::Plan::together) ? Gpu::When::together
                                                     : Gpu::When::soon;
  void* stream = reinterpret_cast<void*>(packed[3]);
  Gpu* const device = plan->device < 0 ? nullptr : &gpu(plan->device);
  const std::size_t count = plan->gpu_places.size();
  if (call.waits_on && (call.waits_on != device || !count)) call.waits_on->settle();
  call.waits_on = when == Gpu::When::together ? device : nullptr;
  if (device && (count > most_awaited || !device->is_started() || device->is_capturing(stream))) {
    return 0;
  }
  std::unique_ptr<inductor_rewriter::MeasuredLaunch> job(new inductor_rewriter::MeasuredLaunch(
      events.output, call, plan, static_cast<int32_t>(packed[2])));
  auto data = reinterpret_cast<const void* const*>(packed + 4);
  std::vector<const void*> on_gpu;  // if not all of them are
  if (count != plan->tensors) {
    std::size_t place = 0;
    for (const auto& value : plan->values) {
      if (!value.is_tensor) continue;
      if (value.layout.device >= 0) {
        on_gpu.push_back(data[place]);
      } else if (!inductor_rewriter::measure_on_cpu(
                     value.layout, data[place], call.threads, job->measured[place])) {
        return 0;
      }
      ++place;
    }
    data = on_gpu.data();
  }
  if (!device) {
    events.writer.put(job.release(), at_once);
    return events.output.has_problem() ? 2 : 1;
  }
  bool issued = true;
  {
    const std::lock_guard<std::mutex> guard(events.issuing);
    const uint64_t first = device->ring.reserve(count);
    issued = device->measure(
        plan->gpu_layouts.data(), data, static_cast<int>(count), stream, first, when);
    job->await(*device, first, stream, issued);
    events.writer.put(job.release());
  }
  if (at_once) events.writer.drain();
  return !issued ? 0 : events.output.has_problem() ? 2 : 1;
}

// Whether measuring is deferred on any GPU.
EXPORTED int32_t inductor_rewriter_is_waiting() { return Gpu::gathering; }

// Launches measuring that is deferred (`Gpu::settle`).
EXPORTED void inductor_rewriter_settle() {
  for (int device = 0; device < most_devices; ++device) {
    Gpu* one;
    {
      const std::lock_guard<std::mutex> lock(gpus().mutex);
      one = gpus().all[device];
    }
    if (one) one->settle();
  }
}

// Called in a fork of a process that used the queue.
EXPORTED void inductor_rewriter_forked() { Events::start_again(); }

// Waits until everything is written.
EXPORTED void inductor_rewriter_drain() { Events::get().writer.drain(); }

// Takes the lines that Python has to write; all of them were emitted before. Valid until the next call.
EXPORTED const char* inductor_rewriter_collected(EventCall* call, int64_t* size) {
  static thread_local std::string text;
  text.clear();
  text.swap(call->collected);
  *size = static_cast<int64_t>(text.size());
  return text.data();
}

// Takes the error of a device: the launch, a line feed, the error. Null for none.
EXPORTED const char* inductor_rewriter_device_problem() {
  static thread_local std::string problem;
  problem = Events::get().output.take_device_problem();
  return problem.empty() ? nullptr : problem.c_str();
}

// Takes the first NaN that is to end the program: the launch, the value and how many elements, on three
// lines. Null for none.
EXPORTED const char* inductor_rewriter_finding() {
  static thread_local std::string finding;
  finding = Events::get().output.take_finding();
  return finding.empty() ? nullptr : finding.c_str();
}

// Takes why lines, or rows, could not be written: errno, or 0.
EXPORTED int32_t inductor_rewriter_problem(int32_t of_rows) {
  auto& output = Events::get().output;
  return (of_rows ? output.rows_problem : output.lines_problem).exchange(0);
}
