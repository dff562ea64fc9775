// 8-bit blending with rounding: (a * f + (255 - a) * b + 127) / 255
void blend_u8_cpu(const unsigned char *front, const unsigned char *back, int a, unsigned char *result, int n)
{
    for (int i = 0; i < n; ++i)
        result[i] = (unsigned char)((a * front[i] + (255 - a) * back[i] + 127) / 255);
}

//dice: n = 30000 | 100; in front[n], back[n]; out result[n]; set a = 90; launch <<<cdiv(n, 256), 256>>>; exact
__global__ void blend_u8(const unsigned char *front, const unsigned char *back, int a, unsigned char *result, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        result[i] = (unsigned char)((a * front[i] + (255 - a) * back[i] + 127) / 255);
}
