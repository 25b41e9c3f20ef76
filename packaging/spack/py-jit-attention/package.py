from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyJitAttention(PythonPackage):
    """Attention kernels written, compiled and tuned while the program runs: the Python package."""

    homepage = "https://github.com/jit-attention/jit-attention"
    pypi = "jit-attention/jit_attention-0.1.0.tar.gz"

    license("MIT")

    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("python@3.10:", type=("build", "link", "run"))
    depends_on("py-scikit-build-core@1:", type="build")
    depends_on("py-nanobind@2.4:", type="build")
    depends_on("cuda@12.8:", type=("build", "run"))  # cuda.h; NVRTC is opened while the program runs

    conflicts("%gcc@:10", msg="C++20 needs g++ 11 or later")

    def config_settings(self, spec, prefix):
        return {"cmake.define.CudaHeaders_CUDA_DIR": spec["cuda"].prefix.include,
                "cmake.define.JIT_ATTENTION_NVRTC_HINT": spec["cuda"].prefix.lib64}
