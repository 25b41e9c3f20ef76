// The sum of 256 numbers, in each block. What step 1 reads step 2 may have written by then: a __syncthreads() is missing.
// block_sum.ptx is what NVRTC makes of this with -arch=sm_80 -lineinfo.
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
