void exclusive_scan_cpu(const int *count, int *offset, int groups, int len)
{
    for (int g = 0; g < groups; g++) {
        int at = 0;
        for (int i = 0; i < len; i++) {
            offset[g * len + i] = at;
            at += count[g * len + i];
        }
    }
}

//dice: groups = 300 | 5, len = 40 | 9; in count[groups, len]: int(0, 100); out offset[groups, len]
//dice: launch <<<cdiv(groups, 128), 128>>>; exact
__global__ void exclusive_scan(const int *count, int *offset, int groups, int len)
{
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g >= groups) return;
    int at = 0;
    for (int i = 0; i < len; i++) {
        offset[g * len + i] = at;
        at += count[g * len + i];
    }
}
