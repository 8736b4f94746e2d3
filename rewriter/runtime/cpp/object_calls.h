// The functions of the recorder for wrappers in Python: `ObjectFunctions`.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "call.h"
#include "engine/flight.h"
#include "objects.h"
#include "probes/save.h"

namespace inductor_rewriter {

// The name of a type of Python, which is valid for ever.
inline const char* type_name(const char* name) {
  static std::mutex lock;
  static std::set<std::string>& all = *new std::set<std::string>;
  std::lock_guard<std::mutex> guard(lock);
  return all.insert(name).first->c_str();
}

inline Content content_of(const Object& value) {
  const char kind = value.kind == 'o' ? 't' : value.kind;  // None is no value, as a tensor that is not there
  Content content = content_of(kind, value.integer, value.floating, static_cast<AtenTensorHandle>(value.tensor));
  if (kind == 's' || kind == 'l') {
    content.kind = Content::Kind::text;
    content.type = kind == 'l' ? "list" : type_name(value.type);
    content.text = kind == 'l' ? "" : value.text;
  }
  return content;
}

// Adds a value, or the members of a list, whose names end with `end`. Returns how many objects that were.
inline int add_object(const Object* of, std::size_t place, const std::string& end, Lists& lists, Contents& to) {
  if (of->kind != 'l') {
    to.push_back(content_of(*of));
    lists.values.emplace_back(place, end);
    lists.shape += of->kind == 'o' ? '-' : '.';
    return 1;
  }
  int taken = 1;
  lists.shape += '[';
  for (int64_t i = 0; i < of->integer; ++i) {
    taken += add_object(of + taken, place, end + "[" + std::to_string(i) + "]", lists, to);
  }
  lists.shape += ']';
  return taken;
}

inline void* attach_objects(const ObjectTable* of) noexcept {
  void* made = nullptr;
  spare_model([&] {
    auto table = std::make_unique<Table>(Table{of->options, of->rows, of->inputs, of->size, nullptr, nullptr});
    auto wrapper = std::make_unique<Wrapper>(*table);
    wrapper->add(*of);
    table->made = wrapper.release();
    made = table.release();
  });
  return made;
}

inline void take_objects(void* call, char phase, int launch, const Object* values, int count) noexcept {
  RunningCall& running = *static_cast<RunningCall*>(call);
  Recorder& recorder = running.recorder;
  spare_model([&] {
    if (recorder.is_fork()) return;
    Contents& contents = running.contents;
    contents.clear();
    const bool has_lists = std::any_of(values, values + count, [](const Object& one) { return one.kind == 'l'; });
    Lists lists;
    Contents given;
    std::size_t place = 0;
    for (int i = 0; i < count; ++place) {
      if (has_lists) given.push_back(content_of(values[i]));
      if (has_lists) i += add_object(values + i, place, "", lists, contents);
      else contents.push_back(content_of(values[i++]));
    }
    const Lists* const named = has_lists ? &lists : nullptr;
    if (phase == 'g') recorder.at_given(running, has_lists ? given : contents);
    else if (phase == 'i') recorder.at_inputs(running, contents, named, has_lists ? &given : nullptr);
    else recorder.at_launch(running, launch, phase == 'b', contents, named);
  });
}

inline void end_postponed(Recorder& recorder) {
  if (recorder.is_captured_now()) return;
  for (auto& call : recorder.take_postponed()) end_call(call.release());
}

inline void* begin_objects(void* of) noexcept {
  Table& table = *static_cast<Table*>(of);
  spare_model([&] {
    Recorder* const recorder = recorder_made(table);
    if (recorder && !recorder->is_fork()) end_postponed(*recorder);
  });
  return begin_call(table);
}

inline void end_objects(void* call) noexcept {
  RunningCall& running = *static_cast<RunningCall*>(call);
  Recorder& recorder = running.recorder;
  bool ends = true;
  spare_model([&] {
    ends = !recorder.is_fork() && !recorder.is_captured_now();
    if (ends) end_postponed(recorder);
    else if (!recorder.is_fork()) recorder.postpone(std::unique_ptr<RunningCall>(&running));
  });
  if (ends) end_call(call);
}

inline void* resume_call(void* table) noexcept {
  std::unique_ptr<RunningCall> call;
  spare_model([&] {
    Wrapper& wrapper = read(*static_cast<Table*>(table));
    if (wrapper.options.dormant) return;
    Recorder* const recorder = recorder_of<Recorder>(wrapper);
    if (recorder && !recorder->is_worker() && !recorder->is_fork()) call = recorder->resume();
  });
  return call.release();
}

inline void finish_objects(void* of, bool is_last) noexcept {
  Recorder* const recorder = recorder_made(*static_cast<Table*>(of));
  if (!recorder || recorder->is_of_parent()) return;
  spare_model([&] {
    end_postponed(*recorder);
    recorder->read_replays(nullptr, is_last);
    recorder->finish();
    if (is_last) recorder->retire();
  });
}

inline void print_to(int lines, int messages) noexcept {
  PythonOutput& output = PythonOutput::get();
  output.descriptor = lines;
  output.error_descriptor = messages;
}

inline char* collected_text(bool messages, std::size_t* size) noexcept {
  PythonOutput& output = PythonOutput::get();
  std::lock_guard<std::mutex> guard(output.lock);
  std::string& text = messages ? output.messages : output.lines;
  if (text.empty()) return nullptr;
  char* const copy = static_cast<char*>(std::malloc(text.size()));
  if (!copy) return nullptr;
  std::memcpy(copy, text.data(), *size = text.size());
  text.clear();
  return copy;
}

// The fingerprint of a tensor's elements. False if they cannot be read.
inline bool find_fingerprint(AtenTensorHandle handle, std::string& to) {
  Content content;
  content.kind = Content::Kind::tensor;
  content.seen.handle = handle;
  Item item;
  Tensor& tensor = item.tensor;
  if (!read_tensor(content, tensor) || !tensor.in_memory) return false;
  tensor.handle = handle;
  if (!measure_here(item, is_complex(tensor.dtype))) return false;
  to = hexadecimal(item.measurement.fingerprint);
  return true;
}

inline const ObjectFunctions* object_functions() {
  static const ObjectFunctions all{
      attach_objects,
      begin_objects,
      resume_call,
      take_objects,
      [](void* call, char line, int number, void* tensor, const char* problem) noexcept {
        return static_cast<void*>(
            pass_memory_line(call, line, number, static_cast<AtenTensorHandle>(tensor), problem));
      },
      end_objects,
      finish_objects,
      print_to,
      collected_text,
      [](const char* exception) noexcept { FlightRing::finish_all(exception); },
      [](SaveOther save) noexcept { other_saver() = save; }};
  return &all;
}

}  // namespace inductor_rewriter
