// Which of sixteen centroids is nearest, and how far: the centroids are loaded into shared memory once per block.

void assign_cpu(const float4* points, const float4* centroids, int* label, float* distance, int n) {
    for (int i = 0; i < n; ++i) {
        label[i] = 0;
        for (int c = 0; c < 16; ++c) {
            float x = points[i].x - centroids[c].x, y = points[i].y - centroids[c].y, z = points[i].z - centroids[c].z,
                  w = points[i].w - centroids[c].w, d = x * x + y * y + z * z + w * w;
            if (c == 0 || d < distance[i]) distance[i] = d, label[i] = c;
        }
    }
}

//dice: n = 64K | 1001 | 1; in points[n], centroids[16]; out label[n], distance[n]; launch <<<cdiv(n, 128), 128>>>; ref assign_cpu
__global__ void assign(const float4* points, const float4* centroids, int* label, float* distance, int n) {
    __shared__ float4 center[16];
    if (threadIdx.x < 16) center[threadIdx.x] = centroids[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = points[i];
    float best = INFINITY;
    int who = 0;
    for (int c = 0; c < 16; ++c) {
        float x = p.x - center[c].x, y = p.y - center[c].y, z = p.z - center[c].z, w = p.w - center[c].w;
        float d = x * x + y * y + z * z + w * w;
        if (d < best) best = d, who = c;
    }
    label[i] = who;
    distance[i] = best;
}
