#include "tracer/kernel_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace stepscope::tracer {

std::string demangled_name(std::string_view name) {
  std::string text(name);
  if (!name.starts_with("_Z")) return text;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && demangled ? std::string(demangled.get()) : text;
}

std::string_view base_name(std::string_view demangled) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)";
  std::size_t start = 0;
  std::size_t at = 0;
  for (; at < demangled.size(); ++at) {
    const char byte = demangled[at];
    if (demangled.substr(at).starts_with(kUnnamed)) {
      at += kUnnamed.size() - 1;
    } else if (byte == '<' || byte == '(') {
      break;
    } else if (byte == ' ' || byte == ':') {
      start = at + 1;
    }
  }
  const std::string_view base = demangled.substr(start, at - start);
  return base.empty() ? demangled : base;
}

}  // namespace stepscope::tracer
