#include "topologies/load_model.h"

#include "core/error.h"
#include "core/printable.h"
#include "topologies/model_json.h"
#include "topologies/presets.h"
#include "topologies/safetensors.h"

namespace stepscope::topologies {

Model load_model(const std::string& spec) {
  if (std::optional<Model> model = preset(spec)) {
    validate(*model);
    return *std::move(model);
  }
  if (spec.ends_with(".json")) return read_model_json(spec);
  if (spec.ends_with(".safetensors")) return read_safetensors(spec);
  std::string presets;
  for (const std::string& name : preset_names()) presets += name + ", ";
  throw Error("unknown model " + printable(spec),
              "use " + presets + "or a file that ends in .json or .safetensors");
}

}  // namespace stepscope::topologies
