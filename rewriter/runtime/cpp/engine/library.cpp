// The engine as a library for Python (rewriter/runtime/engine.py): a C interface.

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
constexpr std::size_t most_awaited = 1024;  // tensors of one launch, of a ring of 4096 rows

// Of a device, made when it is first asked for, by the thread that has its context; never destroyed:
// the driver may be gone at exit.
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

// Bumped when a structure or a function changes; Python compares.
EXPORTED int32_t inductor_rewriter_interface() { return 8; }

// Measures `count` tensors on the CPU, one after the other, each with so many threads. How many were
// measured before the first one that could not be.
EXPORTED int32_t inductor_rewriter_measure(
    const Layout* const* layouts, const void* const* data, int32_t count, int32_t threads,
    Measured* to) {
  for (int32_t i = 0; i < count; ++i) {
    if (!inductor_rewriter::measure_on_cpu(*layouts[i], data[i], threads, to[i])) return i;
  }
  return count;
}

// Makes a GPU, the current device, ready: compiles the kernel, or finds it in `cache`. Null, or why
// it cannot be.
EXPORTED const char* inductor_rewriter_gpu_start(
    int32_t device, const char* source, const char* torch, const char* cache) {
  Gpu& one = gpu(device);
  return one.start(source, torch, cache) ? nullptr : one.problem().c_str();
}

// What would compile kernels for CUDA, with the libraries of this directory of torch's, or why not.
EXPORTED const char* inductor_rewriter_gpu_compiler(const char* torch) {
  static thread_local std::string text;
  text = inductor_rewriter::gpu::describe_compiler(torch, false);
  return text.c_str();
}

// What compiles kernels there.
EXPORTED const char* inductor_rewriter_gpu_about(int32_t device) {
  return gpu(device).about().c_str();
}

// Issues the measuring of `count` tensors on a stream, and does not wait. `at_once`: the rows are
// there when that is over. The first row, or 0.
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

// Waits for these rows. Null, or what is wrong, which is valid until the next call of this thread.
EXPORTED const char* inductor_rewriter_gpu_fetch(
    int32_t device, uint64_t first, int32_t count, void* stream, Measured* to) {
  static thread_local std::string problem;
  problem = gpu(device).fetch(first, count, stream, to);
  return problem.empty() ? nullptr : problem.c_str();
}

// The same within a capture: the number of the first row of the graph's own, or -1.
EXPORTED int64_t inductor_rewriter_gpu_capture(
    int32_t device, const Layout* const* layouts, const void* const* data, int32_t count,
    void* stream) {
  uint64_t first = 0;
  return gpu(device).capture(layouts, data, count, stream, first) ? static_cast<int64_t>(first) : -1;
}

// The last replay's measurement, and how many replays there were: 0 before the first.
EXPORTED uint64_t inductor_rewriter_gpu_captured(int32_t device, int64_t number, Measured* to) {
  uint64_t replays = 0;
  return gpu(device).read_captured(static_cast<uint64_t>(number), replays, *to) ? replays : 0;
}

// --- Guard bands (bands.h) -------------------------------------------------------------------------

// The places for damage of a GPU's bands, or of the host's for -1; null if there are none.
EXPORTED Damage* inductor_rewriter_damage(int32_t device) {
  static Damage of_host[inductor_rewriter::most_damaged];
  return device < 0 ? of_host : gpu(device).damage();
}

// Does a job; that of a GPU on a stream that is not captured. Of bands of the host, how many are newly
// damaged; of a GPU's 0, since that is not waited for. -1: it was not done.
EXPORTED int32_t inductor_rewriter_act_on_memory(int32_t device, MemoryJob* job, void* stream) {
  if (device >= 0) return gpu(device).act(*job, stream, false) ? 0 : -1;
  job->damage = inductor_rewriter_damage(-1);
  return inductor_rewriter::act_on_host(*job);
}

// Compares bands after a launch, whose number plus 1 is given. The result is as above; the stream may be
// captured.
EXPORTED int32_t inductor_rewriter_compare(
    int32_t device, const Band* bands, int32_t count, uint64_t launch, void* stream) {
  const std::size_t all = static_cast<std::size_t>(count);
  if (device >= 0) {
    const auto act = [&](MemoryJob& job) { return gpu(device).act(job, stream, true); };
    return inductor_rewriter::compare_all(bands, all, launch, act) ? 0 : -1;
  }
  return inductor_rewriter::compare_bands(bands, count, launch, inductor_rewriter_damage(-1));
}

// --- Events (events.h): what is measured and written in order --------------------------------------

using inductor_rewriter::EventCall;
using inductor_rewriter::Events;
using inductor_rewriter::FlightCall;
using inductor_rewriter::FlightRing;
using inductor_rewriter::Triggers;
using inductor_rewriter::TriggerValue;

namespace {
thread_local std::string flight_problem;
}  // namespace

// A call of a wrapper starts, or goes on: `lines` is the descriptor of standard output, -1 where
// nothing is printed, -2 where Python takes the lines itself; `rows` is the file of its rows or -1.
// So many threads may measure; a launch of one that is prompt returns when it is written.
EXPORTED void* inductor_rewriter_open(
    int32_t lines, int32_t rows, int32_t threads, int32_t prompt, const char* start, int64_t size) {
  auto* call = new EventCall(lines, rows, std::string(start, static_cast<std::size_t>(size)));
  call->threads = threads;
  call->is_prompt = prompt;
  return call;
}

// The ring of this process in the folder of a dump (flight.h); null if there can be none.
EXPORTED FlightRing* inductor_rewriter_flight(const char* root, int32_t rank) {
  return FlightRing::of(root, rank, flight_problem);
}

// Why there is none.
EXPORTED const char* inductor_rewriter_flight_problem() { return flight_problem.c_str(); }

EXPORTED const char* inductor_rewriter_flight_path(FlightRing* ring) { return ring->path().c_str(); }

// A call of a wrapper begins in this thread.
EXPORTED void inductor_rewriter_flight_start(
    FlightRing* ring, uint64_t number, uint64_t table, FlightCall* to) {
  *to = ring->start(number, table);
}

// Where in the file the marks of its thread are.
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

// What looks at the values of one wrapper, as `--on` has it (triggers.h). Never freed.
EXPORTED Triggers* inductor_rewriter_triggers(
    FlightRing* ring, const char* root, int32_t rank, const char* wanted, const char* kernels) {
  return new Triggers(*ring, root, rank, wanted, kernels);
}

// A value that was measured elsewhere.
EXPORTED void inductor_rewriter_trigger(
    Triggers* triggers, const FlightCall* call, const TriggerValue* value, const char* name) {
  triggers->see(*call, *value, name);
}

EXPORTED void inductor_rewriter_fire(Triggers* triggers) { triggers->fire(); }

EXPORTED void inductor_rewriter_flight_finish(FlightRing* ring, const char* exception) {
  ring->finish(exception);
}

// The rows of a call go into the ring.
EXPORTED void inductor_rewriter_record(
    EventCall* call, FlightRing* ring, const FlightCall* as, Triggers* triggers) {
  call->rows.record(*ring, *as, triggers);
}

// Nothing follows of this call.
EXPORTED void inductor_rewriter_close(EventCall* call) {
  Events& events = Events::get();
  events.writer.put(new inductor_rewriter::Close(events.output, *call));
}

EXPORTED void* inductor_rewriter_plan(const char* packed) {
  return new inductor_rewriter::SharedPlan(inductor_rewriter::PlanReader(packed).read());
}

EXPORTED void inductor_rewriter_forget(inductor_rewriter::SharedPlan* plan) { delete plan; }

// Measures a phase of a launch: its call, plan, iteration, the stream, and the address of each tensor,
// 0 for an input that is what it was when the plan was last measured. 0 for what cannot be measured, 2 where something could not be written before.
EXPORTED int32_t inductor_rewriter_launch(const int64_t* packed) {
  Events& events = Events::get();
  EventCall& call = *reinterpret_cast<EventCall*>(packed[0]);
  const auto& plan = *reinterpret_cast<inductor_rewriter::SharedPlan*>(packed[1]);
  const bool at_once = call.is_prompt;
  const Gpu::When when = at_once ? Gpu::When::at_once
      : plan->has(inductor_rewriter::Plan::together) ? Gpu::When::together
                                                     : Gpu::When::soon;
  void* stream = reinterpret_cast<void*>(packed[3]);
  const int64_t* addresses = packed + 4;
  Gpu* const device = plan->device < 0 ? nullptr : &gpu(plan->device);
  const std::size_t count = plan->gpu_places.size();
  if (call.waits_on && (call.waits_on != device || !count)) call.waits_on->settle();
  call.waits_on = when == Gpu::When::together ? device : nullptr;
  if (device && (count > most_awaited || !device->is_started() || device->is_capturing(stream))) {
    return 0;
  }
  std::unique_ptr<inductor_rewriter::MeasuredLaunch> job(new inductor_rewriter::MeasuredLaunch(
      events.output, call, plan, static_cast<int32_t>(packed[2])));
  // What mostly comes: all tensors are on the GPU, and are to be read.
  const bool is_plain = device && plan->launch >= 0 && count == plan->tensors && count;
  if (is_plain) {
    bool issued = true;
    {
      const std::lock_guard<std::mutex> guard(events.issuing);
      const uint64_t first = device->ring.reserve(count);
      issued = device->measure(
          plan->gpu_layouts.data(), reinterpret_cast<const void* const*>(addresses),
          static_cast<int>(count), stream, first, when);
      job->await(*device, first, stream, issued, plan->gpu_places);
      events.writer.put(job.release());
    }
    if (at_once) events.writer.drain();
    return !issued ? 0 : events.output.has_problem() ? 2 : 1;
  }
  std::vector<std::size_t> places;
  std::vector<const Layout*> layouts;
  std::vector<const void*> given;
  std::size_t at = 0;
  for (const auto& value : plan->values) {
    if (!value.is_tensor) continue;
    const std::size_t place = at++;
    const void* data = reinterpret_cast<const void*>(addresses[place]);
    if (!data && value.layout.numel) {
      job->again.push_back(place);
    } else if (value.layout.device >= 0) {
      places.push_back(place);
      layouts.push_back(&value.layout);
      given.push_back(data);
    } else if (!inductor_rewriter::measure_on_cpu(
                   value.layout, data, call.threads, job->measured[place])) {
      return 0;
    }
  }
  bool issued = true;
  if (!places.empty()) {
    const std::lock_guard<std::mutex> guard(events.issuing);
    const uint64_t first = device->ring.reserve(places.size());
    issued = device->measure(
        layouts.data(), given.data(), static_cast<int>(given.size()), stream, first, when);
    job->own_places.swap(places);
    job->await(*device, first, stream, issued, job->own_places);
    events.writer.put(job.release());
  } else if (device && !at_once) {
    events.writer.put_behind(job.release());
  } else {
    events.writer.put(job.release(), at_once);
  }
  if (device && at_once) events.writer.drain();
  return !issued ? 0 : events.output.has_problem() ? 2 : 1;
}

// Whether something waits for the values of the next launch.
EXPORTED int32_t inductor_rewriter_is_waiting() { return Gpu::gathering; }

// Has measured what waits for the values of the next launch (`Gpu::settle`).
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

// This process is a fork of one that used the queue.
EXPORTED void inductor_rewriter_forked() { Events::start_again(); }

// Returns when everything is written.
EXPORTED void inductor_rewriter_drain() { Events::get().writer.drain(); }

// What Python has to write, all of it emitted before; the text is there until the next one.
EXPORTED const char* inductor_rewriter_collected(EventCall* call, int64_t* size) {
  static thread_local std::string text;
  text.clear();
  text.swap(call->collected);
  *size = static_cast<int64_t>(text.size());
  return text.data();
}

// What is wrong with a device since it was asked last, behind the launch and a line feed; or null.
EXPORTED const char* inductor_rewriter_device_problem() {
  static thread_local std::string problem;
  problem = Events::get().output.take_device_problem();
  return problem.empty() ? nullptr : problem.c_str();
}

// The first NaN that ends the program, since it was asked last: the launch, the value and how many
// elements, on three lines; or null.
EXPORTED const char* inductor_rewriter_finding() {
  static thread_local std::string finding;
  finding = Events::get().output.take_finding();
  return finding.empty() ? nullptr : finding.c_str();
}

// Why lines, or rows, could not be written since it was asked last: of errno, or 0.
EXPORTED int32_t inductor_rewriter_problem(int32_t of_rows) {
  auto& output = Events::get().output;
  return (of_rows ? output.rows_problem : output.lines_problem).exchange(0);
}
