//dice: n = 9000 | 31 | 1, times = 4 | 3 | 1; in src[n]; out dst[n * times]; launch <<<cdiv(n * times, 256), 256>>>
//dice: ref torch: torch.repeat_interleave(src, times)
__global__ void repeat_elements(const int* src, int* dst, int n, int times) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * times)
        dst[i] = src[i / times];
}
