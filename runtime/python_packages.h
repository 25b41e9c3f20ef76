// Folders of Python packages, in which NVIDIA's wheels install libraries and tools.
#pragma once

#include <string>
#include <vector>

namespace jit {

/// A folder such as ".../site-packages" and the reason to look there.
struct PackagesFolder {
  std::string path;
  std::string reason;
};

/// The packages folder of the jit_attention package that contains this code, else that of any other one.
PackagesFolder packages_beside_this_code();

/// Packages folders of VIRTUAL_ENV, of the user and of the system, newest Python first. They may not exist.
std::vector<PackagesFolder> packages_of_environment();

}  // namespace jit
