// A queue of jobs that write in order, some of them not before a device has finished; one thread runs it.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "process.h"

namespace inductor_rewriter {

class Job;
// Ends the ownership of a job, which may go back to a pool.
struct Retire {
  void operator()(Job* job) const;
};
template <class T>
using OwnedJob = std::unique_ptr<T, Retire>;

// Something to be written when it is known. No function throws.
class Job {
 public:
  virtual ~Job() = default;
  // Whether `emit` can be called. It is asked again and again, so it has to be cheap.
  virtual bool is_ready() { return true; }
  // Writes it, or collects it for `Writer::flush`.
  virtual void emit() = 0;
  // Goes back to a pool for another use, if it came from one; returns whether it did.
  virtual bool go_back() { return false; }

  OwnedJob<Job> next;  // in the queue
};

inline void Retire::operator()(Job* job) const {
  if (!job->go_back()) delete job;
}

// A job that calls `act`, once.
template <class Act>
OwnedJob<Job> job_of(Act act) {
  struct ActJob : Job {
    explicit ActJob(Act&& given) : act(std::move(given)) {}
    void emit() override { act(); }
    Act act;
  };
  return OwnedJob<Job>(new ActJob(std::move(act)));
}

// Emits jobs in the order in which they are put. If the queue is empty and the job is ready, the caller
// of `put` emits it at once (`put_behind`: never). Otherwise a thread does, which is started by the first
// such job. It polls whether the next job is ready, so that putting a job needs no system call, and goes
// to sleep when no job came for a millisecond.
//
// `Writers` joins the thread before the library is unloaded, and before the process exits. A fork has no
// such thread, and must not call anything here.
class Writer {
 public:
  // What is derived has stopped it by then.
  virtual ~Writer() = default;

  // Passes the collected output to the operating system. Called when the queue is empty.
  virtual void flush() = 0;
  // The library is unloaded or the process exits: last chance to put jobs.
  virtual void close() {}

  static constexpr std::size_t most = 4096;  // jobs in the queue; `put` waits if it is full

  // Whether all jobs have been emitted.
  bool is_idle() const { return !queued_.load(std::memory_order_acquire); }

  // Takes a job. `at_once`: returns when it has been emitted.
  void put(OwnedJob<Job> job, bool at_once = false) {
    if (is_idle() && (at_once || job->is_ready() || !start_thread())) {
      std::lock_guard<std::mutex> guard(emitting_);
      emitter_ = pthread_self();
      wait_until([&] { return job->is_ready(); });
      emit(std::move(job));
      flush();
      emitter_ = pthread_t{};
      return;
    }
    add(std::move(job));
    if (at_once) drain();
  }

  // Takes a job that is slow to write: the thread emits it, unless no thread can be started.
  void put_behind(OwnedJob<Job> job) {
    if (start_thread()) add(std::move(job));
    else put(std::move(job));
  }

  // Whether a thread waits until the queue is empty.
  bool is_waited_for() const { return waiting_ != 0; }

  // Waits until all jobs have been emitted and flushed.
  void drain() {
    ++waiting_;
    wait_until([this] { return is_idle(); });
    --waiting_;
  }

  bool is_emitting() const { return emitter_ == pthread_self(); }

  // Emits all jobs and ends the thread. Another `put` starts it again.
  void stop() {
    if (pid_ != getpid()) return;
    std::lock_guard<std::mutex> alone(ending_);  // a second caller waits until the first one has joined the thread
    {
      std::lock_guard<std::mutex> guard(queue_);
      if (!is_started_) return;
      stopping_ = true;
    }
    ++waiting_;
    came_.notify_one();
    pthread_join(thread_, nullptr);
    --waiting_;
    std::lock_guard<std::mutex> guard(queue_);
    stopping_ = is_started_ = false;
  }

 private:
  // The job is gone when this returns, before its output is flushed.
  static void emit(OwnedJob<Job> job) { job->emit(); }

  void add(OwnedJob<Job> job) {
    while (queued_.load(std::memory_order_relaxed) >= most) pause(50);
    bool wake = false;
    {
      std::lock_guard<std::mutex> guard(queue_);
      Job* const last = job.get();
      (last_ ? last_->next : first_) = std::move(job);
      last_ = last;
      ++queued_;
      wake = asleep_;
    }
    if (wake) came_.notify_one();
  }

  static void pause(long us) {
    timespec time = {0, us * 1000};
    nanosleep(&time, nullptr);
  }

  // Polls until `is` holds; false if it does not within `limit` nanoseconds. At first without a pause, as the
  // driver waits for the device: a pause of 50 us takes the system 100.
  template <class Is>
  static bool wait_until(Is&& is, int64_t limit = INT64_MAX) {
    constexpr int64_t without_pause = 10000000;
    const int64_t start = clock_ns();
    while (!is()) {
      const int64_t waited = clock_ns() - start;
      if (waited >= limit) return false;
      if (waited < without_pause) sched_yield();
      else pause(50);
    }
    return true;
  }

  // Starts the thread. False if the system has no more threads: then callers of `put` emit their jobs.
  bool start_thread() {
    std::lock_guard<std::mutex> guard(queue_);
    if (is_started_) return true;
    pid_ = getpid();
    // The program's own threads take its signals.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const auto run = [](void* self) -> void* { return static_cast<Writer*>(self)->work(), nullptr; };
    is_started_ = !pthread_create(&thread_, nullptr, run, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return is_started_;
  }

  void work() {
    std::size_t unflushed = 0;
    while (OwnedJob<Job> job = take()) {
      std::lock_guard<std::mutex> guard(emitting_);
      emitter_ = pthread_self();
      const auto is_ready = [&] { return job->is_ready(); };
      constexpr int64_t soon = 200000;
      // If the next job is not ready soon, what was written is shown now: it may never be ready.
      if (!wait_until(is_ready, waiting_ ? soon : 0) && unflushed) {
        flush();
        unflushed = 0;
      }
      while (!is_ready()) {  // a thread may begin to wait meanwhile
        if (waiting_) wait_until(is_ready);
        else pause(50);
      }
      emit(std::move(job));
      // Flushed before it counts as done: `drain` waits for that.
      if (++unflushed >= 256 || queued_.load(std::memory_order_acquire) == 1) {
        flush();
        unflushed = 0;
      }
      emitter_ = pthread_t{};
      --queued_;
    }
  }

  // Waits for the next job. Null if the thread has to end.
  OwnedJob<Job> take() {
    for (int idle = 0;; ++idle) {
      {
        std::unique_lock<std::mutex> guard(queue_);
        if (!first_ && !stopping_ && idle > 20) {
          asleep_ = true;
          came_.wait(guard);
          asleep_ = false;
          idle = 0;
        }
        if (first_) {
          OwnedJob<Job> job = std::move(first_);
          first_ = std::move(job->next);
          if (!first_) last_ = nullptr;
          return job;
        }
        if (stopping_) return nullptr;
      }
      pause(50);
    }
  }

  std::mutex queue_, emitting_, ending_;
  std::condition_variable came_;
  OwnedJob<Job> first_;
  Job* last_ = nullptr;
  std::atomic<int> waiting_{0};  // how many threads wait until the queue is empty
  std::atomic<std::size_t> queued_{0};  // jobs that were not emitted yet
  std::atomic<pthread_t> emitter_{};  // the thread that emits a job; zero if none does
  bool asleep_ = false, stopping_ = false, is_started_ = false;
  std::atomic<pid_t> pid_{0};
  pthread_t thread_{};
};

// Stops all writers when the library is unloaded, or the process exits.
class Writers {
 public:
  static void add(Writer& writer) {
    // Constructed with the first writer, so that it is destroyed before what existed by then, such as
    // CUDA's own state.
    static Writers ending;
    std::lock_guard<std::mutex> guard(all().lock);
    all().writers.push_back(&writer);
  }

  // The caller stops and destroys the writer. Waits while the process stops it.
  static void remove(Writer& writer) {
    std::unique_lock<std::mutex> guard(all().lock);
    auto& writers = all().writers;
    writers.erase(std::remove(writers.begin(), writers.end(), &writer), writers.end());
    all().came.wait(guard, [&] { return all().stopped != &writer; });
  }

  // Taken to add and to remove.
  static std::mutex& lock() { return all().lock; }

  Writers() = default;
  Writers(const Writers&) = delete;
  Writers& operator=(const Writers&) = delete;
  // Each is stopped without the lock: its thread may remove another one.
  ~Writers() {
    while (Writer* const writer = next()) {
      writer->close();
      writer->stop();
    }
  }

 private:
  struct All {
    std::mutex lock;
    std::condition_variable came;
    std::vector<Writer*> writers;
    Writer* stopped = nullptr;  // which is being stopped
  };
  // Never destroyed: threads may still run while the process exits.
  static All& all() {
    static All& one = *new All;
    return one;
  }
  static Writer* next() {
    std::lock_guard<std::mutex> guard(all().lock);
    auto& writers = all().writers;
    Writer* const first = all().stopped = writers.empty() ? nullptr : writers.front();
    if (first) writers.erase(writers.begin());
    all().came.notify_all();
    return first;
  }
};

}  // namespace inductor_rewriter
