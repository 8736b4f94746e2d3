// Where this library and torch lie, and which release that is: found when the program runs, since the recorder is compiled once for
// all of them.
#pragma once

#include <dlfcn.h>

#include <fstream>
#include <string>

#include "shim.h"

namespace inductor_rewriter {

// The directory of the library that has this in it; empty if it is not known.
inline std::string directory_of(const void* there) {
  Dl_info about;
  if (!dladdr(there, &about)) return "";
  const std::string path = about.dli_fname ? about.dli_fname : "";
  return path.substr(0, path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
}

inline std::string own_directory() {
  static const char here = 0;
  return directory_of(&here);
}
inline std::string torch_directory() {
  return directory_of(reinterpret_cast<const void*>(&aoti_torch_get_dtype));
}

// By `version.py` of the Python package, or `build-version` of the archive for C++.
inline std::string torch_version() {
  const std::string root = torch_directory() + "/../", named = "__version__ = '";
  std::string line;
  for (std::ifstream file(root + "version.py"); std::getline(file, line);) {
    if (!line.compare(0, named.size(), named)) return line.substr(named.size(), line.size() - named.size() - 1);
  }
  std::ifstream file(root + "build-version");
  return std::getline(file, line) ? line : "unknown";
}

}  // namespace inductor_rewriter
