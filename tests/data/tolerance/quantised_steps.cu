// x / scale and x * (1 / scale) round apart now and then, and where that is at an edge between two steps the quantised
// value is one step off: legal there and only there. Right: the product. Wrong: rounded down, half of all one step off.

void quantised_steps_cpu(const float* x, signed char* q, float scale, int n) {
    for (int i = 0; i < n; ++i) q[i] = (signed char)fminf(fmaxf(rintf(x[i] / scale), -127.0f), 127.0f);
}

//dice: n = 60000 | 1000; in x[n]; out q[n]; launch <<<cdiv(n, 128), 128>>>; set scale = 0.03f; ref quantised_steps_cpu
__global__ void right(const float* x, signed char* q, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float inverse = 1.0f / scale;
    if (i < n) q[i] = (signed char)fminf(fmaxf(rintf(x[i] * inverse), -127.0f), 127.0f);
}

__global__ void wrong(const float* x, signed char* q, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) q[i] = (signed char)fminf(fmaxf(floorf(x[i] / scale), -127.0f), 127.0f);
}
