#include "tracer/torch_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "core/error.h"

namespace stepscope::tracer {
namespace {

/// The file next to this library.
std::filesystem::path beside(const char* name) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&torch_is_loaded), &info) == 0) return name;
  return std::filesystem::path(info.dli_fname).parent_path() / name;
}

std::string dlerror_text() {
  const char* const text = dlerror();
  return text != nullptr ? text : "no reason given";
}

}  // namespace

bool torch_is_loaded() {
  void* const handle = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  dlclose(handle);  // counts alone: the process keeps its own
  return true;
}

std::unique_ptr<CaptureSource> load_torch_source() {
  if (!torch_is_loaded()) {
    throw Error("libtorch is not in this process, so its operators cannot be recorded",
                "import torch first, or leave out source 'torch'");
  }
  const std::filesystem::path path = beside("libstepscope_tracer_torch.so");
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw Error("the recorder of libtorch's operators could not be loaded: " + dlerror_text(),
                "build it against the PyTorch that this process uses (STEPSCOPE_TORCH_DIR)",
                {.file = path.string()});
  }
  const auto make =
      reinterpret_cast<CaptureSource* (*)()>(dlsym(handle, "stepscope_new_record_function_source"));
  if (make == nullptr) {
    throw Error("the recorder of libtorch's operators is another library: " + dlerror_text(),
                "build both libraries from one commit", {.file = path.string()});
  }
  return std::unique_ptr<CaptureSource>(make());
}

}  // namespace stepscope::tracer
