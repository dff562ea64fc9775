//dice: height = 120 | 5, width = 200 | 33; in img[height, width]; out flipped[height, width]
//dice: launch <<<{cdiv(width, 16), cdiv(height, 16)}, {16, 16}>>>; ref torch: torch.flip(img, [1])
__global__ void flip_horizontal(const unsigned char* img, unsigned char* flipped, int width, int height)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;

    if (col < width && row < height) {
        flipped[row * width + (width - 1 - col)] = img[row * width + col];
    }
}
