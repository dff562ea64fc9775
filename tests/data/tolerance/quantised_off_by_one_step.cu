// Right: the very same steps. Wrong: the range ends at -128 instead of -127, so only the outermost value is off, by one.

void quantised_off_by_one_step_cpu(const float* x, signed char* q, float scale, int n) {
    for (int i = 0; i < n; ++i) q[i] = (signed char)fminf(fmaxf(rintf(x[i] / scale), -127.0f), 127.0f);
}

//dice: n = 5000; in x[n]; out q[n]; launch <<<cdiv(n, 128), 128>>>; set scale = 0.02f; ref quantised_off_by_one_step_cpu
__global__ void right(const float* x, signed char* q, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int steps = __float2int_rn(x[i] / scale);
    q[i] = (signed char)min(max(steps, -127), 127);
}

__global__ void wrong(const float* x, signed char* q, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int steps = __float2int_rn(x[i] / scale);
    q[i] = (signed char)min(max(steps, -128), 127);
}
