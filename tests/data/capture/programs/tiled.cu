// A template of a type and a tile, in a namespace, instantiated twice.
#include <cstdio>
#include <vector>

namespace ours {
template <typename T, int TILE>
__global__ void transposed(const T* a, T* b, int rows, int columns) {
    __shared__ T tile[TILE][TILE + 1];
    int c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE + threadIdx.y;
    if (r < rows && c < columns) tile[threadIdx.y][threadIdx.x] = a[r * columns + c];
    __syncthreads();
    c = blockIdx.y * TILE + threadIdx.x;
    r = blockIdx.x * TILE + threadIdx.y;
    if (r < columns && c < rows) b[r * rows + c] = tile[threadIdx.x][threadIdx.y];
}
}  // namespace ours

template <typename T, int TILE>
void run(int rows, int columns) {
    std::vector<T> host(rows * columns);
    for (size_t i = 0; i < host.size(); i++) host[i] = T(i);
    T *a, *b;
    cudaMalloc(&a, host.size() * sizeof(T));
    cudaMalloc(&b, host.size() * sizeof(T));
    cudaMemcpy(a, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
    dim3 block(TILE, TILE), grid((columns + TILE - 1) / TILE, (rows + TILE - 1) / TILE);
    ours::transposed<T, TILE><<<grid, block>>>(a, b, rows, columns);
    cudaMemcpy(host.data(), b, host.size() * sizeof(T), cudaMemcpyDeviceToHost);
    printf("%g\n", double(host[1]));
}

int main() {
    run<float, 16>(100, 77);
    run<double, 8>(33, 65);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
