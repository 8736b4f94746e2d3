// The recorder by itself, as wrappers call it: what it writes, and what its threads share.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "recorder.cpp"  // the text that rewriter/runtime/bundle.py makes, which a test puts beside this file

#include <filesystem>
#include <fstream>
#include <random>

#include "fake_torch.h"

using namespace inductor_rewriter;
namespace fs = std::filesystem;

namespace {

constexpr int launches = 2;
const char* const rows[launches][14] = {
    {"0", "first", "cpp", "call", "10", "", "", nullptr, nullptr, "in x", "out y", nullptr, nullptr, nullptr},
    {"1", "second", "cpp", "call", "11", "", "", nullptr, nullptr, "in y", "out z", nullptr, nullptr, nullptr}};

// A wrapper of two launches, with a dump of its own.
class Model {
 public:
  explicit Model(std::string probes, int last = 0)
      : probes_(std::move(probes)), last_(std::to_string(last)), dump(fs::temp_directory_path() / name()),
        dump_text_(dump.string()),
        options_{"wrapper.cpp", "0", "0", probes_.c_str(), "", "text", nullptr, "-", "", "1",
                 "", "", last_.c_str(), "all", "", "", nullptr, "", nullptr, nullptr},
        table{options_, rows, "x", launches, nullptr, nullptr} {
    setenv("REWRITER_DUMP", dump_text_.c_str(), 1);
    record_into(table, dump_text_.c_str(), true);
  }
  ~Model() {
    record_into(table, nullptr, true);
    fs::remove_all(dump);
  }

  // Three values that differ: x, x + 1 and x + 2.
  void call(float x) {
    AtenTensorOpaque values[3];
    for (int i = 0; i < 3; ++i) values[i] = fake::full({4, 8}, x + static_cast<float>(i));
    const Functions& recorder = *own_functions();
    void* const call = recorder.begin(table);
    if (!call) return;
    auto value = [&](int i) { return Value{'t', 0, 0, &values[i]}; };
    recorder.at(call, 'i', 0, 1, value(0));
    for (int i = 0; i < launches; ++i) {
      recorder.at(call, 'b', i, 1, value(i));
      recorder.at(call, 'a', i, 1, value(i + 1));
    }
    recorder.end(call);
    // Memory is used again as soon as a call is over.
    for (AtenTensorOpaque& one : values) std::fill(one.storage->begin(), one.storage->end(), -1.0f);
  }

  // The lines of the events of each call, in the order of calls.
  std::vector<std::vector<std::string>> events() {
    finish_writing(table);
    std::map<int, std::vector<std::string>> found;
    for (const auto& entry : fs::directory_iterator(dump / "rank0")) {
      const std::string folder = entry.path().filename().string();
      if (folder.compare(0, 3, "run")) continue;
      std::ifstream file(entry.path() / "events.jsonl");
      auto& lines = found[std::stoi(folder.substr(3))];
      for (std::string line; std::getline(file, line);) lines.push_back(line);
    }
    std::vector<std::vector<std::string>> all;
    for (auto& one : found) all.push_back(std::move(one.second));
    return all;
  }

 private:
  static std::string name() {
    static std::atomic<int> count{0};
    return "recorder-" + std::to_string(getpid()) + "-" + std::to_string(count++);
  }
  const std::string probes_, last_;

 public:
  const fs::path dump;

 private:
  const std::string dump_text_;
  const char* const options_[20];

 public:
  Table table;
};

int count(const std::vector<std::string>& lines, const std::string& part) {
  int found = 0;
  for (const std::string& line : lines) found += line.find(part) != std::string::npos;
  return found;
}

void in_threads(int threads, const std::function<void(int)>& work) {
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) all.emplace_back(work, i);
  for (std::thread& one : all) one.join();
}

}  // namespace

TEST_CASE("a call leaves its values") {
  Model model("print");
  model.call(3);
  const auto calls = model.events();
  REQUIRE(calls.size() == 1);
  CHECK(count(calls[0], "\"arg\": \"y\"") >= 1);
  CHECK(count(calls[0], "\"max\": 4.0") >= 1);
  CHECK(count(calls[0], "\"max\": 5.0") >= 1);
  CHECK(count(calls[0], "\"max\": -1.0") == 0);
}

TEST_CASE("calls of several threads are all written, each whole") {
  constexpr int threads = 4, each = 50;
  Model model("print,hash");
  in_threads(threads, [&](int thread) {
    for (int i = 0; i < each; ++i) model.call(static_cast<float>(10 * (thread * each + i)));
  });
  const auto calls = model.events();
  REQUIRE(calls.size() == threads * each);
  for (const auto& lines : calls) {
    CHECK(lines.size() == calls[0].size());
    CHECK(count(lines, "\"max\": -1.0") == 0);
  }
}

TEST_CASE("the last calls are kept while threads call") {
  Model model("print", 3);
  in_threads(3, [&](int thread) {
    for (int i = 0; i < 40; ++i) model.call(static_cast<float>(thread));
  });
  CHECK(model.events().size() == 3);
}

TEST_CASE("recorders are exchanged while threads call") {
  Model model("names,print");
  const fs::path other = model.dump.string() + "-other";
  std::atomic<bool> over{false};
  std::thread exchanging([&] {
    for (int i = 0; !over; ++i) {
      const fs::path& to = i % 3 ? other : model.dump;
      CHECK(record_into(model.table, i % 5 ? to.c_str() : nullptr, true));
    }
  });
  in_threads(3, [&](int thread) {
    for (int i = 0; i < 60; ++i) model.call(static_cast<float>(thread));
  });
  over = true;
  exchanging.join();
  CHECK(record_into(model.table, nullptr, true));
  fs::remove_all(other);
}

TEST_CASE("a view and an array are read where they are") {
  Model model("print");
  AtenTensorOpaque base = fake::full({4, 8}, 2);
  (*base.storage)[31] = 7;
  const int64_t sizes[] = {8}, strides[] = {1};
  const Functions& recorder = *own_functions();
  void* const call = recorder.begin(model.table);
  REQUIRE(call);
  recorder.at(call, 'a', 0, 1, recorder.view(call, {'t', 0, 0, &base}, 1, sizes, strides, 24));
  recorder.at(call, 'a', 1, 1, recorder.array(call, base.storage->data(), typeid(float).name(), 1, sizes, strides, 0, 0));
  recorder.end(call);
  const auto calls = model.events();
  REQUIRE(calls.size() == 1);
  CHECK(count(calls[0], "\"max\": 7.0") == 1);
  CHECK(count(calls[0], "\"max\": 2.0") == 1);
}

namespace {

// Collects the numbers of its jobs.
class Numbers : public Writer {
 public:
  ~Numbers() override { stop(); }
  void flush() override {}
  std::vector<int> seen;
};
class NumberJob : public Job {
 public:
  NumberJob(Numbers& to, int number) : to_(to), number_(number) {}
  void emit() override { to_.seen.push_back(number_); }

 private:
  Numbers& to_;
  const int number_;
};

}  // namespace

TEST_CASE("several threads stop a writer, and it begins again") {
  Numbers writer;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 5; ++i) writer.put_behind(OwnedJob<Job>(new NumberJob(writer, i)));
    in_threads(4, [&](int) { writer.stop(); });
    CHECK(writer.seen.size() == std::size_t(5 * (round + 1)));
  }
}

TEST_CASE("a writer is stopped whose thread removes another one") {
  struct Removing : Job {
    explicit Removing(Writer& other) : other_(other) {}
    void emit() override {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      Writers::remove(other_);
    }
    Writer& other_;
  };
  Numbers first, second;
  Writers::add(first);
  Writers::add(second);
  first.put_behind(OwnedJob<Job>(new Removing(second)));
  { const Writers at_exit; }
  CHECK(first.is_idle());
}

TEST_CASE("texts in JSON") {
  Json json(true);
  json.open('{').key("a\"b").string("tab\t, quote \", byte \x01").key("n").number(int64_t{-5}).close('}');
  CHECK(json.text.find("\\t") != std::string::npos);
  CHECK(json.text.find("\\u0001") != std::string::npos);
  CHECK(json.text.find('\x01') == std::string::npos);
}

TEST_CASE("which calls are wanted") {
  CHECK(Calls("").are_all());
  const Calls some("3-5,9,20-");
  for (const int64_t call : {3, 4, 5, 9, 20, 1000}) CHECK(some.contains(call));
  for (const int64_t call : {0, 2, 6, 8, 10, 19}) CHECK_FALSE(some.contains(call));
  for (const char* wrong : {"x", "5-3", "-", ","}) CHECK_THROWS(Calls(wrong));
}
