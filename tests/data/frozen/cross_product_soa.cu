void cross_cpu(const double *ux, const double *uy, const double *uz, const double *vx, const double *vy, const double *vz,
               double *wx, double *wy, double *wz, int n)
{
    for (int i = 0; i < n; i++) {
        wx[i] = uy[i] * vz[i] - uz[i] * vy[i];
        wy[i] = uz[i] * vx[i] - ux[i] * vz[i];
        wz[i] = ux[i] * vy[i] - uy[i] * vx[i];
    }
}

//dice: n = 9000 | 31; in ux[n], uy[n], uz[n], vx[n], vy[n], vz[n]; out wx[n], wy[n], wz[n]; launch <<<cdiv(n, 128), 128>>>
__global__ void cross(const double *ux, const double *uy, const double *uz, const double *vx, const double *vy, const double *vz,
                      double *wx, double *wy, double *wz, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        wx[i] = uy[i] * vz[i] - uz[i] * vy[i];
        wy[i] = uz[i] * vx[i] - ux[i] * vz[i];
        wz[i] = ux[i] * vy[i] - uy[i] * vx[i];
    }
}
