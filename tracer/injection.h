#pragma once

/// Purpose: a recording from the time a process loads this library by itself until it exits, as the
/// environment asks for it; nothing in the process has to be changed.
///
/// Usage, by the doors in nvtx_injection.h and cuda_injection.cc:
///     NVTX_INJECTION64_PATH=build/lib/libstepscope_tracer.so   # NVTX's first range loads it
///     CUDA_INJECTION64_PATH=build/lib/libstepscope_tracer.so   # CUDA's driver loads it
///     STEPSCOPE_TRACE_OUT=run/rank%r.sqlite                    # as in stepscope_tracer_write()
///     STEPSCOPE_TRACE_SOURCES=auto                             # as in stepscope_tracer_start()
///     STEPSCOPE_TRACE_BUFFER_MIB=64                            # for records of host threads
///
/// Caveats: what cannot be done is one line on stderr; the process itself goes on in any case. A
/// process that is killed, or leaves by _exit as forked children do, writes nothing.

namespace stepscope::tracer {

/// Starts to record, once, and writes the file when the process exits. Without STEPSCOPE_TRACE_OUT
/// nothing is recorded until somebody calls stepscope_tracer_start().
void start_from_environment() noexcept;

}  // namespace stepscope::tracer
