#include "runtime/launch.h"

#include "runtime/driver_api.h"

namespace jit {
namespace {

/// The first driver that accepts the attribute during stream capture, too. Without it, griddepcontrol.wait
/// returns at once.
constexpr int dependent_launch_version = 12030;

}  // namespace

void launch(CUkernel kernel, const LaunchConfig& config, void** params, CUstream stream) {
  CUlaunchConfig launch_config{};
  launch_config.gridDimX = config.grid[0];
  launch_config.gridDimY = config.grid[1];
  launch_config.gridDimZ = config.grid[2];
  launch_config.blockDimX = config.block[0];
  launch_config.blockDimY = config.block[1];
  launch_config.blockDimZ = config.block[2];
  launch_config.sharedMemBytes = config.smem_bytes;
  launch_config.hStream = stream;
  CUlaunchAttribute attributes[2] = {};
  launch_config.attrs = attributes;
  if (config.dependent && driver().version >= dependent_launch_version) {
    CUlaunchAttribute& attribute = attributes[launch_config.numAttrs++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  if (config.cooperative) {
    CUlaunchAttribute& attribute = attributes[launch_config.numAttrs++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  }
  // cuLaunchKernelEx accepts a CUkernel as its CUfunction, as the driver API documents.
  const CUresult result =
      driver().cuLaunchKernelEx(&launch_config, reinterpret_cast<CUfunction>(kernel), params, nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    check(result, "cuLaunchKernelEx", ErrorCode::launch_failed);
}

}  // namespace jit
