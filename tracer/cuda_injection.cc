// The door of the library for CUDA's driver: CUDA_INJECTION64_PATH names the file, and cuInit loads
// it and calls this function.

#include "tracer/injection.h"

extern "C" int InitializeInjection();

/// Returns 1: whatever happens, the process goes on.
int InitializeInjection() {
  stepscope::tracer::start_from_environment();
  return 1;
}
