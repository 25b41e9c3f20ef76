// Folders of Python packages, where NVIDIA's wheels put libraries and tools.
#pragma once

#include <string>
#include <vector>

namespace jit {

/// A folder such as ".../site-packages" and the reason to look there.
struct PackagesFolder {
  std::string path;
  std::string reason;
};

/// The folder that holds the package jit_attention that this code is part of; where it is part of none, any other one.
PackagesFolder packages_beside_this_code();

/// Folders of packages of VIRTUAL_ENV, of the user and of the system, the newest Python first. Some may not exist.
std::vector<PackagesFolder> packages_of_environment();

}  // namespace jit
