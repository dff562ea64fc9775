#include <math.h>

static void spherical_cpu(const double* rtp, double* xyz, int points) {
    for (int p = 0; p < points; ++p) {
        double r = rtp[3 * p], theta = rtp[3 * p + 1], phi = rtp[3 * p + 2];
        xyz[3 * p] = r * sin(theta) * cos(phi);
        xyz[3 * p + 1] = r * sin(theta) * sin(phi);
        xyz[3 * p + 2] = r * cos(theta);
    }
}

//dice: points = 8000 | 51; in rtp[3 * points]: uniform(0, 3); out xyz[3 * points]; launch <<<cdiv(points, 128), 128>>>
__global__ void spherical(const double* rtp, double* xyz, int points) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= points) return;
    double r = rtp[3 * p], theta = rtp[3 * p + 1], phi = rtp[3 * p + 2];
    xyz[3 * p] = r * sin(theta) * cos(phi);
    xyz[3 * p + 1] = r * sin(theta) * sin(phi);
    xyz[3 * p + 2] = r * cos(theta);
}
