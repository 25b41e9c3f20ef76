from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class JitAttention(CMakePackage):
    """Attention kernels written, compiled and tuned while the program runs: the C++ library."""

    homepage = "https://github.com/jit-attention/jit-attention"
    url = "https://github.com/jit-attention/jit-attention/archive/refs/tags/v0.1.0.tar.gz"
    git = "https://github.com/jit-attention/jit-attention.git"

    license("MIT")

    version("main", branch="main")
    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant("tool", default=True, description="Build the program jit-attention")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("cuda@12.8:", type=("build", "run"))  # cuda.h; NVRTC is opened while the program runs
    depends_on("fmt@9:", type="build")
    depends_on("nlohmann-json@3.11:", type="build")
    depends_on("xxhash@0.8:", type="build")
    depends_on("cli11@2.1:", type="build", when="+tool")

    conflicts("%gcc@:10", msg="C++20 needs g++ 11 or later")
    conflicts("platform=darwin")
    conflicts("platform=windows")

    def cmake_args(self):
        return [
            self.define_from_variant("JIT_ATTENTION_TOOL", "tool"),
            self.define("JIT_ATTENTION_TESTS", False),
            self.define("JIT_ATTENTION_BENCH", False),
            self.define("JIT_ATTENTION_NVRTC_HINT", self.spec["cuda"].prefix.lib64),
            self.define("CudaHeaders_CUDA_DIR", self.spec["cuda"].prefix.include),
        ]
