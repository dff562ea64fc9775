void overlap_cpu(const int *x1, const int *y1, const int *x2, const int *y2, const int *ref, int *common, int n)
{
    for (int i = 0; i < n; i++) {
        int left = x1[i] > ref[0] ? x1[i] : ref[0];
        int top = y1[i] > ref[1] ? y1[i] : ref[1];
        int right = x2[i] < ref[2] ? x2[i] : ref[2];
        int bottom = y2[i] < ref[3] ? y2[i] : ref[3];
        common[i] = right > left && bottom > top ? (right - left) * (bottom - top) : 0;
    }
}

//dice: n = 9000 | 50; in x1[n]: int(0, 50), y1[n]: int(0, 50), x2[n]: int(50, 100), y2[n]: int(50, 100), ref[4]: int(20, 80)
//dice: out common[n]; launch <<<cdiv(n, 128), 128>>>; exact
__global__ void overlap(const int *x1, const int *y1, const int *x2, const int *y2, const int *ref, int *common, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int left = x1[i] > ref[0] ? x1[i] : ref[0];
        int top = y1[i] > ref[1] ? y1[i] : ref[1];
        int right = x2[i] < ref[2] ? x2[i] : ref[2];
        int bottom = y2[i] < ref[3] ? y2[i] : ref[3];
        common[i] = right > left && bottom > top ? (right - left) * (bottom - top) : 0;
    }
}
