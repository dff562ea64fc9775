//dice: n = 1M | 777 | 5; in input[n]; out output[n]; launch <<<cdiv(n, 128), 128>>>
//dice: ref torch: torch.relu(input)
__global__ void relu_forward(const float* input, float* output, size_t n) {
    size_t idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < n) {
        output[idx] = input[idx] > 0.0f ? input[idx] : 0.0f;
    }
}
