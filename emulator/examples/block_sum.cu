// block_sum adds up 256 numbers in each block. A __syncthreads() is missing: when step 1 reads a word, step 2
// may have overwritten it. NVRTC makes block_sum.ptx of this with -arch=sm_80 -lineinfo.
extern "C" __global__ void block_sum(const float* in, float* out) {
  __shared__ float partial[256];
  partial[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
#pragma unroll 1
  for (unsigned step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}
