#pragma once

/// Purpose: the forms of a kernel's name that readers ask for.
///
/// Usage:  demangled_name("_Z6kernelIfEvi") == "void kernel<float>(int)"
///         base_name("void kernel<float>(int)") == "kernel"

#include <string>
#include <string_view>

namespace stepscope::tracer {

/// As a C++ programmer writes it; `name` itself where it is not mangled.
std::string demangled_name(std::string_view name);

/// Without return type, namespaces, template arguments and parameters.
std::string_view base_name(std::string_view demangled);

}  // namespace stepscope::tracer
