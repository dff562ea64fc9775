// The border of the output is nobody's: neither the reference nor the kernel writes it.

void stencil_cpu(const float* in, float* out, int nx, int ny) {
    for (int y = 1; y < ny - 1; ++y)
        for (int x = 1; x < nx - 1; ++x)
            out[y * nx + x] = 0.25f * (in[(y - 1) * nx + x] + in[(y + 1) * nx + x] + in[y * nx + x - 1] + in[y * nx + x + 1]);
}

//dice: nx = 8192 | 100, ny = 8192 | 77; in in[nx * ny]; out out[nx * ny]
//dice: launch <<<{cdiv(nx, 32), cdiv(ny, 8)}, {32, 8}>>>; ref stencil_cpu
__global__ void stencil(const float* in, float* out, int nx, int ny) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    out[y * nx + x] = 0.25f * (in[(y - 1) * nx + x] + in[(y + 1) * nx + x] + in[y * nx + x - 1] + in[y * nx + x + 1]);
}
