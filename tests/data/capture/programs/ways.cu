// Ways to launch: streams, a cooperative launch, an extensible one with a cluster, a CUDA graph, pinned memory.
#include <cooperative_groups.h>
#include <cstdio>
#include <thread>

__global__ void add(int n, float by, float* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}

__global__ void spread(int n, int* x) {
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int other = x[(i + 1) % n];
    grid.sync();
    if (i < n) x[i] = other;
}

__global__ void from_host(const float* pinned, float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = pinned[i] * 2.0f;
}

int main() {
    const int n = 4096;
    float *x, *halves, *pinned;
    int* ring;
    cudaMalloc(&x, n * sizeof(float));
    cudaMemset(x, 0, n * sizeof(float));
    cudaMalloc(&halves, 2 * n * sizeof(float));
    cudaMemset(halves, 0, 2 * n * sizeof(float));
    cudaMalloc(&ring, 1024 * sizeof(int));
    cudaMemset(ring, 1, 1024 * sizeof(int));
    cudaMallocHost(&pinned, n * sizeof(float));
    for (int i = 0; i < n; i++) pinned[i] = float(i);

    cudaStream_t streams[2];
    for (auto& stream : streams) cudaStreamCreate(&stream);
    for (int i = 0; i < 2; i++) add<<<n / 256, 256, 0, streams[i]>>>(n, float(i + 1), halves + i * n);

    int threads_n = 1024;
    void* arguments[] = {&threads_n, &ring};
    cudaLaunchCooperativeKernel((void*)spread, dim3(8), dim3(128), arguments, 0, nullptr);

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(n / 256);
    config.blockDim = dim3(256);
    config.stream = streams[0];
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {2, 1, 1};
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, add, n, 8.0f, x);

    from_host<<<n / 256, 256>>>(pinned, x, n);

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeGlobal);
    add<<<n / 128, 128, 0, streams[1]>>>(n, 3.0f, x);
    cudaStreamEndCapture(streams[1], &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    for (int i = 0; i < 3; i++) cudaGraphLaunch(executable, streams[1]);

    std::thread other([&] { add<<<n / 64, 64>>>(n, 0.5f, x); });
    other.join();
    cudaDeviceSynchronize();
    float first;
    cudaMemcpy(&first, x, sizeof first, cudaMemcpyDeviceToHost);
    printf("%g %s\n", first, cudaGetErrorString(cudaGetLastError()));
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
