// Things to be written in order, some of which are not known yet: a queue that one thread empties.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <vector>

namespace {
namespace inductor_rewriter {

// Something to be written once it is known. Neither function throws.
class Job {
 public:
  virtual ~Job() = default;
  // Whether `emit` can be called: asked again and again, so it has to be cheap.
  virtual bool is_ready() { return true; }
  // Write it, or collect it for `Output::flush`. The job is not touched afterwards: it may free
  // itself here, or go back to a pool.
  virtual void emit() = 0;

  Job* next = nullptr;  // of the queue
};

// Where jobs write to.
class Output {
 public:
  virtual ~Output() = default;
  // Hand what was collected to the operating system: called when there is nothing more to emit.
  virtual void flush() = 0;
  // No job follows but those that are put here.
  virtual void close() {}

  std::atomic<int> waiting{0};  // who wait until all is emitted
};

class Locked {
 public:
  explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t& mutex_;
};

// Emits jobs in the order in which they are put. A job that is ready while none is queued is
// emitted at once, by whoever puts it (`put_behind`: never). The first other one starts the thread, which asks whether
// the next one is ready, with pauses, so that putting a job makes no call of the system; it goes
// to sleep when none came for a while.
//
// The thread is joined before the library that holds this is unloaded, and before the process
// exits: `Writers` sees to it. In a fork there is no such thread, and nothing may be called.
class Writer {
 public:
  explicit Writer(Output& output) : output_(output) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { stop(); }

  static constexpr std::size_t most = 4096;  // jobs in the queue; who puts another one waits

  // Whether all that was put has been emitted.
  bool is_idle() const { return !queued_.load(std::memory_order_acquire); }

  // Take a job. `at_once`: return when it has been emitted.
  void put(Job* job, bool at_once = false) {
    if (is_idle() && (at_once || job->is_ready() || !start())) {
      Locked guard(emitting_);
      emitter_ = pthread_self();
      is_emitting_ = true;
      wait_for(*job, 4096);
      job->emit();
      output_.flush();
      is_emitting_ = false;
      return;
    }
    add(job);
    if (at_once) drain();
  }

  // The same for one that is much to write: never by who puts it, if there is a thread.
  void put_behind(Job* job) {
    if (start()) add(job);
    else put(job);
  }

  // Wait until all that was put has been emitted and flushed.
  void drain() {
    ++output_.waiting;
    for (long us = 0; !is_idle(); us = us < 100 ? us + 10 : us) pause(us);
    --output_.waiting;
  }

  // Whether the caller is inside of `emit`.
  bool is_emitting() const {
    return is_emitting_.load(std::memory_order_acquire) &&
        pthread_equal(emitter_.load(std::memory_order_relaxed), pthread_self());
  }

  void close() { output_.close(); }

  // Emit what is queued, and end the thread. Another `put` starts it again.
  void stop() {
    if (!is_started_ || pid_ != getpid()) return;
    ++output_.waiting;
    {
      Locked guard(queue_);
      stopping_ = true;
    }
    pthread_cond_signal(&came_);
    pthread_join(thread_, nullptr);
    stopping_ = is_started_ = false;
    --output_.waiting;
  }

 private:
  void add(Job* job) {
    while (queued_.load(std::memory_order_relaxed) >= most) pause(50);
    job->next = nullptr;
    bool wake = false;
    {
      Locked guard(queue_);
      (last_ ? last_->next : first_) = job;
      last_ = job;
      ++queued_;
      wake = asleep_;
    }
    if (wake) pthread_cond_signal(&came_);
  }

  static void pause(long us) {
    timespec time = {0, us * 1000};
    nanosleep(&time, nullptr);
  }

  // Spin for so many looks, then look every 50 us.
  static void wait_for(Job& job, int spins) {
    while (!job.is_ready()) {
      if (spins-- <= 0) pause(50);
    }
  }

  // False where the system has no more threads: then everything is emitted by who puts it.
  bool start() {
    Locked guard(queue_);
    if (is_started_) return true;
    pid_ = getpid();
    // Signals are for the threads of the program.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_started_ = !pthread_create(&thread_, nullptr, &Writer::run, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return is_started_;
  }

  static void* run(void* self) {
    static_cast<Writer*>(self)->work();
    return nullptr;
  }

  void work() {
    std::size_t unflushed = 0;
    while (Job* job = take()) {
      Locked guard(emitting_);
      emitter_ = pthread_self();
      is_emitting_ = true;
      if (!job->is_ready() && unflushed) {
        output_.flush();
        unflushed = 0;
      }
      wait_for(*job, 0);
      job->emit();
      // Flushed before it counts as done: `drain` waits for that.
      if (++unflushed >= 256 || queued_.load(std::memory_order_acquire) == 1) {
        output_.flush();
        unflushed = 0;
      }
      is_emitting_ = false;
      --queued_;
    }
  }

  // The next job; none when the thread has to end.
  Job* take() {
    for (int idle = 0;; ++idle) {
      {
        Locked guard(queue_);
        if (!first_ && !stopping_ && idle > 200) {
          asleep_ = true;
          pthread_cond_wait(&came_, &queue_);
          asleep_ = false;
          idle = 0;
        }
        if (Job* job = first_) {
          first_ = job->next;
          if (!first_) last_ = nullptr;
          return job;
        }
        if (stopping_) return nullptr;
      }
      pause(50);
    }
  }

  Output& output_;
  pthread_mutex_t queue_ = PTHREAD_MUTEX_INITIALIZER, emitting_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t came_ = PTHREAD_COND_INITIALIZER;
  Job *first_ = nullptr, *last_ = nullptr;
  std::atomic<std::size_t> queued_{0};  // and not emitted yet
  std::atomic<pthread_t> emitter_{};
  std::atomic<bool> is_emitting_{false};
  bool asleep_ = false, stopping_ = false, is_started_ = false;
  pid_t pid_ = 0;
  pthread_t thread_{};
};

// Stops writers when the library that holds this is unloaded, or the process exits.
class Writers {
 public:
  static void add(Writer& writer) {
    // Made when a writer is, so that it is destroyed before what was there by then, such as CUDA's
    // own state.
    static Writers all;
    Locked guard(mutex());
    writers().push_back(&writer);
  }

  // It is stopped and destroyed by who calls this.
  static void remove(Writer& writer) {
    Locked guard(mutex());
    auto& all = writers();
    all.erase(std::remove(all.begin(), all.end(), &writer), all.end());
  }

  Writers() = default;
  Writers(const Writers&) = delete;
  Writers& operator=(const Writers&) = delete;
  ~Writers() {
    Locked guard(mutex());
    for (Writer* writer : writers()) {
      writer->close();
      writer->stop();
    }
  }

 private:
  static pthread_mutex_t& mutex() {
    static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
    return adding;
  }
  // Never destroyed: threads may go on while the process exits.
  static std::vector<Writer*>& writers() {
    static std::vector<Writer*>& all = *new std::vector<Writer*>;
    return all;
  }
};

}  // namespace inductor_rewriter
}  // namespace
