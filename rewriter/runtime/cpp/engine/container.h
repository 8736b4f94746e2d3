// The file of one tensor as torch.save lays it out: a zip, not compressed, of a pickle and of the
// bytes, which torch.load reads with weights_only=True and with mmap=True.
#pragma once

#include <cstdint>
#include <string>

#include "crc32.h"

namespace inductor_rewriter {

// The parts of the file before and after the bytes of the tensor.
struct Container {
  std::string before, after;

  // `sum` is the checksum of the tensor's bytes; the lengths of the parts do not depend on it.
  Container(const std::string& pickle, uint64_t size, uint32_t sum) {
    const uint16_t one = 1;
    const std::string order = *reinterpret_cast<const char*>(&one) ? "little" : "big";
    add("archive/data.pkl", pickle);
    add("archive/byteorder", order);
    header("archive/data/0", size, sum);
    before.swap(after);
    offset_ = before.size() + size;
    add("archive/version", "3\n");
    close();
  }

 private:
  static constexpr uint64_t limit = 0xffffffff;

  static std::string number(uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  }

  void add(const std::string& name, const std::string& data) {
    header(name, data.size(), Crc32::add(0, data.data(), data.size()));
    after += data;
    offset_ += data.size();
  }

  // The contents start at multiples of 64 bytes, as in files of torch.save.
  void header(const std::string& name, uint64_t size, uint32_t sum) {
    const bool large = size >= limit, far = offset_ >= limit;
    const std::string sizes = large ? number(size, 8) + number(size, 8) : "";
    std::string facts = number(0, 2) + number(0, 2) + number(0, 2) + number(0x21, 2);  // 1980
    facts += number(sum, 4);
    facts += large ? number(limit, 4) + number(limit, 4) : number(size, 4) + number(size, 4);
    facts += number(name.size(), 2);
    // Local header, padded by an extra field that readers skip.
    std::string extra = large ? number(1, 2) + number(16, 2) + sizes : "";
    const uint64_t start = offset_ + 30 + name.size() + extra.size() + 4;
    const uint64_t padding = (64 - start % 64) % 64;
    extra += "FB" + number(padding, 2) + std::string(padding, 'Z');
    const std::string version = number(large || far ? 45 : 20, 2);
    // Its entry in the directory at the end.
    std::string wide = sizes + (far ? number(offset_, 8) : "");
    if (!wide.empty()) wide = number(1, 2) + number(wide.size(), 2) + wide;
    directory_ += "PK\x01\x02" + version + version + facts + number(wide.size(), 2);
    directory_ += number(0, 2) + number(0, 2) + number(0, 2) + number(0, 4);
    directory_ += number(far ? limit : offset_, 4) + name + wide;
    const std::string local =
        "PK\x03\x04" + version + facts + number(extra.size(), 2) + name + extra;
    after += local;
    offset_ += local.size();
    ++count_;
  }

  void close() {
    std::string end;
    if (offset_ >= limit) {
      end = "PK\x06\x06" + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 4);
      end += number(0, 4) + number(count_, 8) + number(count_, 8);
      end += number(directory_.size(), 8) + number(offset_, 8);
      end += "PK\x06\x07" + number(0, 4) + number(offset_ + directory_.size(), 8) + number(1, 4);
    }
    end += "PK\x05\x06" + number(0, 2) + number(0, 2) + number(count_, 2) + number(count_, 2);
    end += number(directory_.size(), 4) + number(offset_ < limit ? offset_ : limit, 4);
    after += directory_ + end + number(0, 2);
  }

  std::string directory_;
  uint64_t offset_ = 0, count_ = 0;
};

}  // namespace inductor_rewriter
