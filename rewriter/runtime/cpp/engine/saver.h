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
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "crc32.h"
#include "device_copies.h"
#include "known_files.h"
#include "saved_file.h"
#include "staging.h"
#include "stay_loaded.h"
#include "write_all.h"

namespace inductor_rewriter {

class Saver {
 public:
  static constexpr uint64_t default_staging = uint64_t{256} << 20;

  // What became of a save.
  //   full: this tensor, or one before it, exceeds the limit of bytes.
  //   failed: the disk had no room for an earlier tensor.
  //   refused: its device has no asynchronous copies; the caller has to copy the tensor to the CPU.
  enum class Result { queued, full, failed, refused };

  // `most` is the limit of bytes of tensors, 0 for none. The threads never end.
  explicit Saver(uint64_t most = 0, int threads = 0, uint64_t staging = default_staging)
      : most_(most), threads_(threads > 0 ? threads : processors()), bound_(staging),
        staging_(device_, staging), pid_(getpid()) {}
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Saves the bytes of a dense tensor as a new file; `pickle` describes the tensor. The bytes may change as
  // soon as this returns; bytes on a device may be changed by what is launched on `stream` after it.
  Result save(
      const std::string& path, const std::string& pickle, const char* data, uint64_t size,
      bool on_device = false, void* stream = nullptr) {
    if (failed_) return Result::failed;
    if (on_device && !device_.available()) return Result::refused;
    if (!reserve(size)) return Result::full;
    start();
    auto file = std::make_shared<SavedFile>(path, pickle, size);
    {
      std::lock_guard<std::mutex> guard(lock_);
      file->ticket = ++last_;
      unfinished_[file->ticket] = size;
    }
    // A large tensor is not staged: it would take much of the staging, and several threads read it faster
    // in place than one copies it.
    const bool in_place = !on_device && size > bound_ / 4;
    for (std::size_t i = 0; i < file->count; ++i) {
      SavePiece piece = file->piece_at(file, i);
      piece.data = data + piece.offset;
      if (!in_place && !stage(piece, on_device, stream)) {
        staging_.give(piece.place);
        abandon(file, file->count - i);
        return Result::refused;
      }
      push(std::move(piece));
    }
    file->submitted = true;
    if (in_place) wait_until(file->ticket);
    return Result::queued;
  }

  // The number of the last save, for `wait_until`. 0 in a fork: there a lock may be held by a thread that the
  // fork does not have.
  uint64_t last() {
    if (!is_own()) return 0;
    std::lock_guard<std::mutex> guard(lock_);
    return last_;
  }

  // Waits until all saves up to this one have their file, or have failed. Returns at once in a fork, which
  // has no threads.
  void wait_until(uint64_t ticket) {
    if (!is_own()) return;
    std::unique_lock<std::mutex> guard(lock_);
    finished_.wait(guard, [&] { return unfinished_.empty() || unfinished_.begin()->first > ticket; });
  }

  // Takes the message about the first save that failed since this was called last. Empty for none.
  std::string take_message() {
    if (!has_message_ || !is_own()) return "";
    std::lock_guard<std::mutex> guard(lock_);
    has_message_ = false;
    std::string message;
    message.swap(message_);
    return message;
  }

  // Waits for all saves, and starts again as if new, with another limit and the same threads.
  void start_again(uint64_t most) {
    wait_until(last());
    std::lock_guard<std::mutex> guard(lock_);
    most_ = most;
    used_ = 0;
    message_.clear();
    full_ = failed_ = has_message_ = false;
  }

  // Whether its threads are those of this process.
  bool is_own() const { return getpid() == pid_; }

  // Files were removed: sets how many bytes of the limit are used.
  void restart(uint64_t used) {
    std::lock_guard<std::mutex> guard(lock_);
    for (const auto& [ticket, size] : unfinished_) used += size;
    used_ = used;
    full_ = false;
  }

  // Bytes of tensors that were saved or are on their way. A file with several names counts once.
  uint64_t used() {
    std::lock_guard<std::mutex> guard(lock_);
    return used_;
  }

 private:
  using State = SavedFile::State;
  static constexpr std::size_t block = std::size_t{256} << 10;  // fits into a core's cache
  static constexpr int most_threads = 16;

  static int processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    const int count = sched_getaffinity(0, sizeof set, &set) ? 2 : CPU_COUNT(&set);
    return std::min(std::max(count, 2), most_threads);
  }

  // Reserves bytes of the limit; false if that is reached. Saves that turn out to be links give their bytes
  // back. So all saves are waited for before the limit counts as reached, and each run stops at the same
  // tensor.
  bool reserve(uint64_t size) {
    if (full_) return false;
    if (most_ && used() + size > most_) {
      wait_until(last());
      full_ = used() + size > most_;
      if (full_) return false;
    }
    std::lock_guard<std::mutex> guard(lock_);
    used_ += size;
    return true;
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

  // Keeps the library loaded, since the threads run its code, and has the process wait for all saves when
  // it exits.
  void stay() {
    stay_loaded();
    All& all = started_ones();
    std::lock_guard<std::mutex> guard(all.lock);
    if (all.savers.empty()) {
      std::atexit(wait_for_all);
      wait_for_saved_files() = wait_for_all;
    }
    all.savers.push_back(this);
  }

  struct All {
    std::mutex lock;
    std::vector<Saver*> savers;
  };

  static All& started_ones() {
    static All& all = *new All;
    return all;
  }

  static void wait_for_all() {
    std::unique_lock<std::mutex> guard(started_ones().lock);
    const std::vector<Saver*> savers = started_ones().savers;
    guard.unlock();
    for (Saver* saver : savers) saver->wait_until(saver->last());
  }

  // Starts the threads, with all signals blocked: the program's own threads take them.
  void start() {
    std::lock_guard<std::mutex> guard(lock_);
    if (started_) return;
    stay();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (int i = 0; i < threads_; ++i, started_ = true) std::thread(&Saver::work, this).detach();
    } catch (const std::exception&) {
      // The system has no more threads: one is enough.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!started_) throw std::runtime_error("no thread can be started to write files");
  }

  void push(SavePiece&& piece) {
    bool is_idle = false;
    {
      std::lock_guard<std::mutex> guard(lock_);
      queue_.push_back(std::move(piece));
      is_idle = idle_ > 0;
    }
    if (is_idle) queued_.notify_one();
  }

  // Puts pieces back that had to wait, in front of later ones.
  void push_first(std::vector<SavePiece>&& all) {
    if (all.empty()) return;
    {
      std::lock_guard<std::mutex> guard(lock_);
      for (std::size_t i = all.size(); i-- > 0;) queue_.push_front(std::move(all[i]));
    }
    queued_.notify_all();
  }

  void work() {
    pthread_setname_np(pthread_self(), "rewriter-save");
    std::vector<char> room(block);
    while (true) {
      SavePiece piece;
      {
        std::unique_lock<std::mutex> guard(lock_);
        ++idle_;
        queued_.wait(guard, [&] { return !queue_.empty(); });
        --idle_;
        piece = std::move(queue_.front());
        queue_.pop_front();
      }
      act(piece, room.data());
    }
  }

  void act(SavePiece& piece, char* room) {
    const std::shared_ptr<SavedFile> file = piece.file;
    if (is_parked(piece)) return;
    if (file->state_now() == State::comparing) {
      arrive(piece);
      if (is_equal(piece, room)) return done(piece);
    }
    // One thread writes a file at a time: several would wait for one another's locks in the kernel.
    if (!file->begin_turn(piece)) return;
    do {
      arrive(piece);
      if (file->state_now() == State::writing) write(piece, room);
      done(piece);
    } while (file->next_turn(piece));
  }

  // Waits until the device has copied a piece.
  void arrive(SavePiece& piece) {
    if (!piece.copied.event) return;
    const int error = device_.wait(piece.copied);
    piece.copied = {};
    if (error) fail(piece.file, "it could not be copied from the device");
  }

  // Whether a piece has to wait. The first piece waits while a file that may be equal is being written; the
  // other pieces wait for the first one, which finds that file.
  bool is_parked(SavePiece& piece) {
    SavedFile& file = *piece.file;
    {
      std::lock_guard<std::mutex> guard(file.lock);
      if (file.state != State::undecided) return false;
      if (piece.index) {
        file.parked.push_back(std::move(piece));
        return true;
      }
    }
    arrive(piece);
    if (file.state_now() != State::undecided) return false;
    if (file.key.empty()) {
      file.offset = Container(file.pickle, file.size, 0).before.size();
      file.sums[0] = Crc32::add(0, piece.data, piece.size);
      file.key = file.pickle + std::to_string(file.size) + " " + std::to_string(file.sums[0]);
    }
    const std::shared_ptr<SavedFile> kept = piece.file;
    if (known_.take_or_open(piece)) return true;
    if (kept->known < 0) begin_writing(kept);
    else release(kept, State::comparing);
    return false;
  }

  void release(const std::shared_ptr<SavedFile>& file, State state) {
    std::vector<SavePiece> parked;
    {
      std::lock_guard<std::mutex> guard(file->lock);
      file->state = state;
      parked.swap(file->parked);
    }
    push_first(std::move(parked));
  }

  // Compares a piece with the known file. If it is equal, there is nothing to write; if not, all pieces of
  // the file are written.
  bool is_equal(const SavePiece& piece, char* room) {
    SavedFile& file = *piece.file;
    bool same = file.state_now() == State::comparing;
    if (!same) return false;
    for (uint64_t at = 0; same && at < piece.size;) {
      const std::size_t most = std::min<uint64_t>(block, piece.size - at);
      const off_t place = static_cast<off_t>(file.offset + piece.offset + at);
      const ssize_t count = pread(file.known, room, most, place);
      same = count > 0 && !std::memcmp(room, piece.data + at, static_cast<std::size_t>(count));
      at += same ? static_cast<uint64_t>(count) : 0;
    }
    if (same) {
      std::lock_guard<std::mutex> guard(file.lock);
      same = file.state == State::comparing;
      if (same) file.equal[piece.index] = 1;
      return same;
    }
    if (begin_writing(piece.file)) known_.remember(piece.file);
    return false;
  }

  // From now on all pieces are written; those that were equal are copied from the known file. False if that
  // has begun already.
  bool begin_writing(const std::shared_ptr<SavedFile>& shared) {
    SavedFile& file = *shared;
    std::vector<SavePiece> again;
    int error = 0;
    {
      std::lock_guard<std::mutex> guard(file.lock);
      if (file.state != State::undecided && file.state != State::comparing) return false;
      error = file.create(file.ticket);
      if (!error) {
        file.state = State::writing;
        again.swap(file.parked);
        for (std::size_t i = 0; i < file.count; ++i) {
          if (!file.equal[i]) continue;
          again.push_back(file.piece_at(shared, i));
          ++file.left;
        }
      }
    }
    if (error) fail(shared, "", error);
    push_first(std::move(again));
    return true;
  }

  void write(SavePiece& piece, char* room) {
    SavedFile& file = *piece.file;
    if (file.count == 1 && piece.data && piece.size <= block) {
      if (int error = file.put_whole(piece.data)) fail(piece.file, "", error);
      return;
    }
    const bool is_known = !piece.index && piece.data;
    uint32_t sum = is_known ? file.sums[0] : 0;
    for (uint64_t at = 0; at < piece.size;) {
      std::size_t count = std::min<uint64_t>(block, piece.size - at);
      const char* from = piece.data + at;
      const uint64_t place = file.offset + piece.offset + at;
      if (!piece.data) {
        const ssize_t read = pread(file.known, room, count, static_cast<off_t>(place));
        if (read <= 0) return fail(piece.file, "a file of this dump was cut short");
        from = room;
        count = static_cast<std::size_t>(read);
      }
      if (!is_known) sum = Crc32::add(sum, from, count);
      if (int error = file.put(from, count, place)) return fail(piece.file, "", error);
      at += count;
    }
    file.sums[piece.index] = sum;
  }

  // A piece is finished. After the last one, the file gets its name.
  void done(SavePiece& piece) {
    const std::shared_ptr<SavedFile> shared = std::move(piece.file);
    SavedFile& file = *shared;
    staging_.give(piece.place);
    piece.place = {};
    {
      std::lock_guard<std::mutex> guard(file.lock);
      if (--file.left) return;
      if (file.state == State::comparing) ++file.left;
    }
    if (file.state == State::comparing) {
      if (known_.link(file)) return end(shared, nullptr);
      // The known file cannot be linked: write a file of its own.
      begin_writing(shared);
      SavePiece none;
      none.file = shared;
      return done(none);
    }
    struct stat about {};
    int error = 0;
    if (file.state == State::writing && file.count > 1 && known_.link_same(file)) {
      return end(shared, nullptr);
    }
    if (file.state == State::writing && (error = file.appear(about))) fail(shared, "", error);
    end(shared, file.state == State::failed ? nullptr : &about);
  }

  // A save is over. `about` is null if there is no new file: it is a link, or has failed.
  void end(const std::shared_ptr<SavedFile>& file, const struct stat* about) {
    if (!about && !file->temporary.empty()) {
      unlink(file->temporary.c_str());  // before waiting threads go on
      file->temporary.clear();
    }
    push_first(known_.ended(file, about));
    bool is_idle = false;
    {
      std::lock_guard<std::mutex> guard(lock_);
      unfinished_.erase(file->ticket);
      if (!about) used_ -= std::min(used_, file->size);
      is_idle = unfinished_.empty();
    }
    if (is_idle) staging_.shrink();
    finished_.notify_all();
  }

  // Gives up a file with `count` pieces that could not be staged.
  void abandon(const std::shared_ptr<SavedFile>& file, std::size_t count) {
    release(file, State::failed);
    {
      std::lock_guard<std::mutex> guard(file->lock);
      file->left -= count - 1;
    }
    SavePiece none;
    none.file = file;
    done(none);
  }

  // Notes an error. If nothing can be written any more, such as on a full disk, later saves fail at once.
  void fail(const std::shared_ptr<SavedFile>& file, std::string why, int error = 0) {
    const bool is_final = error == ENOSPC || error == EDQUOT || error == EROFS || error == EIO;
    if (error) why = std::strerror(error);
    why = file->path + " cannot be saved: " + why;
    if (is_final) why += "; nothing more is saved, and the model runs on";
    release(file, State::failed);
    std::lock_guard<std::mutex> guard(lock_);
    if (message_.empty() || (is_final && !failed_)) message_ = why;
    has_message_ = true;
    if (is_final) failed_ = true;
  }

  std::atomic<uint64_t> most_;
  const int threads_;
  const uint64_t bound_;
  DeviceCopies device_;
  Staging staging_;
  KnownFiles known_;
  const int pid_;
  std::mutex lock_;  // guards the members below
  std::condition_variable queued_, finished_;
  std::deque<SavePiece> queue_;
  std::map<uint64_t, uint64_t> unfinished_;  // the bytes of each save, by ticket
  uint64_t last_ = 0, used_ = 0;
  int idle_ = 0;
  bool started_ = false;
  std::string message_;
  std::atomic<bool> full_{false}, failed_{false}, has_message_{false};
};

}  // namespace inductor_rewriter
