// How the recorder begins and ends, and what it does with the values of a line, and with what was measured.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "memory/watch.h"
#include "recorder.h"

namespace inductor_rewriter {

inline Recorder::Recorder(const Wrapper& wrapper, const char* directory, bool be_quiet)
    : QueuedOutput(wrapper.options, be_quiet), heads(wrapper.options.values),
      fingerprints(contains(wrapper.options.probes, "hash") || contains(wrapper.options.probes, "record")),
      options_(wrapper.options), probes_(wrapper.options), moments_(wrapper, probes_),
      on_cpu_(moments_.are_on_cpu()),
      wanted_(wanted("REWRITER_CALLS", options_.calls, [](const std::string& text) { return Calls(text); })) {
  const bool acts = probes_.acts_on_memory && environment("REWRITER_FILL") != "off";
  if (acts) memory_ = std::make_unique<MemoryOfWrapper>(options_, *this);
  const bool has_own = options_.dump && *options_.dump;
  const char* wanted = directory ? directory : has_own ? options_.dump : std::getenv("REWRITER_DUMP");
  const bool is_named = wanted && *wanted;
  if (is_named || probes_.saves) {
    dump_ = std::make_unique<DumpWriter>(
        options_, is_named ? wanted : "rewriter_dump", rank, moments_.launches(), probes_.marker != nullptr);
  }
  Writers::add(*this);
  // With these probes somebody who looks for a crash reads along: everything is written before a launch runs.
  // What is only read afterwards need not hold up the device: there, `sync` tells which launch fails.
  prompt = upstream || options_.stop || has("sync") || (has("names") && probes_.all.size() > 1 && !quiet);
}

inline Recorder::~Recorder() {
  Writers::remove(*this);
  retire();
}

inline void Recorder::end(std::unique_ptr<RunningCall> call) {
  if (!call->is_wanted) {
    captures_.leave(std::move(call));
    return;
  }
  call->catch_up();
  if (probes_.reads_values) GpuRows::settle();
  if (memory_) act("memory", [&] { memory_->finish(*call); });
  // A captured call is written after the first replay of its graph.
  call = captures_.leave(std::move(call));
  if (!call && is_capturing()) return;
  // Not with a captured one, which may be freed in there.
  read_replays(call.get());
  if (call) {
    const RunningCall& of = *call;
    put(of, end_of(std::move(call)));
  }
  if (!quiet) finish();
}

inline OwnedJob<EventJob> Recorder::report(RunningCall& call, Event& event, Moment& moment, Contents& contents) {
  // Print the name first: everything after this may crash.
  const Probes& probes = *moment.probes;
  bool reads = false;
  for (Probe* probe : probes) {
    if (probe->reads_values) reads = true;
    else act(event, [&] { probe->at(event, call, *this); });
  }
  if (!reads && !call.directory && !probes_.observes) return nullptr;
  OwnedJob<EventJob> job;
  if (reads) act(event, [&] { job = read_values(moment, contents, *this); });
  const bool has_values = job != nullptr;
  if (!job) job.reset(new EventJob);
  adopt(*job, call, event, moment);
  job->has_values = has_values;
  if (!reads) return job;
  bool measures = call.directory || fingerprints;
  for (Probe* probe : probes) {
    measures = measures || probe->measures;
    act(event, [&] { probe->check(job->event, call, *this); });
  }
  if (!job->event.error.empty()) {
    event.error = job->event.error;
    job.reset();
    stop(event, call);
    return nullptr;
  }
  if (!has_values) return job;
  for (Probe* probe : probes) {
    if (!probe->reads_values) continue;
    if (job->event.captured && probe->saves) decline("save", job->event);
    else act(event, [&] { probe->at(job->event, call, *this); });
  }
  if (measures || heads || upstream) {
    act(event, [&] { measure_values(*job, heads || upstream, *this); });
  }
  if (!job->event.captured) return job;
  if (fingerprints) decline("hash", job->event);
  captures_.keep(call, std::move(job));
  return nullptr;
}

inline void Recorder::report_replay(Capture& capture, uint64_t replays, RunningCall* ended, bool is_last) {
  const bool is_new = replays != capture.seen;
  if (!is_new && !(is_last && capture.call)) return;
  if (!is_new && !capture.call->is_wanted) return;
  if (!is_new) warn("exit", "a CUDA graph was captured and never replayed: it has no values");
  capture.seen = replays;
  RunningCall* call = std::exchange(capture.call, nullptr);
  // A call in Python ends when its thread begins the next one: until then that thread has it.
  std::unique_ptr<RunningCall> left = std::move(capture.left);
  if (call && !call->is_wanted) {
    call->capture = nullptr;
    left.reset();
    call = nullptr;
  }
  const bool is_replayer = !call && ended && !capture.was_run_by(*ended, moments_);
  if (!call && !is_replayer && !wanted_.are_all() && options_.of_python) return;  // of a call that is left out
  if (!call && !is_replayer) left = start_call(capture.events.front()->event.call);
  if (left) call = left.get();
  else if (!call) call = ended;
  if (!is_replayer) call->capture = nullptr;
  for (const auto& captured : capture.events) {
    OwnedJob<EventJob> job = captured->replayed();
    adopt(*job, *call, captured->event, *captured->moment);
    job->event.call = call->number;
    job->event.captured = true;
    put(std::move(job));
  }
  if (left) put(end_of(std::move(left)));
}

inline void Recorder::at_inputs(RunningCall& call, Contents& contents, const Lists* lists, const Contents* given) {
  Event event = inputs_of(call);
  if (faulty_) return;
  check_inputs(call, event, given ? *given : contents);
  const auto unexpected = event.unexpected;
  OwnedJob<EventJob> job;
  Moment& moment = moments_.inputs(lists);
  if (options_.reads_inputs && !probes_.readers.empty()) {
    job = report(call, event, moment, contents);
  } else if (!probes_.checkers.empty() && call.directory) {
    act(event, [&] { job = read_values(moment, contents, *this); });
    if (job) adopt(*job, call, event, unread_);
  }
  std::set<std::string> values;  // only these have rows
  if (job) {
    if (!unexpected.empty()) {
      for (const Item& item : job->event.items) values.insert(item.label->name);
    }
    job->event.unexpected = unexpected;
    put(call, std::move(job));
    if (finding_.is_there()) end_program(call);
  }
  for (const auto& one : unexpected) {
    if (values.count(one.first)) continue;
    note(call, event, [&](Json& json) {
      json.key("arg").string(one.first).key("role").string("in").key("unexpected").string(one.second);
    });
  }
}

inline void Recorder::at_launch(RunningCall& call, int index, bool before, Contents& contents, const Lists* lists) {
  const int place = moments_.place_of(index);
  if (place < 0 || faulty_) return;
  Moment& moment = moments_.at(place, before, lists);
  if (!call.is_wanted) return measure_replays(call, moment, contents);
  Event event = event_of(call, moment);
  event.iteration = (before ? call.before : call.after)[static_cast<std::size_t>(place)]++;
  const Probes& probes = *moment.probes;
  Probe* const marker = before ? probes_.marker : nullptr;
  if (options_.dormant && probes.empty() && !marker) return;  // other probes may be switched on later
  for (std::size_t i = before ? 0 : probes.size(); i-- > 0;) {
    act(event, [&] { probes[i]->stop(event, call, *this); });
  }
  OwnedJob<EventJob> job = marker && probes.empty() ? nullptr : report(call, event, moment, contents);
  if (job) put(call, std::move(job));
  if (finding_.is_there()) end_program(call);
  if (!before || !event.error.empty()) return;
  for (Probe* probe : probes) {
    act(event, [&] { probe->start(event, call, *this); });
  }
  if (marker) act(event, [&] { marker->start(event, call, *this); });
}

inline void EventJob::emit() {
  Recorder& recorder = call->recorder;
  recorder.act(event, [&] { complete(); });
  recorder.emit(*this);
}

}  // namespace inductor_rewriter
