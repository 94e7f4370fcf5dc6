#include "tracer/nvtx_injection.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tracer/host_recorder.h"
#include "tracer/injection.h"

namespace stepscope::tracer {
namespace {

/// A wide character is a code point here; what is none becomes the replacement character.
std::string utf8(const wchar_t* text) {
  std::string bytes;
  if (text == nullptr) return bytes;
  for (; *text != L'\0'; ++text) {
    auto c = std::bit_cast<std::uint32_t>(*text);
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
    const auto tail = [&](unsigned shift) {
      bytes += static_cast<char>(0x80U | ((c >> shift) & 0x3fU));
    };
    if (c < 0x80) {
      bytes += static_cast<char>(c);
    } else if (c < 0x800) {
      bytes += static_cast<char>(0xc0U | (c >> 6));
      tail(0);
    } else if (c < 0x10000) {
      bytes += static_cast<char>(0xe0U | (c >> 12));
      tail(6);
      tail(0);
    } else {
      bytes += static_cast<char>(0xf0U | (c >> 18));
      tail(12);
      tail(6);
      tail(0);
    }
  }
  return bytes;
}

std::string_view view(const char* text) {
  return text != nullptr ? std::string_view(text) : std::string_view();
}

/// Handles of domains and of registered strings are addresses in here.
class Names {
 public:
  static Names& instance() {
    static auto* const names = new Names;
    return *names;
  }
  const std::string* keep(std::string name) {
    const std::scoped_lock lock(mutex_);
    return &*names_.insert(std::move(name)).first;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

using Domain = const std::string*;  ///< null: the default domain

nvtxDomainHandle_t handle(Domain domain) {
  return reinterpret_cast<nvtxDomainHandle_t>(const_cast<std::string*>(domain));
}
Domain domain_of(nvtxDomainHandle_t handle) { return reinterpret_cast<Domain>(handle); }

struct Begun {
  Domain domain = nullptr;
  HostRecord* record = nullptr;
  std::uint64_t epoch = 0;
};

Begun begin(Domain domain, std::string_view text) {
  Begun begun{.domain = domain};
  HostRecorder& recorder = HostRecorder::instance();
  if (!recorder.recording()) return begun;
  std::string_view name = text;
  thread_local std::string with_domain;
  if (domain != nullptr) {
    with_domain.assign(*domain);
    with_domain += ':';
    with_domain += text;
    name = with_domain;
  }
  begun.record = recorder.begin({.kind = EventKind::range, .name = name}, begun.epoch);
  return begun;
}

/// What this thread has pushed and not popped. NVTX nests by domain.
std::vector<Begun>& pushed() {
  thread_local std::vector<Begun> stack;
  return stack;
}

int push(Domain domain, std::string_view text) {
  std::vector<Begun>& stack = pushed();
  const auto depth = std::count_if(stack.begin(), stack.end(),
                                   [&](const Begun& begun) { return begun.domain == domain; });
  stack.push_back(begin(domain, text));
  return static_cast<int>(depth);
}

int pop(Domain domain) {
  std::vector<Begun>& stack = pushed();
  for (std::size_t i = stack.size(); i > 0; --i) {
    const Begun begun = stack[i - 1];
    if (begun.domain != domain) continue;
    HostRecorder::instance().end(begun.record, begun.epoch);
    stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(i - 1));
    return static_cast<int>(std::count_if(
        stack.begin(), stack.end(), [&](const Begun& other) { return other.domain == domain; }));
  }
  return NVTX_NO_PUSH_POP_TRACKING;  // popped more often than pushed
}

/// Ranges that any thread may end, by number.
class Started {
 public:
  static Started& instance() {
    static auto* const started = new Started;
    return *started;
  }
  nvtxRangeId_t add(const Begun& begun) {
    const std::scoped_lock lock(mutex_);
    ranges_.emplace(++last_, begun);
    return last_;
  }
  void end(nvtxRangeId_t id) {
    Begun begun;
    {
      const std::scoped_lock lock(mutex_);
      const auto found = ranges_.find(id);
      if (found == ranges_.end()) return;
      begun = found->second;
      ranges_.erase(found);
    }
    HostRecorder::instance().end(begun.record, begun.epoch);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<nvtxRangeId_t, Begun> ranges_;
  nvtxRangeId_t last_ = 0;
};

/// Calls `use` with the text of a range's attributes.
template <typename Use>
auto with_text(const nvtxEventAttributes_t* attributes, const Use& use) {
  if (attributes == nullptr) return use(std::string_view());
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return use(view(attributes->message.ascii));
    case NVTX_MESSAGE_TYPE_UNICODE:
      return use(std::string_view(utf8(attributes->message.unicode)));
    case NVTX_MESSAGE_TYPE_REGISTERED: {
      const auto* const text = reinterpret_cast<const std::string*>(attributes->message.registered);
      return use(text != nullptr ? std::string_view(*text) : std::string_view());
    }
    default:
      return use(std::string_view());
  }
}

// NVTX's functions. Those without a domain are of the default one.

int domain_push_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  return with_text(attributes,
                   [&](std::string_view text) { return push(domain_of(domain), text); });
}
int domain_pop(nvtxDomainHandle_t domain) { return pop(domain_of(domain)); }
int push_ex(const nvtxEventAttributes_t* attributes) { return domain_push_ex(nullptr, attributes); }
int push_a(const char* text) { return push(nullptr, view(text)); }
int push_w(const wchar_t* text) { return push(nullptr, utf8(text)); }
int pop_default() { return pop(nullptr); }

nvtxRangeId_t domain_start_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  return with_text(attributes, [&](std::string_view text) {
    return Started::instance().add(begin(domain_of(domain), text));
  });
}
void domain_end(nvtxDomainHandle_t /*domain*/, nvtxRangeId_t id) { Started::instance().end(id); }
nvtxRangeId_t start_ex(const nvtxEventAttributes_t* attributes) {
  return domain_start_ex(nullptr, attributes);
}
nvtxRangeId_t start_a(const char* text) {
  return Started::instance().add(begin(nullptr, view(text)));
}
nvtxRangeId_t start_w(const wchar_t* text) {
  return Started::instance().add(begin(nullptr, utf8(text)));
}
void end_default(nvtxRangeId_t id) { Started::instance().end(id); }

nvtxDomainHandle_t domain_create_a(const char* name) {
  return handle(Names::instance().keep(std::string(view(name))));
}
nvtxDomainHandle_t domain_create_w(const wchar_t* name) {
  return handle(Names::instance().keep(utf8(name)));
}
nvtxStringHandle_t register_a(nvtxDomainHandle_t /*domain*/, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(
      const_cast<std::string*>(Names::instance().keep(std::string(view(text)))));
}
nvtxStringHandle_t register_w(nvtxDomainHandle_t /*domain*/, const wchar_t* text) {
  return reinterpret_cast<nvtxStringHandle_t>(
      const_cast<std::string*>(Names::instance().keep(utf8(text))));
}

/// Puts functions into one of NVTX's tables, whose places older copies of NVTX may not all have.
class Table {
 public:
  Table(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module)
      : there_(callbacks.GetModuleFunctionTable(module, &table_, &size_) != 0) {}

  explicit operator bool() const { return there_; }

  template <typename Function>
  void put(unsigned place, Function* function) {
    if (place < size_ && table_[place] != nullptr) {
      *table_[place] = reinterpret_cast<NvtxFunctionPointer>(function);
    }
  }

 private:
  NvtxFunctionTable table_ = nullptr;
  unsigned size_ = 0;
  bool there_;
};

bool take_over(NvtxGetExportTableFunc_t get_export_table) {
  if (get_export_table == nullptr) return false;
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof *callbacks) return false;
  Table core(*callbacks, NVTX_CB_MODULE_CORE);
  if (!core) return false;
  core.put(NVTX_CBID_CORE_RangePushEx, push_ex);
  core.put(NVTX_CBID_CORE_RangePushA, push_a);
  core.put(NVTX_CBID_CORE_RangePushW, push_w);
  core.put(NVTX_CBID_CORE_RangePop, pop_default);
  core.put(NVTX_CBID_CORE_RangeStartEx, start_ex);
  core.put(NVTX_CBID_CORE_RangeStartA, start_a);
  core.put(NVTX_CBID_CORE_RangeStartW, start_w);
  core.put(NVTX_CBID_CORE_RangeEnd, end_default);
  Table core2(*callbacks, NVTX_CB_MODULE_CORE2);
  if (!core2) return true;
  core2.put(NVTX_CBID_CORE2_DomainRangePushEx, domain_push_ex);
  core2.put(NVTX_CBID_CORE2_DomainRangePop, domain_pop);
  core2.put(NVTX_CBID_CORE2_DomainRangeStartEx, domain_start_ex);
  core2.put(NVTX_CBID_CORE2_DomainRangeEnd, domain_end);
  core2.put(NVTX_CBID_CORE2_DomainCreateA, domain_create_a);
  core2.put(NVTX_CBID_CORE2_DomainCreateW, domain_create_w);
  core2.put(NVTX_CBID_CORE2_DomainRegisterStringA, register_a);
  core2.put(NVTX_CBID_CORE2_DomainRegisterStringW, register_w);
  return true;
}

}  // namespace
}  // namespace stepscope::tracer

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  if (!stepscope::tracer::take_over(get_export_table)) return 0;
  stepscope::tracer::start_from_environment();
  return 1;
}
