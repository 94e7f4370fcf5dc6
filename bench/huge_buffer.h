#pragma once

/// Purpose: memory for a kernel's tensors that costs few TLB misses.
///
/// Usage:  HugeBuffer param(4 * numel);  use(param.data());
///
/// Caveats: huge pages are asked for, not guaranteed; the memory is zero, touched, and starts at a
/// 2 MiB border.

#include <cstddef>
#include <cstdint>

namespace stepscope::bench {

class HugeBuffer {
 public:
  /// Throws Error when the system refuses the memory. 0 bytes: data() is null.
  explicit HugeBuffer(std::int64_t bytes);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  void* data() const noexcept { return data_; }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  std::int64_t bytes_;
  std::size_t mapped_bytes_ = 0;
  void* mapping_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace stepscope::bench
