#include <jit/host_tensor.h>

#include <cstring>

#include <jit/float16.h>

namespace jit {
namespace {

template <class T>
T element(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

double HostTensor::at(std::initializer_list<std::int64_t> index) const {
  const std::int64_t* given = index.end() - shape.size();
  std::int64_t flat = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) flat = flat * shape[i] + (shape[i] == 1 ? 0 : given[i]);
  switch (dtype) {
    case DType::bf16:
    case DType::fp16:
      return float_from_bits(dtype, element<std::uint16_t>(data, flat));
    case DType::fp32:
      return element<float>(data, flat);
    case DType::int32:
      return element<std::int32_t>(data, flat);
    case DType::int64:
      return static_cast<double>(element<std::int64_t>(data, flat));
    case DType::uint8:
    case DType::latent_656:
    case DType::latent_584:
    case DType::latent_528:
    case DType::int4:
    case DType::nvfp4:
    case DType::mxfp4:
      return element<std::uint8_t>(data, flat);
    case DType::int8:
      return element<std::int8_t>(data, flat);
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
      return float_from_bits(dtype, element<std::uint8_t>(data, flat));
  }
  return 0;
}

}  // namespace jit
