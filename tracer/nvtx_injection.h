#pragma once

/// Purpose: the NVTX ranges of any process, whatever language it is written in: each library in it
/// that uses NVTX loads the file in NVTX_INJECTION64_PATH and calls InitializeInjectionNvtx2 there.
///
/// Usage:  NVTX_INJECTION64_PATH=build/lib/libstepscope_tracer.so python train.py
///
/// A range is recorded as "domain:text", in the default domain as "text". Ranges that are pushed
/// and popped and ranges that are started and ended are both events of the thread that begins them.
///
/// Caveats: marks, categories, colours and payloads are not recorded. Texts of wide characters
/// become UTF-8. Domains and registered strings are kept for ever: tools cannot know who still
/// holds them.

#include <nvtx3/nvToolsExt.h>

extern "C" {

/// Returns 1 where NVTX's functions now come here, 0 where they cannot.
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table);
}
