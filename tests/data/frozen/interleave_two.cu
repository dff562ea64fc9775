void interleave_cpu(const float* left, const float* right, float* stereo, int frames) {
    for (int f = 0; f < frames; f++) {
        stereo[2 * f] = left[f];
        stereo[2 * f + 1] = right[f];
    }
}

//dice: frames = 44100 | 255 | 1; in left[frames], right[frames]; out stereo[2 * frames]
//dice: launch <<<cdiv(frames, 256), 256>>>
__global__ void interleave(const float* left, const float* right, float* stereo, int frames) {
    int f = blockIdx.x * blockDim.x + threadIdx.x;
    if (f < frames) {
        stereo[2 * f] = left[f];
        stereo[2 * f + 1] = right[f];
    }
}
