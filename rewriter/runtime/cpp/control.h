// The control file of dormant probes: rewriter/execution/control.py.
#pragma once

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "engine/process.h"
#include "engine/files.h"
#include "json.h"
#include "settings.h"
#include "texts.h"

namespace inductor_rewriter {

// What is switched on: `Control` of control.py.
struct Control {
  std::string id, launches, ranks, dump, max_bytes;
  Texts probes, kernels;
  int64_t calls = 0, every = 1, until = 0, keep = 0;
  bool quiet = false;

  bool has_rank(int rank) const { return ranks.empty() || Calls(ranks).contains(rank); }

  bool has_launch(int index, const char* kernel) const {
    if (!launches.empty() && !Calls(launches).contains(index)) return false;
    for (const std::string& pattern : kernels) {  // 16: FNM_CASEFOLD
      if (!fnmatch(pattern.c_str(), kernel, FNM_NOESCAPE | 16)) return true;
    }
    return kernels.empty();
  }

  bool is_over() const {
    return until && clock_ns(CLOCK_REALTIME) / 1000000 >= until;
  }
};

constexpr std::size_t largest_control = 1 << 16;  // bytes of the file

// Takes a line of a request. False for a name that is not known, or a value that it cannot have.
inline bool take_control(const std::string& name, const std::string& value, Control& to) {
  const auto number = [&](int64_t& of) { return read_number(value, 16, of) && of < int64_t{1} << 53; };
  try {
    if (name == "id") to.id = value;
    else if (name == "dump") to.dump = value;
    else if (name == "probes") to.probes = split(value, ",");
    else if (name == "kernels") to.kernels = split(value, ",");
    else if (name == "launches") to.launches = (Calls(value), value);
    else if (name == "ranks") to.ranks = (Calls(value), value);
    else if (name == "max_bytes") to.max_bytes = (value.empty() ? 0 : parse_bytes(value), value);
    else if (name == "quiet") to.quiet = value == "1";
    else if (name == "calls") return number(to.calls);
    else if (name == "every") return number(to.every) && to.every;
    else if (name == "until") return number(to.until);
    else if (name == "keep") return number(to.keep);
    else return false;
  } catch (const std::runtime_error&) {
    return false;
  }
  return true;
}

// Reads a request. Throws `std::runtime_error`.
inline Control read_control(const std::string& text) {
  const Texts lines = split(text, "\n");
  const std::string head = lines.empty() || text.size() > largest_control ? "" : lines[0];
  if (head.substr(0, head.find(' ')) != "rewriter.control") throw std::runtime_error("it is no rewriter.control");
  if (head != "rewriter.control 1") throw std::runtime_error("it has another version");
  Control result;
  bool has_id = false;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const std::string name = lines[i].substr(0, lines[i].find('='));
    const std::string value = lines[i].substr(std::min(name.size() + 1, lines[i].size()));
    has_id = has_id || name == "id";
    if (!take_control(name, value, result)) throw std::runtime_error(name + " is not as it has to be");
  }
  if (!has_id) throw std::runtime_error("it has no id");
  return result;
}

inline Control read_control_file(const char* path) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw std::runtime_error(std::strerror(errno));
  std::string text, problem;
  struct stat about;
  if (fstat(file, &about)) problem = std::strerror(errno);
  else if (!S_ISREG(about.st_mode)) problem = "it is no file";
  else if (about.st_uid != geteuid()) problem = "it belongs to another user";
  else if (about.st_mode & 022) problem = "others than its owner can write it: chmod go-w";
  char piece[4096];
  for (ssize_t size; problem.empty() && text.size() <= largest_control;) {
    size = ::read(file, piece, sizeof piece);
    if (size < 0) problem = std::strerror(errno);
    if (size <= 0) break;
    text.append(piece, static_cast<std::size_t>(size));
  }
  ::close(file);
  if (!problem.empty()) throw std::runtime_error(problem);
  return read_control(text);
}

// Writes the state of the wrapper of this name to a file beside the control file: `write_state` of
// control.py. `add` writes the rest.
template <class Add>
void tell_control(const char* path, const std::string& wrapper, Add&& add) {
  const std::string folder = std::string(path) + ".d";
  struct stat about;
  if (stat(folder.c_str(), &about) || !S_ISDIR(about.st_mode) || about.st_uid != geteuid()) return;
  const std::string host = host_name();
  Json json(false);
  json.open('{').key("format").string("rewriter.control-status").key("version").number(1);
  json.key("host").string(host).key("pid").number(getpid());
  add(json);
  const std::string text = json.close('}').text + "\n";
  const std::string name = folder + "/" + host + "-" + std::to_string(getpid()) + "-" + wrapper + ".json";
  try {
    write_whole(name, text);
  } catch (const std::runtime_error&) {
    // The state is not seen; the program runs on.
  }
}

}  // namespace inductor_rewriter
