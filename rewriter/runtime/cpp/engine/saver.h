// Writes tensors into files while the model goes on: a tensor is copied into staging memory of bounded
// size, by the device itself if it is on one, and several threads write it from there.
//
// A file appears under its name when it is complete, or not at all. If the process saved the same bytes
// before, the new name is a link to that file; the bytes themselves are compared, not a hash.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "crc32.h"
#include "known_files.h"
#include "saved_file.h"
#include "staging.h"
#include "process.h"
#include "files.h"

namespace inductor_rewriter {

// What is saved within one limit of bytes: into one dump, by all wrappers, or by one wrapper that has a limit.
class Saved {
 public:
  // What wrappers without a limit save into this dump, or `most` bytes for one wrapper.
  static std::shared_ptr<Saved> in(const std::string& root, uint64_t most) {
    if (most) return std::make_shared<Saved>(most);
    static std::mutex& lock = *new std::mutex;
    static auto& all = *new std::map<std::pair<std::string, pid_t>, std::weak_ptr<Saved>>;
    const std::lock_guard<std::mutex> guard(lock);
    for (auto one = all.begin(); one != all.end();) one = one->second.expired() ? all.erase(one) : std::next(one);
    std::weak_ptr<Saved>& known = all[{root, getpid()}];
    std::shared_ptr<Saved> found = known.lock();
    if (!found) known = found = std::make_shared<Saved>(0);
    return found;
  }

  explicit Saved(uint64_t limit) : most(limit) {}

  // Takes the message about the first save that failed since this was called last. Empty for none.
  std::string take_message() {
    if (!has_message_) return "";
    std::lock_guard<std::mutex> guard(lock_);
    has_message_ = false;
    return std::exchange(message_, "");
  }

  // Files were removed: sets how many bytes of the limit are used.
  void restart(uint64_t used) {
    std::lock_guard<std::mutex> guard(lock_);
    used_ = used + unfinished_;
    full_ = false;
  }

  bool has_failed() const { return failed_; }
  bool is_full() const { return full_; }

  // Reserves bytes of the limit. False if that is reached, which counts for what follows if it `is_over`.
  bool reserve(uint64_t size, bool is_over) {
    std::lock_guard<std::mutex> guard(lock_);
    if (most && used_ + size > most) {
      full_ = is_over;
      return false;
    }
    used_ += size;
    unfinished_ += size;
    return true;
  }

  // A save is over; a file with several names counts once.
  void ended(uint64_t size, bool is_new) {
    std::lock_guard<std::mutex> guard(lock_);
    unfinished_ -= size;
    if (!is_new) used_ -= std::min(used_, size);
  }

  // Notes an error. If nothing can be written any more, such as on a full disk, later saves fail at once.
  void fail(const std::string& path, const std::exception& error) {
    const auto* const of_system = dynamic_cast<const std::system_error*>(&error);
    const int code = of_system ? of_system->code().value() : 0;
    const bool is_final = code == ENOSPC || code == EDQUOT || code == EROFS || code == EIO;
    std::string why = path + " cannot be saved: " + (code ? std::strerror(code) : error.what());
    if (is_final) why += "; nothing more is saved, and the model runs on";
    std::lock_guard<std::mutex> guard(lock_);
    if (message_.empty() || (is_final && !failed_)) message_ = why;
    has_message_ = true;
    if (is_final) failed_ = true;
  }

  const uint64_t most;  // bytes of tensors, 0 for no limit
  KnownFiles known;

 private:
  std::mutex lock_;  // guards the members below
  uint64_t used_ = 0, unfinished_ = 0;  // bytes that were saved or are on their way, and the latter
  std::string message_;
  std::atomic<bool> full_{false}, failed_{false}, has_message_{false};
};

// The threads that write, and what waits for them.
class Saver {
 public:
  // What became of a save.
  //   full: this tensor, or one before it, exceeds the limit of bytes.
  //   failed: the disk had no room for an earlier tensor.
  //   refused: its device has no asynchronous copies; the caller has to copy the tensor to the CPU.
  enum class Result { queued, full, failed, refused };

  // That of this process: a fork has no threads, and locks that one may hold. Never destroyed: its threads never end.
  static Saver& get() {
    static std::atomic<Saver*> one{new Saver};
    Saver* known = one.load(std::memory_order_acquire);
    if (!known->mark_.is_fork()) return *known;
    auto made = std::make_unique<Saver>();
    return one.compare_exchange_strong(known, made.get()) ? *made.release() : *known;
  }

  // Saves the bytes of a dense tensor as a new file; `pickle` describes the tensor. The bytes may change as
  // soon as this returns; bytes on a device may be changed by what is launched on `stream` after it.
  Result save(
      const std::shared_ptr<Saved>& to, const std::string& path, const std::string& pickle, const char* data,
      uint64_t size, bool on_device = false, void* stream = nullptr) {
    if (to->has_failed()) return Result::failed;
    if (on_device && !device_.available()) return Result::refused;
    if (to->is_full()) return Result::full;
    if (!to->reserve(size, false)) {
      // Saves that turn out to be links give their bytes back: each run stops at the same tensor.
      wait_for_all();
      if (!to->reserve(size, true)) return Result::full;
    }
    start();
    auto file = std::make_shared<SavedFile>(to, path, pickle, size);
    {
      std::lock_guard<std::mutex> guard(lock_);
      file->ticket = ++last_;
      unfinished_.insert(last_);
    }
    // A large tensor on the CPU is not staged: it would take much of the staging, and be copied once more.
    const bool in_place = !on_device && size > Staging::most * Staging::piece_size / 4;
    for (uint64_t at = 0; at < size || !at; at += Staging::piece_size) {
      SavePiece piece;
      piece.offset = at;
      piece.size = std::min<uint64_t>(Staging::piece_size, size - at);
      piece.data = data + at;
      if (!in_place && !stage(piece, on_device, stream)) {
        staging_.give(piece.place);
        file->give_up();
        if (!at) end(file, nullptr);
        return Result::refused;
      }
      file->add(std::move(piece));
      if (!at) push({file});
    }
    file->submitted = true;
    if (in_place) wait_until(file->ticket);
    return Result::queued;
  }

  // Waits until all saves so far have their file, or have failed.
  void wait_for_all() { wait_until(last_); }

 private:
  static constexpr int most_threads = 16;

  static int processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    const int count = sched_getaffinity(0, sizeof set, &set) ? 2 : CPU_COUNT(&set);
    return std::min(std::max(count, 2), most_threads);
  }

  void wait_until(uint64_t ticket) {
    std::unique_lock<std::mutex> guard(lock_);
    finished_.wait(guard, [&] { return unfinished_.empty() || *unfinished_.begin() > ticket; });
  }

  bool stage(SavePiece& piece, bool on_device, void* stream) {
    const char* from = piece.data;
    piece.place = staging_.take(piece.size, on_device);
    piece.data = piece.place.data;
    if (!piece.data) return false;
    if (!piece.size) return true;
    if (!on_device) {
      std::memcpy(piece.place.data, from, piece.size);
      return true;
    }
    return !device_.copy(
               piece.place.data, reinterpret_cast<uintptr_t>(from), piece.size, stream) &&
        !device_.record(stream, piece.copied);
  }

  // Starts the threads, with all signals blocked: the program's own threads take them. The library stays loaded, since
  // they run its code, and the process waits for all saves when it exits.
  void start() {
    std::lock_guard<std::mutex> guard(lock_);
    if (started_) return;
    stay_loaded();
    const auto wait = [] { get().wait_for_all(); };
    if (!wait_for_saved_files().exchange(wait)) std::atexit(wait);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (int i = 0; i < processors(); ++i, started_ = true) std::thread(&Saver::work, this).detach();
    } catch (const std::exception&) {
      // The system has no more threads: one is enough.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!started_) throw std::runtime_error("no thread can be started to write files");
  }

  // Queues files; those that had to wait `first`.
  void push(std::vector<std::shared_ptr<SavedFile>>&& files, bool first = false) {
    if (files.empty()) return;
    std::lock_guard<std::mutex> guard(lock_);
    queue_.insert(first ? queue_.begin() : queue_.end(), files.begin(), files.end());
    queued_.notify_all();
  }

  void work() {
    pthread_setname_np(pthread_self(), "rewriter-save");
    std::vector<char> room(save_block);
    while (true) {
      std::unique_lock<std::mutex> guard(lock_);
      queued_.wait(guard, [&] { return !queue_.empty(); });
      const std::shared_ptr<SavedFile> file = std::move(queue_.front());
      queue_.pop_front();
      guard.unlock();
      put(file, room.data());
    }
  }

  // Puts a tensor into its file, or links that to a known one with the same bytes. Does nothing yet if one that may be
  // equal is still being written.
  void put(const std::shared_ptr<SavedFile>& shared, char* room) {
    SavedFile& file = *shared;
    SavePiece piece;
    struct stat about {};
    bool is_new = false;
    try {
      while (file.next(piece)) {
        arrive(piece);
        if (!piece.offset) {
          begin(file, piece);
          if (file.to->known.wait_or_open(shared, piece)) return;
        }
        write(shared, piece, room);
        staging_.give(std::exchange(piece.place, {}));
      }
      if (file.is_complete()) is_new = finish(file, room, about);
    } catch (const std::exception& error) {
      file.to->fail(file.path, error);
    }
    // After a failure, the device may still copy what is left.
    do {
      if (piece.copied.event) device_.wait(std::exchange(piece.copied, {}));
      staging_.give(std::exchange(piece.place, {}));
    } while (file.next(piece));
    end(shared, is_new ? &about : nullptr);
  }

  // Waits until the device has copied a piece.
  void arrive(SavePiece& piece) {
    if (!piece.copied.event) return;
    const int error = device_.wait(std::exchange(piece.copied, {}));
    if (error) throw std::runtime_error("it could not be copied from the device");
  }

  static void begin(SavedFile& file, const SavePiece& first) {
    if (!file.key.empty()) return;
    file.offset = Container(file.pickle, file.size, 0).before.size();
    file.sum = Crc32::add(0, first.data, first.size);
    file.key = file.pickle + std::to_string(file.size) + " " + std::to_string(file.sum);
  }

  // A piece that is as in the known file needs no writing. The first one that is not makes it a file of its own.
  void write(const std::shared_ptr<SavedFile>& shared, const SavePiece& piece, char* room) {
    SavedFile& file = *shared;
    if (file.file < 0 && file.known >= 0) {
      if (is_equal(file, piece, room)) return;
      file.to->known.remember(shared);
    }
    if (file.file < 0) {
      file.create();
      if (piece.offset) copy_known(file, piece.offset, room);
    }
    if (file.count == 1 && piece.size <= save_block) return file.put_whole(piece.data);
    for (uint64_t at = 0; at < piece.size; at += save_block) {
      file.append(piece.data + at, std::min<uint64_t>(save_block, piece.size - at), !piece.offset);
    }
  }

  static bool is_equal(const SavedFile& file, const SavePiece& piece, char* room) {
    return each_block(
        file.known, file.offset + piece.offset, piece.size, room,
        [&](uint64_t at, std::size_t size) { return !std::memcmp(room, piece.data + at, size); });
  }

  // Copies the beginning of a tensor from the known file, which has the same bytes.
  static void copy_known(SavedFile& file, uint64_t bytes, char* room) {
    file.sum = 0;
    const auto append = [&](uint64_t, std::size_t size) { return file.append(room, size), true; };
    if (!each_block(file.known, file.offset, bytes, room, append)) {
      throw std::runtime_error("a file of this dump was cut short");
    }
  }

  // After the last piece the file gets its name. Whether it is a new one, and not a link.
  bool finish(SavedFile& file, char* room, struct stat& about) {
    if (file.file < 0) {
      if (file.to->known.link(file)) return false;
      file.create();  // the known file cannot be linked
      copy_known(file, file.size, room);
    } else if (file.count > 1 && file.to->known.link_same(file)) {
      return false;
    }
    about = file.appear();
    return true;
  }

  // A save is over. `about` is null if there is no new file: it is a link, or has failed.
  void end(const std::shared_ptr<SavedFile>& file, const struct stat* about) {
    file->forget_temporary();  // before waiting threads go on
    push(file->to->known.ended(file, about), true);
    file->to->ended(file->size, about);
    std::unique_lock<std::mutex> guard(lock_);
    unfinished_.erase(file->ticket);
    const bool is_idle = unfinished_.empty();
    guard.unlock();
    if (is_idle) staging_.shrink();
    finished_.notify_all();
  }

  const ForkMark mark_;
  DeviceCopies device_;
  Staging staging_{device_};
  std::mutex lock_;  // guards the members below
  std::condition_variable queued_, finished_;
  std::deque<std::shared_ptr<SavedFile>> queue_;
  std::set<uint64_t> unfinished_;  // by ticket
  std::atomic<uint64_t> last_{0};
  bool started_ = false;
};

}  // namespace inductor_rewriter
