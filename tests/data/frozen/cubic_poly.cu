//dice: n = 50000 | 1000 | 3; in t[n]: uniform(-2, 2); out p[n]; set a = 0.5, b = -1.25, c = 2.0, d = 3.0
//dice: launch <<<cdiv(n, 256), 256>>>; ref torch: ((a * t + b) * t + c) * t + d
__global__ void cubic(const float* t, float* p, float a, float b, float c, float d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = t[i];
        p[i] = ((a * v + b) * v + c) * v + d;
    }
}
