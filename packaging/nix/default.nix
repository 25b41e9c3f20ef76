# callPackage ./default.nix { } of python3Packages. The sdist contains the headers of other projects.
{
  lib,
  buildPythonPackage,
  fetchPypi,
  cmake,
  ninja,
  nanobind,
  scikit-build-core,
  numpy,
  cudaPackages,
}:

buildPythonPackage rec {
  pname = "jit-attention";
  version = "0.1.0";
  pyproject = true;

  src = fetchPypi {
    pname = "jit_attention";
    inherit version;
    hash = lib.fakeHash; # of the release's SHA256SUMS
  };

  # cuda.h comes from nixpkgs, not from the wheel that pip takes it from.
  postPatch = ''
    sed -i '/^requires = /s/, "nvidia-cuda-runtime[^"]*"//' pyproject.toml
  '';

  build-system = [ nanobind scikit-build-core ];
  nativeBuildInputs = [ cmake ninja ];
  dontUseCmakeConfigure = true;
  env.CUDA_HOME = lib.getDev cudaPackages.cuda_cudart;

  # The folder that is searched for NVRTC last.
  pypaBuildFlags = [ "-Ccmake.define.JIT_ATTENTION_NVRTC_HINT=${lib.getLib cudaPackages.cuda_nvrtc}/lib" ];

  nativeCheckInputs = [ numpy ];
  pythonImportsCheck = [ "jit_attention" ];

  meta = {
    description = "Attention kernels written, compiled and tuned while the program runs";
    homepage = "https://github.com/jit-attention/jit-attention";
    license = lib.licenses.mit;
    platforms = [ "x86_64-linux" "aarch64-linux" ];
    mainProgram = "jit-attention";
  };
}
