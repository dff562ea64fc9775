// A 3 x 3 x 3 mean over a volume, edges repeated, with blocks of three dimensions.

namespace volume {

struct Shape {
    int x, y, z;
    __host__ __device__ int at(int i, int j, int k) const {
        i = i < 0 ? 0 : i >= x ? x - 1 : i;
        j = j < 0 ? 0 : j >= y ? y - 1 : j;
        k = k < 0 ? 0 : k >= z ? z - 1 : k;
        return (k * y + j) * x + i;
    }
};

}  // namespace volume

void box_cpu(const float* in, float* out, int nx, int ny, int nz) {
    volume::Shape s{nx, ny, nz};
    for (int k = 0; k < nz; ++k)
        for (int j = 0; j < ny; ++j)
            for (int i = 0; i < nx; ++i) {
                float sum = 0;
                for (int c = 0; c < 27; ++c) sum += in[s.at(i + c % 3 - 1, j + c / 3 % 3 - 1, k + c / 9 - 1)];
                out[s.at(i, j, k)] = sum / 27;
            }
}

namespace volume {

//dice: nx = 32 | 17 | 1, ny = 32 | 9 | 2, nz = 32 | 5 | 33; in in[nx * ny * nz]; out out[nx * ny * nz]
//dice: launch <<<dim3(cdiv(nx, 8), cdiv(ny, 4), cdiv(nz, 4)), dim3(8, 4, 4)>>>; ref box_cpu
__global__ void box(const float* in, float* out, int nx, int ny, int nz) {
    const Shape s{nx, ny, nz};
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int j = blockIdx.y * blockDim.y + threadIdx.y;
    const int k = blockIdx.z * blockDim.z + threadIdx.z;
    if (i >= nx || j >= ny || k >= nz) return;
    float sum = 0.0f;
    for (int dk = -1; dk <= 1; ++dk)
        for (int dj = -1; dj <= 1; ++dj)
            for (int di = -1; di <= 1; ++di) sum += in[s.at(i + di, j + dj, k + dk)];
    out[s.at(i, j, k)] = sum * (1.0f / 27.0f);
}

}  // namespace volume
