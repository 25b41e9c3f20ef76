#include "useful_work.h"

#include <jit/workload.h>

namespace jit::tool {

std::map<std::string, HostTensor, std::less<>> host_tensors(const Problem& problem) {
  std::map<std::string, HostTensor, std::less<>> tensors;
  for (const auto& [name, array] : problem.tensors)
    tensors[name] = {.dtype = array.dtype, .shape = array.shape, .data = array.bytes.data()};
  return tensors;
}

std::optional<double> mask_density(const Problem& problem) {
  return jit::mask_density(problem.spec, shape_of(problem), host_tensors(problem));
}

double useful_flops(const Problem& problem, double share, bool backward) {
  const double pairs = share * problem.batch * problem.heads * static_cast<double>(problem.seqlen_q) *
                       static_cast<double>(problem.seqlen_kv);
  const int d = problem.spec.head_dim, dv = problem.spec.value_head_dim();
  return 2.0 * pairs * (backward ? 3 * d + 2 * dv : d + dv);
}

}  // namespace jit::tool
