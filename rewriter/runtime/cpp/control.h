// The control file of dormant probes: rewriter/runtime/control.py.
#pragma once

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <vector>

#include "calls.h"
#include "json.h"
#include "sizes.h"

namespace inductor_rewriter {

// What is switched on: `Control` of control.py.
struct Control {
  std::string id, launches, ranks, dump, max_bytes;
  std::vector<std::string> probes, kernels;
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
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return until && int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000 >= until;
  }
};

// Reads an object of strings, integers, booleans and lists of strings. Throws if it is anything
// else.
class ControlReader {
 public:
  static Control read(const std::string& text) {
    ControlReader reader(text);
    return reader.parse();
  }

  // The request in a file. Throws `std::runtime_error`.
  static Control read_file(const char* path) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) throw std::runtime_error(std::strerror(errno));
    std::string text, problem;
    struct stat about;
    if (fstat(file, &about)) problem = std::strerror(errno);
    else if (!S_ISREG(about.st_mode)) problem = "it is no file";
    else if (about.st_uid != geteuid()) problem = "it belongs to another user";
    else if (about.st_mode & 022) problem = "others than its owner can write it: chmod go-w";
    char piece[4096];
    for (ssize_t size; problem.empty() && text.size() <= largest;) {
      size = ::read(file, piece, sizeof piece);
      if (size < 0) problem = std::strerror(errno);
      if (size <= 0) break;
      text.append(piece, static_cast<std::size_t>(size));
    }
    ::close(file);
    if (!problem.empty()) throw std::runtime_error(problem);
    return read(text);
  }

 private:
  static constexpr std::size_t largest = 1 << 16;

  explicit ControlReader(const std::string& text) : text_(text) {}

  Control parse() {
    if (text_.size() > largest) throw std::runtime_error("it is no rewriter.control");
    Control result;
    bool is_known = false, is_version = false, has_id = false;
    expect('{');
    if (!take('}')) {
      do {
        const std::string name = string();
        expect(':');
        if (name == "format") is_known = string_of(name) == "rewriter.control";
        else if (name == "version") is_version = integer(name) == 1;
        else if (name == "id") result.id = string_of(name), has_id = true;
        else if (name == "launches") result.launches = calls(name);
        else if (name == "ranks") result.ranks = calls(name);
        else if (name == "dump") result.dump = string_of(name);
        else if (name == "probes") result.probes = strings(name);
        else if (name == "kernels") result.kernels = strings(name);
        else if (name == "calls") result.calls = integer(name);
        else if (name == "every") result.every = integer(name);
        else if (name == "until") result.until = integer(name);
        else if (name == "keep") result.keep = integer(name);
        else if (name == "max_bytes") result.max_bytes = size(name);
        else if (name == "quiet") result.quiet = boolean(name);
        else bad(name);
      } while (take(','));
      expect('}');
    }
    skip();
    if (at_ != text_.size()) no_json();
    if (!is_known) throw std::runtime_error("it is no rewriter.control");
    if (!is_version) throw std::runtime_error("it has another version");
    if (!has_id) throw std::runtime_error("it has no id");
    if (!result.every) bad("every");
    return result;
  }

  [[noreturn]] static void no_json() { throw std::runtime_error("it is no JSON"); }
  [[noreturn]] static void bad(const std::string& name) {
    throw std::runtime_error(name + " is not as it has to be");
  }

  void skip() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_]) ++at_;
  }
  char next() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) no_json();
  }

  std::string string_of(const std::string& name) {
    if (next() != '"') bad(name);
    return string();
  }

  std::string string() {
    expect('"');
    std::string result;
    for (;;) {
      if (at_ == text_.size()) no_json();
      const char letter = text_[at_++];
      if (letter == '"') return result;
      if (static_cast<unsigned char>(letter) < 0x20) no_json();
      if (letter != '\\') {
        result += letter;
        continue;
      }
      const char escape = at_ < text_.size() ? text_[at_++] : '\0';
      const char* const known = escape ? std::strchr("\"\"\\\\//b\bf\fn\nr\rt\t", escape) : nullptr;
      if (escape == 'u') add(unit(), result);
      else if (known) result += known[1];
      else no_json();
    }
  }

  uint32_t unit() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char digit = at_ < text_.size() ? text_[at_++] : '\0';
      const char* const all = "0123456789abcdef";
      const char* const found = digit ? std::strchr(all, digit | (digit >= 'A' ? 32 : 0)) : nullptr;
      if (!found) no_json();
      code = code << 4 | static_cast<uint32_t>(found - all);
    }
    return code;
  }

  void add(uint32_t code, std::string& to) {
    if (code >= 0xd800 && code < 0xdc00 && text_.compare(at_, 2, "\\u") == 0) {
      at_ += 2;
      code = 0x10000 + ((code - 0xd800) << 10) + (unit() - 0xdc00);
    }
    // A lone surrogate stands for a byte that is not UTF-8, as in Python's surrogateescape.
    if (code >= 0xdc80 && code < 0xdd00) {
      to += static_cast<char>(code - 0xdc00);
    } else if (code < 0x80) {
      to += static_cast<char>(code);
    } else if (code < 0x800) {
      to += static_cast<char>(0xc0 | code >> 6);
      to += static_cast<char>(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      to += static_cast<char>(0xe0 | code >> 12);
      to += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      to += static_cast<char>(0x80 | (code & 0x3f));
    } else {
      to += static_cast<char>(0xf0 | (code >> 18 & 7));
      to += static_cast<char>(0x80 | (code >> 12 & 0x3f));
      to += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      to += static_cast<char>(0x80 | (code & 0x3f));
    }
  }

  int64_t integer(const std::string& name) {
    skip();
    std::size_t end = at_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    const std::string digits = text_.substr(at_, end - at_);
    at_ = end;
    if (digits.empty() || digits.size() > 16) bad(name);
    const int64_t number = std::atoll(digits.c_str());
    if (number >= int64_t{1} << 53 || (digits.size() > 1 && digits[0] == '0')) bad(name);
    return number;
  }

  bool boolean(const std::string& name) {
    skip();
    for (const char* word : {"true", "false"}) {
      if (text_.compare(at_, std::strlen(word), word)) continue;
      at_ += std::strlen(word);
      return word[0] == 't';
    }
    bad(name);
  }

  std::vector<std::string> strings(const std::string& name) {
    std::vector<std::string> result;
    if (!take('[')) bad(name);
    if (take(']')) return result;
    do result.push_back(string_of(name));
    while (take(','));
    expect(']');
    return result;
  }

  std::string size(const std::string& name) {
    const std::string text = string_of(name);
    try {
      if (!text.empty()) parse_bytes(text);
    } catch (const std::exception&) {
      bad(name);
    }
    return text;
  }

  std::string calls(const std::string& name) {
    const std::string text = string_of(name);
    try {
      Calls sound(text);
    } catch (const std::exception&) {
      bad(name);
    }
    return text;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

// Writes the state of the wrapper of this name to a file beside the control file: `write_state` of
// control.py. `add` writes the rest.
template <class Add>
void tell_control(const char* path, const std::string& wrapper, Add&& add) {
  const std::string folder = std::string(path) + ".d";
  struct stat about;
  if (stat(folder.c_str(), &about) || !S_ISDIR(about.st_mode) || about.st_uid != geteuid()) return;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  Json json(false);
  json.open('{').key("format").string("rewriter.control-status").key("version").number(int64_t{1});
  json.key("host").string(host).key("pid").number(static_cast<int64_t>(getpid()));
  add(json);
  const std::string text = json.close('}').text + "\n";
  const std::string name =
      folder + "/" + host + "-" + std::to_string(getpid()) + "-" + wrapper + ".json";
  const std::string temporary = name + ".part";
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  if (!file) return;
  bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  whole = !std::fclose(file) && whole;
  if (!whole || std::rename(temporary.c_str(), name.c_str())) std::remove(temporary.c_str());
}

}  // namespace inductor_rewriter
