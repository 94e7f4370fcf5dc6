#include "kernels/golden_directory.h"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"

namespace stepscope::kernels {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 32;
constexpr std::int64_t kMaxNumel = std::int64_t{1} << 28;
constexpr std::int64_t kMaxSteps = 100'000;
constexpr int kMaxDepth = 32;
constexpr const char* kAdvice = "make the directory again, or copy it again";

constexpr std::array<const char*, 5> kRuleNames = {"adamw8", "lion8", "adamw32", "lion32",
                                                   "torch_adamw"};
constexpr std::array<const char*, 3> kDTypeNames = {"fp32", "bf16", "fp16"};

std::vector<std::byte> read_file(const std::string& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status)) {
    throw Error("the file does not exist or cannot be reached", kAdvice, {.file = path});
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw Error("this is not a regular file", kAdvice, {.file = path});
  }
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : -1;
  if (size < 0) throw Error("the file cannot be read", "check its permissions", {.file = path});
  if (size > kMaxFileBytes) {
    throw Error("the file has " + std::to_string(size) + " bytes, more than the allowed " +
                    std::to_string(kMaxFileBytes),
                "split the directory", {.file = path});
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), size);
  if (!in) throw Error("the file cannot be read to its end", kAdvice, {.file = path});
  return bytes;
}

/// Refuses JSON nested deeper than kMaxDepth: nlohmann's parser may recurse, and its callback,
/// which could stop it, takes quadratic time.
void limit_depth(std::string_view text, const std::string& path) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) {
        throw Error("the JSON is nested more than " + std::to_string(kMaxDepth) + " deep", kAdvice,
                    {.file = path});
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

Json parse_json(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  limit_depth(text, path);
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw Error(std::string("the JSON is damaged: ") + error.what(), kAdvice, {.file = path});
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Sha256 sha256(std::span<const std::byte> bytes) {
  Sha256 hash{};
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), hash.data(), &length, EVP_sha256(), nullptr) != 1) {
    throw Error("OpenSSL cannot compute SHA-256", "check the installation of libssl");
  }
  return hash;
}

std::string golden_name(GoldenRule rule) { return kRuleNames[static_cast<std::size_t>(rule)]; }
std::string golden_name(DType dtype) { return kDTypeNames[static_cast<std::size_t>(dtype)]; }

/// Reads manifest.json member by member; every message names the member.
class GoldenReader {
 public:
  explicit GoldenReader(const std::string& directory)
      : directory_(directory), manifest_path_(directory + "/manifest.json") {}

  GoldenDirectory read() {
    const Json manifest = parse_json(manifest_path_);
    const Json& meta = member(manifest, "manifest", "meta");
    if (integer(meta, "meta", "blocksize", 1, 1 << 20) != kBlockSize) {
      fail("meta.blocksize is not 256, the only block size the kernels have");
    }
    read_inputs(member(manifest, "manifest", "arrays"));
    read_cases(meta, member(manifest, "manifest", "cases"));
    read_code_tables();
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(what, kAdvice, {.file = manifest_path_});
  }

  const Json& member(const Json& object, const std::string& where, const char* key) const {
    if (!object.is_object()) fail(where + " is not an object");
    const auto found = object.find(key);
    if (found == object.end()) fail(where + " has no member '" + key + "'");
    return *found;
  }

  std::int64_t integer(const Json& object, const std::string& where, const char* key,
                       std::int64_t low, std::int64_t high) const {
    const Json& value = member(object, where, key);
    const bool too_large =
        value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high);
    if (!value.is_number_integer() || too_large || value.get<std::int64_t>() < low ||
        value.get<std::int64_t>() > high) {
      fail(where + "." + key + " is not an integer from " + std::to_string(low) + " to " +
           std::to_string(high));
    }
    return value.get<std::int64_t>();
  }

  double number(const Json& value, const std::string& where) const {
    if (!value.is_number() || !std::isfinite(value.get<double>())) fail(where + " is not a number");
    return value.get<double>();
  }

  std::string text(const Json& object, const std::string& where, const char* key) const {
    const Json& value = member(object, where, key);
    if (!value.is_string()) fail(where + "." + key + " is not a string");
    return value.get<std::string>();
  }

  template <std::size_t count>
  std::size_t one_of(const std::array<const char*, count>& names, const std::string& name,
                     const std::string& where) const {
    for (std::size_t i = 0; i < count; ++i) {
      if (name == names[i]) return i;
    }
    fail(where + " is '" + name + "', which is none of those known");
  }

  const std::vector<std::byte>& file(const std::string& name, const std::string& where) {
    // A name that could leave the directory is refused: the manifest may come from anywhere.
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      fail(where + ".file is not the name of a file in the directory");
    }
    auto& entry = result_.files_[name];
    if (!entry) {
      entry = std::make_unique<const std::vector<std::byte>>(read_file(directory_ + "/" + name));
    }
    return *entry;
  }

  /// An array of `count` elements of type `dtype`.
  GoldenArray array(const Json& entry, const std::string& where, const std::string& dtype,
                    std::int64_t count) {
    GoldenArray result;
    if (text(entry, where, "dtype") != dtype) fail(where + ".dtype is not " + dtype);
    result.element_bytes = dtype == "fp32" ? 4 : (dtype == "u8" ? 1 : 2);
    result.bytes = integer(entry, where, "nbytes", 0, kMaxFileBytes);
    if (result.bytes != count * result.element_bytes) {
      fail(where + ".nbytes is " + std::to_string(result.bytes) + ", and " + std::to_string(count) +
           " elements of " + dtype + " have " + std::to_string(count * result.element_bytes));
    }
    const std::string hex = text(entry, where, "sha256");
    if (hex.size() != 2 * result.hash.size()) fail(where + ".sha256 has not 64 hex digits");
    for (std::size_t i = 0; i < result.hash.size(); ++i) {
      const int high = hex_digit(hex[2 * i]);
      const int low = hex_digit(hex[2 * i + 1]);
      if (high < 0 || low < 0) fail(where + ".sha256 has not 64 hex digits");
      result.hash[i] = static_cast<unsigned char>(high * 16 + low);
    }
    if (!entry.contains("offset")) return result;
    const std::int64_t offset = integer(entry, where, "offset", 0, kMaxFileBytes);
    const std::string name = text(entry, where, "file");
    const std::vector<std::byte>& bytes = file(name, where);
    if (offset + result.bytes > static_cast<std::int64_t>(bytes.size())) {
      throw Error("the file has " + std::to_string(bytes.size()) + " bytes, and " + where +
                      " ends at " + std::to_string(offset + result.bytes),
                  kAdvice, {.file = directory_ + "/" + name});
    }
    result.stored = std::span(bytes).subspan(static_cast<std::size_t>(offset),
                                             static_cast<std::size_t>(result.bytes));
    return result;
  }

  GoldenArray input(const Json& entry, const std::string& where, const std::string& dtype,
                    std::int64_t count) {
    GoldenArray result = array(entry, where, dtype, count);
    if (!result.stored) fail(where + " is an input and has no offset");
    return result;
  }

  void read_inputs(const Json& arrays) {
    if (!arrays.is_object()) fail("arrays is not an object");
    for (const auto& [key, entry] : arrays.items()) {
      const std::string where = "arrays['" + key + "']";
      const std::size_t slash = key.find('/');
      if (slash == std::string::npos) fail(where + " is not named dtype/numel");
      const std::string dtype = key.substr(0, slash);
      one_of(kDTypeNames, dtype, where);
      std::int64_t numel = -1;
      const char* end = key.data() + key.size();
      const auto parsed = std::from_chars(key.data() + slash + 1, end, numel);
      if (parsed.ec != std::errc() || parsed.ptr != end || numel < 0 || numel > kMaxNumel) {
        fail(where + " has no numel from 0 to " + std::to_string(kMaxNumel));
      }
      GoldenInputs inputs;
      inputs.param = input(member(entry, where, "p0"), where + ".p0", dtype, numel);
      const Json& grads = member(entry, where, "grads");
      if (!grads.is_array()) fail(where + ".grads is not a list");
      for (std::size_t i = 0; i < grads.size(); ++i) {
        inputs.grads.push_back(
            input(grads[i], where + ".grads[" + std::to_string(i) + "]", dtype, numel));
      }
      result_.inputs_.emplace(key, std::move(inputs));
    }
  }

  Hyperparameters hyperparameters(const Json& meta, GoldenRule rule) const {
    const bool lion = rule == GoldenRule::lion8 || rule == GoldenRule::lion32;
    const char* name = lion ? "lion" : "adamw";
    const std::string where = std::string("meta.") + name;
    const Json& group = member(meta, "meta", name);
    const Json& betas = member(group, where, "betas");
    if (!betas.is_array() || betas.size() != 2) fail(where + ".betas is not a list of two");
    Hyperparameters h;
    h.learning_rate = number(member(meta, "meta", "lr"), "meta.lr");
    h.beta1 = number(betas[0], where + ".betas[0]");
    h.beta2 = number(betas[1], where + ".betas[1]");
    h.epsilon = number(member(group, where, "eps"), where + ".eps");
    return h;
  }

  void read_cases(const Json& meta, const Json& cases) {
    if (!cases.is_array()) fail("cases is not a list");
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::string where = "cases[" + std::to_string(i) + "]";
      result_.cases_.push_back(read_case(meta, cases[i], where));
    }
  }

  GoldenCase read_case(const Json& meta, const Json& entry, const std::string& where) {
    GoldenCase c;
    c.rule =
        static_cast<GoldenRule>(one_of(kRuleNames, text(entry, where, "algo"), where + ".algo"));
    c.dtype =
        static_cast<DType>(one_of(kDTypeNames, text(entry, where, "dtype"), where + ".dtype"));
    if (c.rule == GoldenRule::torch_adamw && c.dtype != DType::fp32) {
      fail(where + ": torch_adamw is defined for fp32 only");
    }
    c.numel = integer(entry, where, "n", 0, kMaxNumel);
    c.hyperparameters = hyperparameters(meta, c.rule);
    c.hyperparameters.weight_decay =
        number(member(entry, where, "weight_decay"), where + ".weight_decay");
    const std::string key = golden_name(c.dtype) + "/" + std::to_string(c.numel);
    const auto inputs = result_.inputs_.find(key);
    if (inputs == result_.inputs_.end()) fail(where + " needs inputs arrays['" + key + "']");
    c.inputs = &inputs->second;
    const Json& steps = member(entry, where, "steps");
    if (!steps.is_array()) fail(where + ".steps is not a list");
    std::int64_t last = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::string at = where + ".steps[" + std::to_string(i) + "]";
      GoldenStep step = read_step(c, steps[i], at);
      if (step.step <= last) fail(at + ".step does not grow");
      last = step.step;
      if (last > static_cast<std::int64_t>(c.inputs->grads.size())) {
        fail(at + ".step is " + std::to_string(last) + ", and arrays['" + key + "'] has " +
             std::to_string(c.inputs->grads.size()) + " gradients");
      }
      c.steps.push_back(step);
    }
    return c;
  }

  GoldenStep read_step(const GoldenCase& c, const Json& entry, const std::string& where) {
    const bool eight_bit = c.rule == GoldenRule::adamw8 || c.rule == GoldenRule::lion8;
    const bool lion = c.rule == GoldenRule::lion8 || c.rule == GoldenRule::lion32;
    GoldenStep step;
    step.step = integer(entry, where, "step", 1, kMaxSteps);
    for (const auto& [key, value] : entry.items()) {
      if (key == "step") continue;
      const std::string at = where + "." + key;
      const std::size_t which = one_of(kGoldenArrayNames, key, where + "'s array");
      const bool absmax = which >= 3;
      if ((absmax && !eight_bit) || (lion && (which == 2 || which == 4))) {
        fail(at + " does not exist for " + golden_name(c.rule));
      }
      const std::string dtype =
          which == 0 ? golden_name(c.dtype) : (absmax || !eight_bit ? "fp32" : "u8");
      step.arrays[which] = array(value, at, dtype, absmax ? block_count(c.numel) : c.numel);
    }
    return step;
  }

  void read_code_tables() {
    const std::string path = directory_ + "/qmaps.json";
    std::error_code code;
    if (!std::filesystem::exists(path, code)) return;
    const Json maps = parse_json(path);
    for (const char* name : {"dynamic_signed", "dynamic_unsigned"}) {
      const auto refuse = [&](const std::string& what) {
        throw Error(std::string(name) + " " + what, kAdvice, {.file = path});
      };
      if (!maps.is_object() || !maps.contains(name)) refuse("is missing");
      const Json& table = maps.at(name);
      if (!table.is_array() || table.size() != 256) refuse("is not a list of 256 entries");
      std::array<std::uint32_t, 256> bits{};
      for (std::size_t i = 0; i < bits.size(); ++i) {
        const std::string hex = table[i].is_string() ? table[i].get<std::string>() : "";
        const char* end = hex.data() + hex.size();
        const auto parsed = std::from_chars(hex.data(), end, bits[i], 16);
        if (hex.size() != 8 || parsed.ec != std::errc() || parsed.ptr != end) {
          refuse("has an entry that is not 8 hex digits");
        }
      }
      result_.code_tables_.push_back(bits);
    }
  }

  std::string directory_;
  std::string manifest_path_;
  GoldenDirectory result_;
};

GoldenDirectory GoldenDirectory::read(const std::string& directory) {
  return GoldenReader(directory).read();
}

}  // namespace stepscope::kernels
