#pragma once

/// Purpose: libtorch's operators, c10d's collectives, copies between tensors and user scopes of
/// this process, through RecordFunction callbacks.
///
/// Usage: hand make_record_function_source() to a Capture.
///
/// What becomes of what libtorch reports:
/// - an operator (aten::..., bitsandbytes::...) becomes a host_operator with the shape, type and
///   place of every tensor it was handed; value = elements of the first, correlation = libtorch's
///   sequence number + 1, which an operator shares with its backward;
/// - aten::copy_ and aten::_local_scalar_dense become copies; value = bytes;
/// - c10d's operators and the scopes of its Gloo and NCCL back ends become collectives; value =
///   bytes of the tensors that this rank hands in. A back end's scope inside of c10d's operator is
///   the same collective and stays a range;
/// - every other user scope becomes a range.
///
/// Caveats: sees what goes through libtorch's dispatcher, not what a library does behind it. A
/// tensor that has no sizes of its own (nested, symbolic) is left out. The callbacks may be called
/// on any thread.

#include <memory>

#include "tracer/capture_source.h"

namespace stepscope::tracer {

std::unique_ptr<CaptureSource> make_record_function_source();

}  // namespace stepscope::tracer
