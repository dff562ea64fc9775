// Many launches of one kernel over managed memory, with a constant, a counter of the device, and a struct by value.
#include <cstdio>

struct Grid {
    int n;
    float* now;
    float* next;
    double scale;
};

__constant__ float weights[3];
__device__ unsigned steps_done;

__global__ void count_step() { steps_done += 1; }

__global__ void heat(Grid grid, float leak) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= grid.n) return;
    float left = i > 0 ? grid.now[i - 1] : 0.0f, right = i + 1 < grid.n ? grid.now[i + 1] : 0.0f;
    float mixed = weights[0] * left + weights[1] * grid.now[i] + weights[2] * right;
    grid.next[i] = float(mixed * grid.scale) - leak;
}

int main() {
    const int n = 5000;
    float host[3] = {0.25f, 0.5f, 0.25f};
    Grid grid{n, nullptr, nullptr, 0.999};
    cudaMallocManaged(&grid.now, n * sizeof(float));
    cudaMallocManaged(&grid.next, n * sizeof(float));
    cudaMemcpyToSymbol(weights, host, sizeof host);
    for (int i = 0; i < n; i++) grid.now[i] = float(i % 17);
    for (int step = 0; step < 40; step++) {
        count_step<<<1, 1>>>();
        heat<<<(n + 127) / 128, 128>>>(grid, 0.001f);
        float* other = grid.now;
        grid.now = grid.next;
        grid.next = other;
    }
    cudaDeviceSynchronize();
    printf("%g\n", grid.now[n / 2]);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
