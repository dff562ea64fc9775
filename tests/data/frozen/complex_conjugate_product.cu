// packed complex numbers: z[2k] is the real part, z[2k + 1] the imaginary part; out = u * conj(v)
void mul_conj_cpu(const double *u, const double *v, double *out, int n)
{
    for (int k = 0; k < n; k++) {
        double a = u[2 * k], b = u[2 * k + 1];
        double c = v[2 * k], d = v[2 * k + 1];
        out[2 * k] = a * c + b * d;
        out[2 * k + 1] = b * c - a * d;
    }
}

//dice: n = 10000 | 63; in u[2 * n], v[2 * n]; out out[2 * n]; launch <<<cdiv(n, 64), 64>>>
__global__ void mul_conj(const double *u, const double *v, double *out, int n)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n) {
        double a = u[2 * k], b = u[2 * k + 1];
        double c = v[2 * k], d = v[2 * k + 1];
        out[2 * k] = a * c + b * d;
        out[2 * k + 1] = b * c - a * d;
    }
}
