// Signed bytes four at a time: rows of a matrix times a vector, summed in 32 bits.

void gemv_cpu(const char4* A, const char4* x, int* y, int rows, int quads) {
    for (int r = 0; r < rows; ++r) {
        int s = 0;
        for (int q = 0; q < quads; ++q) {
            char4 a = A[r * quads + q], b = x[q];
            s += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
        y[r] = s;
    }
}

//dice: rows = 1024 | 33 | 1, quads = 256 | 7 | 65; in A[rows, quads], x[quads]; out y[rows]; launch <<<cdiv(rows, 4), 128>>>
//dice: ref gemv_cpu
__global__ void gemv_i8(const char4* A, const char4* x, int* y, int rows, int quads) {
    const int r = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (r >= rows) return;
    const int* a = reinterpret_cast<const int*>(A + r * quads);
    const int* b = reinterpret_cast<const int*>(x);
    int acc = 0;
    for (int q = lane; q < quads; q += 32) acc = __dp4a(a[q], b[q], acc);
    acc = __reduce_add_sync(0xffffffffu, acc);
    if (lane == 0) y[r] = acc;
}
