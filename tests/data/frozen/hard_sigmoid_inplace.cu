void hardsig_cpu(float *data, float slope, float shift, long total)
{
    for (long p = 0; p < total; p++) {
        float v = slope * data[p] + shift;
        if (v < 0.f) v = 0.f;
        if (v > 1.f) v = 1.f;
        data[p] = v;
    }
}

//dice: total = 24000 | 511; io data[total]; set slope = 0.25, shift = 0.5; launch <<<32, 128>>>
__global__ void hardsig(float *data, float slope, float shift, long total)
{
    for (long p = blockIdx.x * blockDim.x + threadIdx.x; p < total; p += (long)blockDim.x * gridDim.x) {
        float v = slope * data[p] + shift;
        if (v < 0.f) v = 0.f;
        if (v > 1.f) v = 1.f;
        data[p] = v;
    }
}
