#include <math.h>

void column_stats_cpu(const double* data, double* mean, double* stddev, int n, int k) {
    for (int j = 0; j < k; j++) {
        double m = 0.0;
        for (int i = 0; i < n; i++)
            m += data[i * k + j];
        m /= n;
        double v = 0.0;
        for (int i = 0; i < n; i++)
            v += (data[i * k + j] - m) * (data[i * k + j] - m);
        mean[j] = m;
        stddev[j] = sqrt(v / n);
    }
}

//dice: n = 150 | 7, k = 300 | 11; in data[n, k]: uniform(-3, 3); out mean[k], stddev[k]; launch <<<cdiv(k, 128), 128>>>
__global__ void column_stats(const double* data, double* mean, double* stddev, int n, int k) {
    int j = threadIdx.x + blockIdx.x * blockDim.x;
    if (j < k) {
        double m = 0.0;
        for (int i = 0; i < n; i++)
            m += data[i * k + j];
        m /= n;
        double v = 0.0;
        for (int i = 0; i < n; i++)
            v += (data[i * k + j] - m) * (data[i * k + j] - m);
        mean[j] = m;
        stddev[j] = sqrt(v / n);
    }
}
