#pragma once

/// Purpose: other libraries' optimizers as subjects of kernel_step, each library in a Python
/// process of its own (bench/kernel_peer.py), so that they are timed in the same rounds as the
/// rest.
///
/// Usage:
///     KernelPeers peers({.python = ".venv/bin/python", .libraries = {"bitsandbytes"}, .threads =
///     2}); auto subject = peers.make_subject(kernel_case);
///
/// Caveats: a subject times itself, in the other process, around the library's own `step()`, Python
/// included. Processes live as long as this object, and subjects not longer.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/kernel_case.h"
#include "bench/kernel_subject.h"
#include "bench/peer_process.h"

namespace stepscope::bench {

struct PeerOptions {
  std::string python;                  ///< the interpreter that has the libraries
  std::vector<std::string> libraries;  ///< "bitsandbytes", "torchao"
  int threads = 1;                     ///< of each library's step
};

class KernelPeers {
 public:
  /// Starts a process a library and has it import it. Throws Error naming the library where that
  /// fails.
  explicit KernelPeers(const PeerOptions& options);

  /// The cases that a library has: its optimizers in this dtype and size.
  std::vector<KernelCase> cases(kernels::DType dtype, std::int64_t numel) const;

  /// Throws Error in the library's words where it cannot do this case.
  std::unique_ptr<KernelSubject> make_subject(const KernelCase& kernel_case);

  /// By library.
  const std::map<std::string, std::string>& versions() const { return versions_; }

 private:
  std::map<Implementation, std::unique_ptr<PeerProcess>> processes_;
  std::map<std::string, std::string> versions_;
  std::int64_t made_ = 0;
};

}  // namespace stepscope::bench
