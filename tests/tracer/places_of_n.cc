// Prints the tracer's table of kernels, for the test that compares it with their machine code: a
// line a kernel with the beginning of its mangled name and the ordinal, offset and size of the
// parameter that says n.

#include <cstdio>

#include "tracer/launch_parameters.h"

int main() {
  for (const auto& place : stepscope::tracer::places_of_n()) {
    std::printf("%.*s %zu %zu %zu\n", static_cast<int>(place.prefix.size()), place.prefix.data(),
                place.ordinal, place.offset, place.bytes());
  }
  return 0;
}
