#include <math.h>

void l1_distance_cpu(const double *points, const double *center, double *dist, int n, int dims)
{
    for (int i = 0; i < n; i++) {
        double total = 0;
        for (int d = 0; d < dims; d++)
            total += fabs(points[i * dims + d] - center[d]);
        dist[i] = total;
    }
}

//dice: n = 3000 | 65, dims = 8 | 3; in points[n, dims], center[dims]; out dist[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void l1_distance(const double *points, const double *center, double *dist, int n, int dims)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double total = 0;
        for (int d = 0; d < dims; d++)
            total += fabs(points[i * dims + d] - center[d]);
        dist[i] = total;
    }
}
