void box_area_cpu(const float* boxes, float* area, int n) {
    for (int i = 0; i < n; i++) {
        float w = boxes[4 * i + 2] - boxes[4 * i];
        float h = boxes[4 * i + 3] - boxes[4 * i + 1];
        area[i] = (w > 0.0f ? w : 0.0f) * (h > 0.0f ? h : 0.0f);
    }
}

//dice: n = 15000 | 99 | 1; in boxes[n, 4]; out area[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void box_area(const float* boxes, float* area, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float w = boxes[4 * i + 2] - boxes[4 * i];
        float h = boxes[4 * i + 3] - boxes[4 * i + 1];
        area[i] = (w > 0.0f ? w : 0.0f) * (h > 0.0f ? h : 0.0f);
    }
}
