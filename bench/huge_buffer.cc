#include "bench/huge_buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "core/error.h"

namespace stepscope::bench {

HugeBuffer::HugeBuffer(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  constexpr std::size_t kPage = std::size_t{2} << 20;
  const std::size_t whole_pages = (static_cast<std::size_t>(bytes) + kPage - 1) / kPage * kPage;
  mapped_bytes_ = whole_pages + kPage;
  void* const mapping =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    throw Error("the system refused " + std::to_string(bytes) + " bytes of memory",
                "measure smaller sizes");
  }
  mapping_ = mapping;
  const std::size_t past_border = reinterpret_cast<std::uintptr_t>(mapping) % kPage;
  data_ = static_cast<char*>(mapping) + (past_border == 0 ? 0 : kPage - past_border);
  madvise(data_, whole_pages, MADV_HUGEPAGE);  // refused on some kernels: slower, not wrong
  std::memset(data_, 0, static_cast<std::size_t>(bytes));
}

HugeBuffer::~HugeBuffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace stepscope::bench
