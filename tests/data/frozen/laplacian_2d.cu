// The border is copied.
void laplacian_cpu(const float* u, float* out, int nx, int ny) {
    for (int y = 0; y < ny; y++)
        for (int x = 0; x < nx; x++) {
            int i = y * nx + x;
            if (x == 0 || y == 0 || x == nx - 1 || y == ny - 1)
                out[i] = u[i];
            else
                out[i] = u[i - 1] + u[i + 1] + u[i - nx] + u[i + nx] - 4.0f * u[i];
        }
}

//dice: nx = 200 | 33 | 3, ny = 120 | 17 | 1; in u[ny, nx]; out out[ny, nx]; tol 1e-4
//dice: launch <<<{cdiv(nx, 16), cdiv(ny, 16)}, {16, 16}>>>
__global__ void laplacian(const float* u, float* out, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < nx && y < ny) {
        int i = y * nx + x;
        if (x == 0 || y == 0 || x == nx - 1 || y == ny - 1)
            out[i] = u[i];
        else
            out[i] = u[i - 1] + u[i + 1] + u[i - nx] + u[i + nx] - 4.0f * u[i];
    }
}
