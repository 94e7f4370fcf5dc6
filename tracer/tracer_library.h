#pragma once

/* Purpose: the C interface of libstepscope_tracer.so: records what a running process does, whatever
 * its language, and writes it as a trace file that trace_check, nsys' reports and Perfetto open.
 *
 * Usage, from Python:
 *     tracer = ctypes.CDLL("build/lib/libstepscope_tracer.so")
 *     tracer.stepscope_tracer_error.restype = ctypes.c_char_p
 *     tracer.stepscope_tracer_set_rank(ctypes.c_int64(rank), ctypes.c_int64(world_size))
 *     if tracer.stepscope_tracer_start(b"torch", ctypes.c_int64(0)) != 0:
 *         raise RuntimeError(tracer.stepscope_tracer_error().decode())
 *     with torch.profiler.record_function("stepscope:step 0"):
 *         optimizer.step()
 *     tracer.stepscope_tracer_stop()
 *     tracer.stepscope_tracer_write(b"rank%r.sqlite")
 *
 * Functions that return an int return 0, or 1 where they failed: stepscope_tracer_error() then says
 * in one line what, and what to do. Any thread may call them; they wait for each other.
 *
 * Caveats: one recording a process at a time. Memory is bounded: what finds no room is counted, and
 * the file says how much it was. A process that forks records in the parent alone.
 */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "stepscope 0.1.0 (commit ...)". */
const char* stepscope_tracer_version(void);

/* Which rank this process is, for the file; 0 <= rank < world_size. Without this call the
 * environment says it (RANK and WORLD_SIZE, else SLURM_PROCID and SLURM_NTASKS), or the file says
 * none. */
int stepscope_tracer_set_rank(int64_t rank, int64_t world_size);

/* Starts to record, and forgets what was recorded before. `sources` names, separated by commas,
 * what is recorded besides NVTX ranges: "torch" (operators, collectives, copies and scopes of the
 * libtorch in this process, which must have been imported); "cupti" (kernels, copies and API calls
 * of the GPUs, where the library was built with CUPTI's headers); "auto" or NULL: those of libtorch
 * and of CUDA's driver that are in the process; "": none. `host_buffer_bytes`: memory for records
 * of host threads; 0 means 64 MiB. */
int stepscope_tracer_start(const char* sources, int64_t host_buffer_bytes);

/* Ends the recording and keeps it for stepscope_tracer_write(). */
int stepscope_tracer_stop(void);

/* Writes the last recording, as often as wanted. The suffix decides: .sqlite (nsys' schema, loses
 * nothing) or .json (Chrome's trace format). In `path`, %p is the process' number, %r its rank
 * ("unknown" where there is none) and %% a percent sign. */
int stepscope_tracer_write(const char* path);

/* Why the last call of this thread failed; "" where it did not. Valid until this thread's next
 * call. */
const char* stepscope_tracer_error(void);

#ifdef __cplusplus
}
#endif
