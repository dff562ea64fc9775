/* An object file with the sections that device code has, for the symbol table within. */

__attribute__((section(".nv.constant3"))) float coefficients[4] __asm__("_ZN4ours12coefficientsE") = {1, 2, 3, 4};
__attribute__((section(".nv.global"))) int unused_total = 5;
int host_only = 6;
