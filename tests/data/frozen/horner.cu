// coeff[0] belongs to the highest power
void polyval_cpu(const float* x, const float* coeff, float* y, int n, int terms) {
    for (int i = 0; i < n; i++) {
        float acc = coeff[0];
        for (int k = 1; k < terms; k++)
            acc = acc * x[i] + coeff[k];
        y[i] = acc;
    }
}

//dice: n = 16000 | 257 | 1, terms = 6 | 3 | 1; in x[n]: uniform(-1, 1), coeff[terms]; out y[n]; tol 1e-5
//dice: launch <<<cdiv(n, 256), 256>>>
__global__ void polyval(const float* x, const float* coeff, float* y, int n, int terms) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float acc = coeff[0];
        for (int k = 1; k < terms; k++)
            acc = acc * x[i] + coeff[k];
        y[i] = acc;
    }
}
