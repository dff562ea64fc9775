// Seven points in three dimensions, marching along z with the column kept in registers; the boundary is copied.

void heat_cpu(const float* in, float* out, float alpha, int nx, int ny, int nz) {
    for (int z = 0; z < nz; ++z)
        for (int y = 0; y < ny; ++y)
            for (int x = 0; x < nx; ++x) {
                int i = (z * ny + y) * nx + x;
                if (x == 0 || y == 0 || z == 0 || x == nx - 1 || y == ny - 1 || z == nz - 1) {
                    out[i] = in[i];
                    continue;
                }
                float sum = in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] + in[i - nx * ny] + in[i + nx * ny];
                out[i] = in[i] + alpha * (sum - 6.0f * in[i]);
            }
}

//dice: nx = 64 | 33 | 20, ny = 64 | 17 | 3, nz = 64 | 9 | 21; in in[nx * ny * nz]; out out[nx * ny * nz]; set alpha = 0.1f
//dice: launch <<<dim3(cdiv(nx, 16), cdiv(ny, 8)), dim3(16, 8)>>>; ref heat_cpu
__global__ void heat(const float* __restrict__ in, float* __restrict__ out, float alpha, int nx, int ny, int nz) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    const int plane = nx * ny;
    int i = y * nx + x;
    const bool edge = x == 0 || y == 0 || x == nx - 1 || y == ny - 1;
    float below = 0.0f, here = in[i], above = nz > 1 ? in[i + plane] : 0.0f;
    for (int z = 0; z < nz; ++z, i += plane) {
        if (edge || z == 0 || z == nz - 1)
            out[i] = here;
        else
            out[i] = here + alpha * (in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] + below + above - 6.0f * here);
        below = here;
        here = above;
        if (z + 2 < nz) above = in[i + 2 * plane];
    }
}
