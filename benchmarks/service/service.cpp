// A service: threads that call two packages in turn, and hold the outputs of both to the same bits.
//
//     service PLAIN.pt2 PROBED.pt2 THREADS ROWS COLUMNS
//
// It prints "ready". Each line of standard input names the phase that begins; the last one is
// "end". Then a line of JSON for each phase stands on standard output: requests of each package, how
// many had other bits than the first answer of the plain one, and nanoseconds of pairs of requests
// that were measured: [plain, probed, plain in CPU time, probed in CPU time].
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Package = torch::inductor::AOTIModelPackageLoader;
using Pair = std::array<int64_t, 4>;

struct Phase {
  std::string name;
  int64_t requests[2] = {0, 0}, changed = 0;
  std::vector<Pair> pairs;
};

int64_t clock_of(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

bool same(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  if (one.size() != other.size()) return false;
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (one[i].sizes() != other[i].sizes() || one[i].nbytes() != other[i].nbytes()) return false;
    if (std::memcmp(one[i].data_ptr(), other[i].data_ptr(), one[i].nbytes())) return false;
  }
  return true;
}

class Worker {
 public:
  Worker(Package& plain, Package& probed, const std::vector<std::vector<at::Tensor>>& inputs,
         const std::vector<std::vector<at::Tensor>>& expected, std::atomic<int>& phase, int number)
      : packages_{&plain, &probed}, inputs_(inputs), expected_(expected), phase_(phase),
        random_(static_cast<unsigned>(number)) {}

  // Each turn: a request that is not measured, and two that are, of either package.
  void work(int end) {
    c10::InferenceMode guard;
    for (int now; (now = phase_.load(std::memory_order_acquire)) != end;) {
      if (now < 0) continue;
      phases.resize(static_cast<std::size_t>(end));
      Phase& phase = phases[static_cast<std::size_t>(now)];
      Pair pair{};
      const bool first = random_() & 1;
      for (bool is_probed : {first, !first}) {
        request(phase, is_probed);
        const int64_t wall = clock_of(CLOCK_MONOTONIC);
        const int64_t cpu = clock_of(CLOCK_THREAD_CPUTIME_ID);
        request(phase, is_probed);
        request(phase, is_probed);
        pair[2 + is_probed] = (clock_of(CLOCK_THREAD_CPUTIME_ID) - cpu) / 2;
        pair[is_probed] = (clock_of(CLOCK_MONOTONIC) - wall) / 2;
      }
      phase.pairs.push_back(pair);
    }
  }

  std::vector<Phase> phases;

 private:
  void request(Phase& phase, bool is_probed) {
    const std::size_t which = random_() % inputs_.size();
    std::vector<at::Tensor> given = inputs_[which];
    const std::vector<at::Tensor> result = packages_[is_probed]->run(given);
    ++phase.requests[is_probed];
    phase.changed += !same(result, expected_[which]);
  }

  Package* packages_[2];
  const std::vector<std::vector<at::Tensor>>& inputs_;
  const std::vector<std::vector<at::Tensor>>& expected_;
  std::atomic<int>& phase_;
  std::minstd_rand random_;
};

}  // namespace

int main(int count, char** words) {
  if (count != 6) return 2;
  at::set_num_threads(1);
  const int threads = std::atoi(words[3]);
  const auto runners = static_cast<std::size_t>(threads);
  Package plain(words[1], "model", false, runners), probed(words[2], "model", false, runners);
  c10::InferenceMode guard;
  at::manual_seed(1);
  std::vector<std::vector<at::Tensor>> inputs, expected;
  for (int i = 0; i < 16; ++i) {
    inputs.push_back({at::randn({std::atoi(words[4]), std::atoi(words[5])})});
    std::vector<at::Tensor> given = inputs.back();
    expected.push_back(plain.run(given));
  }

  constexpr int end = 64;  // more phases than anybody names
  std::atomic<int> phase{-1};
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    workers.push_back(std::make_unique<Worker>(plain, probed, inputs, expected, phase, i + 1));
    running.emplace_back([&worker = *workers.back()] { worker.work(end); });
  }
  std::puts("ready");
  std::fflush(stdout);
  std::vector<std::string> names;
  for (std::string line; names.size() < end && std::getline(std::cin, line) && line != "end";) {
    names.push_back(line);
    phase = static_cast<int>(names.size()) - 1;
  }
  phase = end;
  for (std::thread& one : running) one.join();

  for (std::size_t at = 0; at < names.size(); ++at) {
    int64_t requests[2] = {0, 0}, changed = 0;
    std::string pairs;
    for (const auto& worker : workers) {
      if (worker->phases.empty()) continue;
      const Phase& phase = worker->phases[at];
      requests[0] += phase.requests[0];
      requests[1] += phase.requests[1];
      changed += phase.changed;
      for (const Pair& pair : phase.pairs) {
        pairs += pairs.empty() ? "[" : ", [";
        for (int i = 0; i < 4; ++i) pairs += (i ? ", " : "") + std::to_string(pair[i]);
        pairs += "]";
      }
    }
    std::printf(
        "{\"phase\": \"%s\", \"plain\": %lld, \"probed\": %lld, \"changed\": %lld, \"pairs\": [%s]}\n",
        names[at].c_str(), static_cast<long long>(requests[0]),
        static_cast<long long>(requests[1]), static_cast<long long>(changed), pairs.c_str());
  }
  return 0;
}
