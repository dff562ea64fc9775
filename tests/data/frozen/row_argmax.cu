void row_argmax_cpu(const float* scores, int* best, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        int arg = 0;
        for (int c = 1; c < cols; c++)
            if (scores[r * cols + c] > scores[r * cols + arg])
                arg = c;
        best[r] = arg;
    }
}

//dice: rows = 600 | 33 | 1, cols = 100 | 7 | 1; in scores[rows, cols]: uniform(-1, 1); out best[rows]; exact
//dice: launch <<<cdiv(rows, 128), 128>>>
__global__ void row_argmax(const float* scores, int* best, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        int arg = 0;
        for (int c = 1; c < cols; c++)
            if (scores[r * cols + c] > scores[r * cols + arg])
                arg = c;
        best[r] = arg;
    }
}
