// Facts of tensors, without the interpreter: by torch's C shim, or by methods of the tensor where that
// version of torch has no shim that can be used (torch_shim.py).
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>

#include "python_objects.h"

namespace {
namespace tensors {

PyObject *name_cdata, *name_data_ptr, *name_untyped_storage, *name_nbytes, *name_storage_offset;

// Its functions take a tensor as the address of a pointer to its implementation, a TensorImpl.
struct Shim {
  template <class T>
  using Get = int32_t (*)(const void*, T*);
  Get<void*> data = nullptr;
  Get<int64_t> bytes = nullptr, offset = nullptr, dim = nullptr;
  Get<int64_t*> sizes = nullptr, strides = nullptr;
  Get<int32_t> dtype = nullptr, device_type = nullptr, device_index = nullptr;
};
Shim shim;  // all null if it cannot be used

// use_shim(addresses): those of its functions, in the order above, or an empty tuple.
PyObject* use_shim(PyObject*, PyObject* addresses) {
  constexpr Py_ssize_t all = 9;
  if (PyTuple_Check(addresses) && !PyTuple_GET_SIZE(addresses)) {
    shim = Shim();
    Py_RETURN_NONE;
  }
  if (!PyTuple_Check(addresses) || PyTuple_GET_SIZE(addresses) != all) {
    PyErr_SetString(PyExc_TypeError, "expected the addresses of nine functions");
    return nullptr;
  }
  void* at[all];
  for (Py_ssize_t i = 0; i < all; ++i) {
    if (!(at[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, i)))) return nullptr;
  }
  shim.bytes = reinterpret_cast<Shim::Get<int64_t>>(at[1]);
  shim.offset = reinterpret_cast<Shim::Get<int64_t>>(at[2]);
  shim.dim = reinterpret_cast<Shim::Get<int64_t>>(at[3]);
  shim.sizes = reinterpret_cast<Shim::Get<int64_t*>>(at[4]);
  shim.strides = reinterpret_cast<Shim::Get<int64_t*>>(at[5]);
  shim.dtype = reinterpret_cast<Shim::Get<int32_t>>(at[6]);
  shim.device_type = reinterpret_cast<Shim::Get<int32_t>>(at[7]);
  shim.device_index = reinterpret_cast<Shim::Get<int32_t>>(at[8]);
  shim.data = reinterpret_cast<Shim::Get<void*>>(at[0]);
  Py_RETURN_NONE;
}

// The value of `_cdata`. Its getter is looked up once: that takes a third of the time.
Object address_of_implementation(PyObject* tensor) {
  static PyGetSetDescrObject* known = nullptr;  // never freed
  if (!known) {
    Object found = attribute(reinterpret_cast<PyObject*>(Py_TYPE(tensor)), name_cdata);
    if (!found) return found;
    if (Py_TYPE(found.get()) != &PyGetSetDescr_Type) return attribute(tensor, name_cdata);
    known = reinterpret_cast<PyGetSetDescrObject*>(found.release());
  }
  if (!PyObject_TypeCheck(tensor, known->d_common.d_type)) return attribute(tensor, name_cdata);
  return Object(known->d_getset->get(tensor, known->d_getset->closure));
}

// The address of the TensorImpl. Null: with an exception.
void* implementation_of(PyObject* tensor) {
  const Object address = address_of_implementation(tensor);
  return address ? PyLong_AsVoidPtr(address.get()) : nullptr;
}

struct Facts {
  void* data = nullptr;
  int64_t bytes = 0, offset = 0, dim = 0;
  int64_t *sizes = nullptr, *strides = nullptr;
  int32_t dtype = 0, device = -1;  // -1 is the CPU

  bool has_form_of(const Facts& other) const {
    return dim == other.dim && std::equal(sizes, sizes + dim, other.sizes) &&
        std::equal(strides, strides + dim, other.strides);
  }
};

// Reads the facts of a tensor by the shim. False: it has no memory that could be guarded, or there is an
// exception.
bool read(PyObject* tensor, Facts& to) {
  void* const it = implementation_of(tensor);
  if (!it) return false;
  int32_t type = -1;
  if (shim.device_type(&it, &type) || (type != 0 && type != 1)) return false;
  if (type == 1 && shim.device_index(&it, &to.device)) return false;
  return !shim.data(&it, &to.data) && !shim.bytes(&it, &to.bytes) &&
      (to.data || !to.bytes) &&  // a tensor without memory may claim to have bytes
      !shim.offset(&it, &to.offset) && !shim.dim(&it, &to.dim) && !shim.sizes(&it, &to.sizes) &&
      !shim.strides(&it, &to.strides) && !shim.dtype(&it, &to.dtype);
}

// Finds the address of the first element of a TensorImpl, or of a tensor. False: it failed, maybe with an
// exception.
bool find_data(void* implementation, int64_t& to) {
  void* data;
  if (shim.data(&implementation, &data)) return false;
  to = static_cast<int64_t>(reinterpret_cast<intptr_t>(data));
  return true;
}
bool find_data(PyObject* tensor, int64_t& to) {
  if (!shim.data) return number(call_method(tensor, name_data_ptr), to);
  void* const it = implementation_of(tensor);
  return it && find_data(it, to);
}

// The same, but false if the tensor's memory ends before `end` bytes after its first element: it may have
// been freed. `item` is the size of an element.
bool find_data_of(PyObject* tensor, int64_t end, int64_t item, int64_t& to) {
  int64_t bytes, offset;
  if (!shim.data) {
    const Object storage = call_method(tensor, name_untyped_storage);
    return storage && number(call_method(storage.get(), name_nbytes), bytes) &&
        number(call_method(tensor, name_storage_offset), offset) &&
        bytes >= offset * item + end && find_data(tensor, to);
  }
  void* const it = implementation_of(tensor);
  return it && !shim.bytes(&it, &bytes) && !shim.offset(&it, &offset) &&
      bytes >= offset * item + end && find_data(it, to);
}

// Finds torch's current stream on a GPU: by torch's C function, or by calling `ask` if torch has none.
// False: it failed, maybe with an exception.
bool find_stream(PyObject* ask, int32_t device, int64_t& to) {
  using Get = int32_t (*)(int32_t, void**);
  static const Get get = [] {
    void* const torch = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    return torch ? reinterpret_cast<Get>(dlsym(torch, "aoti_torch_get_current_cuda_stream")) : nullptr;
  }();
  if (get) {
    void* stream = nullptr;
    if (get(device, &stream)) return false;
    to = static_cast<int64_t>(reinterpret_cast<intptr_t>(stream));
    return true;
  }
  const Object where(PyLong_FromLong(device));
  PyObject* const given = where.get();
  return given && number(Object(PyObject_Vectorcall(ask, &given, 1, nullptr)), to);
}

}  // namespace tensors
}  // namespace
