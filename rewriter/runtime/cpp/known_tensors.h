// Recognizes inputs that are the tensors of an earlier call, not written since as far as torch knows.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "device.h"
#include "event.h"

namespace {
namespace inductor_rewriter {

// Functions of Python and of torch for Python, if the process has them. Found by name, since a package is
// compiled without the headers of Python.
struct Python {
  using Object = void*;
  Object (*thread)() = nullptr;
  int (*has_lock)() = nullptr;
  int (*lock)() = nullptr;
  void (*unlock)(int) = nullptr;
  Object (*weak_reference)(Object, Object) = nullptr;
  Object (*attribute)(Object, Object) = nullptr;
  Object (*interned)(const char*) = nullptr;
  Object (*new_dictionary)() = nullptr;
  Object (*run)(const char*, int, Object, Object) = nullptr;
  Object (*item)(Object, const char*) = nullptr;
  Object (*call)(Object, Object) = nullptr;
  int (*is_true)(Object) = nullptr;
  long long (*integer)(Object) = nullptr;
  void (*clear_error)() = nullptr;
  void (*release)(Object) = nullptr;
  // The Python object of a tensor (THPVariable_Wrap). No stable interface has this; without it, every input
  // is measured in every call.
  Object (*object_of)(const void*) = nullptr;
  // The object that a weak reference refers to, borrowed, to be compared only. Null from Python 3.15 on.
  Object (*referent)(Object) = nullptr;

  static const Python& get() {
    static const Python python;
    return python;
  }
  // Whether Python called this thread and released the global interpreter lock before. Such a thread has to
  // take the lock anyway when it returns, so taking it here cannot deadlock. A caller that holds the lock,
  // as that of a package does, relies on having it throughout: code of Python that ran here could pass the
  // lock to another thread, which then waits for the model that runs here, for ever.
  bool can_be_asked() const { return is_complete_ && thread() && !has_lock(); }

 private:
  Python() {
    void* torch = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!torch) return;
    is_complete_ = find(RTLD_DEFAULT, "PyGILState_GetThisThreadState", thread) &&
        find(RTLD_DEFAULT, "PyGILState_Check", has_lock) &&
        find(RTLD_DEFAULT, "PyGILState_Ensure", lock) &&
        find(RTLD_DEFAULT, "PyGILState_Release", unlock) &&
        find(RTLD_DEFAULT, "PyWeakref_NewRef", weak_reference) &&
        find(RTLD_DEFAULT, "PyObject_GetAttr", attribute) &&
        find(RTLD_DEFAULT, "PyUnicode_InternFromString", interned) &&
        find(RTLD_DEFAULT, "PyDict_New", new_dictionary) &&
        find(RTLD_DEFAULT, "PyRun_String", run) &&
        find(RTLD_DEFAULT, "PyDict_GetItemString", item) &&
        find(RTLD_DEFAULT, "PyObject_CallObject", call) &&
        find(RTLD_DEFAULT, "PyObject_IsTrue", is_true) &&
        find(RTLD_DEFAULT, "PyLong_AsLongLong", integer) &&
        find(RTLD_DEFAULT, "PyErr_Clear", clear_error) &&
        find(RTLD_DEFAULT, "Py_DecRef", release) &&
        find(torch, "_Z16THPVariable_WrapRKN2at10TensorBaseE", object_of);
    find(RTLD_DEFAULT, "PyWeakref_GetObject", referent);
  }

  template <class Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }

  bool is_complete_ = false;
};

// How many writes to a tensor torch has counted; -1 if it does not count them.
inline int64_t version_of(AtenTensorHandle tensor) {
  using Version = int64_t (*)(const void*);
  static const auto version = find<Version>("_ZNK2at10TensorBase8_versionEv");
  if (!version) return -1;
  try {
    return version(tensor);
  } catch (...) {
    return -1;  // an inference tensor
  }
}

// Runs for each input of each call, before the device has anything to do: see plan.h.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2", "no-fast-math")
#endif

// Whether a tensor needs a gradient; true if that cannot be asked.
inline bool needs_gradient(AtenTensorHandle tensor) {
  using Asked = bool (*)(const void*);
  static const auto asked = find<Asked>("_ZNK3c1010TensorImpl13requires_gradEv");
  return !asked || asked(*reinterpret_cast<const void* const*>(tensor));
}

class KnownTensors {
 public:
  // A number for each value. It stays the same while the value is the same tensor and torch counts no write
  // to it; 0 if that is not known. `trains`: nothing is known of tensors that need a gradient; programs that
  // train without an optimizer often write `weight.data`, which torch does not count. Python's garbage
  // collector may run here, and call anything.
  std::vector<uint64_t> numbers_of(const Contents& contents, bool trains) {
    std::vector<uint64_t> numbers(contents.size());
    const Python& python = Python::get();
    if (!python.can_be_asked() || is_busy_.test_and_set(std::memory_order_acquire)) return numbers;
    inputs_.resize(contents.size());  // now, since it may raise, and Python's lock has to be released
    const int state = python.lock();
    if (!is_shared_) prepare(python);
    Trust trust = swaps(python) ? Trust::none : trains ? Trust::untrained : Trust::not_asked;
    for (std::size_t i = 0; i < contents.size(); ++i) {
      const Content& content = contents[i];
      if (trust == Trust::none) {
        forget(python, inputs_[i]);
      } else if (
          content.kind == Content::Kind::tensor && !content.is_constant && content.handle) {
        numbers[i] = number_of(python, trust, content.handle, inputs_[i]);
      }
    }
    python.unlock(state);
    is_busy_.clear(std::memory_order_release);
    return numbers;
  }

 private:
  // The input at one place of the line. There is no destructor that releases the reference: it could run in
  // a thread that Python does not know.
  struct Input {
    Python::Object reference = nullptr;
    Python::Object object = nullptr;       // what the reference refers to as long as that lives
    const void* implementation = nullptr;  // the TensorImpl of that
    const void* address = nullptr;         // of its elements
    int64_t version = 0;
    uint64_t number = 0;
    bool is_trained = false;  // whether it needed a gradient since it was remembered

    // Whether the tensor is still the same, found out without asking torch for its object, which takes most
    // of the time. While the object lives, so does its TensorImpl, and no other is at that address: torch
    // swaps no tensor that has a weak reference.
    bool is_still(const Python& python, AtenTensorHandle handle) const {
      return reference && implementation == implementation_of(handle) && python.referent &&
          python.referent(reference) == object && address == address_of(handle);
    }

    // The number of the same tensor, a new one if it was written. It stays 0 if it had no version: asking an
    // inference tensor for one raises an exception, which is slow.
    uint64_t number_now(AtenTensorHandle handle) {
      if (!number) return 0;
      const int64_t now = version_of(handle);
      if (now != version) renew(now);
      return number;
    }

    void renew(int64_t now) {
      static std::atomic<uint64_t> numbers{0};
      number = now < 0 ? 0 : ++numbers;
      version = now;
    }
  };

  // A handle is the address of an at::Tensor, which is a pointer to its TensorImpl.
  static const void* implementation_of(AtenTensorHandle handle) {
    return *reinterpret_cast<const void* const*>(handle);
  }

  static const void* address_of(AtenTensorHandle handle) {
    void* address = nullptr;
    return aoti_torch_get_data_ptr(handle, &address) ? nullptr : address;
  }

  // Which tensors have a version that changes with every write; `_trust` in known_inputs.py says why. It is
  // asked for the first tensor that needs a gradient: the answer makes no difference to the others.
  enum class Trust { not_asked = -1, none = 0, untrained = 1, all = 2 };

  // Keeps the Python function that returns it, and the module that says whether parameters are swapped.
  void prepare(const Python& python) {
    static const char* const text = R"(
import torch
from torch import __future__ as future
def trust():
    if future.get_swap_module_params_on_conversion():
        return 0
    kinds = [torch.optim.Optimizer]
    while kinds:
        kind = kinds.pop()
        if hasattr(getattr(kind, "step", None), "hooked"):
            return 1
        kinds += kind.__subclasses__()
    return 2
)";
    const int is_file = 257;  // Py_file_input
    is_shared_ = python.interned("is_shared");
    swaps_ = python.interned("_swap_module_params_on_conversion");
    Python::Object names = python.new_dictionary();
    Python::Object done = names ? python.run(text, is_file, names, names) : nullptr;
    if (!done) {
      python.clear_error();
      return;
    }
    python.release(done);
    // Borrowed from `names`, which is never released.
    trust_ = python.item(names, "trust");
    future_ = python.item(names, "future");
  }

  // Whether `nn.Module` swaps parameters, by the variable behind the function that says so: a call of
  // Python takes longer, at each call of the model.
  bool swaps(const Python& python) const {
    Python::Object value = future_ ? python.attribute(future_, swaps_) : nullptr;
    if (!value) {
      python.clear_error();
      return ask(python) == Trust::none;
    }
    const int yes = python.is_true(value);
    if (yes < 0) python.clear_error();
    python.release(value);
    return yes != 0;
  }

  Trust ask(const Python& python) const {
    Python::Object answer = trust_ ? python.call(trust_, nullptr) : nullptr;
    if (!answer) {
      python.clear_error();
      return Trust::none;
    }
    const auto trust = static_cast<Trust>(python.integer(answer));
    python.release(answer);
    return trust;
  }

  static void forget(const Python& python, Input& input) {
    if (input.reference) python.release(input.reference);
    input = Input();
  }

  // Whether other processes may write to the memory of a tensor. Every tensor of a GPU says so.
  bool is_shared(const Python& python, Python::Object tensor, AtenTensorHandle handle) const {
    int32_t device = 0;
    if (aoti_torch_get_device_type(handle, &device)) return true;
    if (device != aoti_torch_device_type_cpu()) return false;
    Python::Object method = python.attribute(tensor, is_shared_);
    Python::Object answer = method ? python.call(method, nullptr) : nullptr;
    const int is = answer ? python.is_true(answer) : -1;
    if (is < 0) python.clear_error();
    if (method) python.release(method);
    if (answer) python.release(answer);
    return is != 0;
  }

  uint64_t number_of(
      const Python& python, Trust& trust, AtenTensorHandle handle, Input& input) const {
    input.is_trained = input.is_trained || needs_gradient(handle);
    if (input.is_trained) {
      if (trust == Trust::not_asked) trust = ask(python);
      if (trust != Trust::all) {
        forget(python, input);
        return 0;
      }
    }
    if (input.is_still(python, handle)) return input.number_now(handle);
    Python::Object tensor = python.object_of(handle);
    if (!tensor) {
      python.clear_error();
      return 0;
    }
    // A tensor that somebody refers to has the same object for good. Without `referent`, Python is asked
    // for a weak reference: it is the same one for the same object.
    bool is_same = input.reference && python.referent && python.referent(input.reference) == tensor;
    if (!is_same) {
      Python::Object reference = python.weak_reference(tensor, nullptr);
      if (!reference) {
        python.clear_error();
        python.release(tensor);
        return 0;
      }
      is_same = reference == input.reference;
      if (input.reference) python.release(input.reference);
      input.reference = reference;
      if (!is_same) input.is_trained = needs_gradient(handle);
    }
    input.object = tensor;
    input.implementation = implementation_of(handle);
    const void* const address = address_of(handle);
    is_same = is_same && address == input.address;
    input.address = address;
    if (!is_same) input.renew(is_shared(python, tensor, handle) ? -1 : version_of(handle));
    python.release(tensor);
    return is_same ? input.number_now(handle) : input.number;
  }

  Python::Object is_shared_ = nullptr, swaps_ = nullptr;  // names of attributes
  Python::Object trust_ = nullptr, future_ = nullptr;
  std::vector<Input> inputs_;
  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;
};

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

}  // namespace inductor_rewriter
}  // namespace
