// A reduction with dynamic shared memory, launched for rows of several lengths.
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void row_sums(const float* x, float* sums, int columns) {
    extern __shared__ float part[];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[blockIdx.x * columns + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

int main() {
    const int rows = 37;
    for (int columns : {64, 1000, 333}) {
        std::vector<float> x(rows * columns), sums(rows);
        for (size_t i = 0; i < x.size(); i++) x[i] = float(i % 101) * 0.25f;
        float *device_x, *device_sums;
        cudaMalloc(&device_x, x.size() * sizeof(float));
        cudaMalloc(&device_sums, rows * sizeof(float));
        cudaMemcpy(device_x, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
        int threads = columns < 256 ? 64 : 256;
        row_sums<<<rows, threads, threads * sizeof(float)>>>(device_x, device_sums, columns);
        cudaMemcpy(sums.data(), device_sums, rows * sizeof(float), cudaMemcpyDeviceToHost);
        printf("%d columns: %g %s\n", columns, sums[rows - 1], cudaGetErrorString(cudaGetLastError()));
        cudaFree(device_x);
        cudaFree(device_sums);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
