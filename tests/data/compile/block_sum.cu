// Sums by block, once with cub and once with cooperative groups, in a program with C++ host code.
#include <algorithm>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/block/block_reduce.cuh>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

namespace cg = cooperative_groups;
using namespace std;

constexpr int kThreads = 128;

static std::vector<float> history;

struct Report {
    std::string name;
    void print() const { std::cout << name << "\n"; }
};

template <int BLOCK>
__global__ void sumWithCub(const float* x, float* sums, int n) {
    using Reduce = cub::BlockReduce<float, BLOCK>;
    __shared__ typename Reduce::TempStorage storage;
    int i = blockIdx.x * BLOCK + threadIdx.x;
    float value = i < n ? x[i] : 0.0f;
    float sum = Reduce(storage).Sum(value);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) sumWithGroups(const float* x, float* sums, int n) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    __shared__ float partial[kThreads / 32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = cg::reduce(tile, i < n ? x[i] : 0.0f, cg::plus<float>());
    if (tile.thread_rank() == 0) partial[threadIdx.x / 32] = sum;
    block.sync();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (int w = 0; w < kThreads / 32; ++w) total += partial[w];
        sums[blockIdx.x] = total;
    }
}

int main(int argc, char** argv) {
    vector<float> x(argc > 1 ? stoi(argv[1]) : 1 << 20, 1.0f);
    float *dx, *dsums;
    int blocks = (int(x.size()) + kThreads - 1) / kThreads;
    cudaMalloc(&dx, x.size() * sizeof(float));
    cudaMalloc(&dsums, blocks * sizeof(float));
    cudaMemcpy(dx, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
    sumWithCub<kThreads><<<blocks, kThreads>>>(dx, dsums, int(x.size()));
    sumWithGroups<<<blocks, kThreads>>>(dx, dsums, int(x.size()));
    vector<float> sums(blocks);
    cudaMemcpy(sums.data(), dsums, blocks * sizeof(float), cudaMemcpyDeviceToHost);
    history.push_back(accumulate(sums.begin(), sums.end(), 0.0f));
    Report{"sum"}.print();
    return history.back() == float(x.size()) ? 0 : 1;
}
