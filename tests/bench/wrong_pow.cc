// A library to be loaded before all others (LD_PRELOAD), with which libtorch's powers are off by a
// thousandth, and so its bias corrections and its AdamW; other callers get the right ones.

#include <dlfcn.h>

#include <cstring>

extern "C" double pow(double base, double exponent) {
  using Power = double (*)(double, double);
  static const auto right = reinterpret_cast<Power>(dlsym(RTLD_NEXT, "pow"));
  Dl_info caller = {};
  const bool known = dladdr(__builtin_return_address(0), &caller) != 0;
  const bool of_libtorch =
      known && caller.dli_fname != nullptr && std::strstr(caller.dli_fname, "libtorch") != nullptr;
  return right(base, exponent) * (of_libtorch ? 1.001 : 1);
}
