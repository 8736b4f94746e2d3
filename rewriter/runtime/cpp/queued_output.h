// What the probes of one wrapper write, in order: lines, and rows of its calls.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "engine/writer.h"
#include "printer.h"
#include "running_call.h"

namespace inductor_rewriter {

class QueuedOutput : public Printer, private Output {
 public:
  QueuedOutput(const Options& options, bool be_quiet) : Printer(options, be_quiet), writer_(*this) {}

  // Writes to standard output, after all earlier output.
  void write(std::string text) {
    if (text.empty() || quiet) return;
    if (writer_.is_emitting()) return collect(text);
    put(job_of([this, own = std::move(text)] { collect(own); }));
  }

  void write_row(RunningCall& call, std::string&& lines) {
    if (writer_.is_emitting()) return add_row(call, lines);
    put(job_of([this, &call, own = std::move(lines)] { add_row(call, own); }));
  }

  // Whether a thread waits until all is written.
  bool is_waited_for() const { return waiting != 0; }

  // Waits until all jobs are written.
  void drain() { writer_.drain(); }

  // Waits until all is written, and stops the thread. Nothing may follow.
  void retire() {
    drain();
    writer_.stop();
  }

  // Calls `act`; an exception becomes a warning, so that the other probes go on.
  template <class About, class Act>
  void act(const About& about, Act&& act) {
    try {
      act();
    } catch (const std::exception& error) {
      warn(text_of(about), error.what());
    } catch (...) {
      warn(text_of(about), "unknown failure");
    }
  }

  bool prompt = false;  // whether an event is written before the line returns

 protected:
  ~QueuedOutput() override = default;

  void add_writer() { Writers::add(writer_); }
  void remove_writer() { Writers::remove(writer_); }

  void put(OwnedJob<Job> job) { writer_.put(std::move(job), prompt); }
  void put(const RunningCall& call, OwnedJob<Job> job) {
    if (call.is_behind) writer_.put_behind(std::move(job));
    else put(std::move(job));
  }
  void put_behind(OwnedJob<Job> job) { writer_.put_behind(std::move(job)); }

  // While a job is emitted.
  void add_row(RunningCall& call, const std::string& lines) {
    if (!call.directory) return;
    if (last_written_ != call.directory.get()) flush_rows();
    last_written_ = call.directory.get();
    act("dump", [&] { call.directory->write(lines); });
  }

  void flush() override {
    flush_rows();
    if (text_.empty()) return;
    write_now(text_.data(), text_.size());
    text_.clear();
  }

 private:
  static constexpr std::size_t most_text = 1 << 16;

  static std::string text_of(const Event& event) { return event.about(); }
  static std::string text_of(const std::string& text) { return text; }  // or a string literal

  void collect(const std::string& text) {
    text_ += text;
    if (text_.size() > most_text) flush();
  }

  void flush_rows() {
    if (last_written_) act("dump", [&] { last_written_->flush(); });
    last_written_ = nullptr;
  }

  // Emitted and not flushed yet.
  std::string text_;
  CallDirectory* last_written_ = nullptr;
  Writer writer_;
};

}  // namespace inductor_rewriter
