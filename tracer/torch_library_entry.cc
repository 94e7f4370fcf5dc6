// The door of libstepscope_tracer_torch.so, which torch_library.cc opens.

#include "tracer/record_function_source.h"

extern "C" stepscope::tracer::CaptureSource* stepscope_new_record_function_source();

/// The caller owns it.
stepscope::tracer::CaptureSource* stepscope_new_record_function_source() {
  return stepscope::tracer::make_record_function_source().release();
}
